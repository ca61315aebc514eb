"""A client that trains a step again and again, and prints each: python stopped_client.py URL."""

import sys
import time

import tinker
from tinker import types

from cookhouse.errors import CookhouseError
from cookhouse.training import service_errors

if __name__ == "__main__":
    service = tinker.ServiceClient(base_url=sys.argv[1], api_key="tml-key")
    trainer = service.create_lora_training_client("cookhouse/tiny", rank=4)
    inputs = {"target_tokens": types.TensorData(data=[2, 3], dtype="int64", shape=[2])}
    datum = types.Datum(model_input=types.ModelInput.from_ints([1, 2]), loss_fn_inputs=inputs)
    try:
        with service_errors("training"):
            while True:
                trainer.forward_backward([datum], "cross_entropy").result()
                trainer.optim_step(types.AdamParams(learning_rate=1e-3)).result()
                sys.stdout.write("step\n")
                sys.stdout.flush()
                time.sleep(0.1)
    except CookhouseError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")

"""Train and sample with nothing but the `tinker` SDK, against `cookhouse serve` or any other service.

    cookhouse serve                              # in one terminal; prints the two lines below
    export TINKER_BASE_URL=http://127.0.0.1:...  # in another
    export TINKER_API_KEY=tml-...
    python examples/plain_tinker.py

The address and the key are all that changes between services (and `BASE_MODEL`, the name of a model it has). The
script teaches the model to count in steps of three, says the loss of each step, and lets it go on from where the
training data stopped. It works with token ids, so that it needs no tokenizer.
"""

import os

import tinker
from tinker import types

BASE_MODEL = os.environ.get("BASE_MODEL", "cookhouse/tiny")
SEQUENCE = list(range(10, 40, 3))
NUM_STEPS = 60


def main() -> None:
    with tinker.ServiceClient() as service:
        trainer = service.create_lora_training_client(base_model=BASE_MODEL, rank=8, seed=0).result()
        # Position t predicts the token after it, so the targets are the inputs shifted by one.
        datum = types.Datum(
            model_input=types.ModelInput.from_ints(SEQUENCE[:-1]),
            loss_fn_inputs={
                "target_tokens": types.TensorData(data=SEQUENCE[1:], dtype="int64"),
                "weights": types.TensorData(data=[1.0 / len(SEQUENCE[1:])] * len(SEQUENCE[1:]), dtype="float32"),
            },
        )
        passes = []
        for _ in range(NUM_STEPS):  # all submitted before the first result is read
            passes.append(trainer.forward_backward([datum], "cross_entropy"))
            trainer.optim_step(types.AdamParams(learning_rate=2e-3, eps=1e-8))
        losses = [one.result().metrics["loss:sum"] for one in passes]
        for number, loss in enumerate(losses):
            print(f"step {number:2d}  loss {loss:.4f}")

        sampler = trainer.save_weights_and_get_sampling_client().result()
        params = types.SamplingParams(max_tokens=len(SEQUENCE) - 3, temperature=0.0, stop=[])
        sampled = sampler.sample(types.ModelInput.from_ints(SEQUENCE[:3]), 1, params).result().sequences[0]
        print(f"after {SEQUENCE[:3]} the model says {list(sampled.tokens)}")
        print(f"the training data says    {SEQUENCE[3:]}")


if __name__ == "__main__":
    main()

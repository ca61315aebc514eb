"""A training loop of one's own over the `tinker` SDK that saves as it goes, and goes on where it was stopped.

    cookhouse serve                              # in one terminal; prints the two lines below
    export TINKER_BASE_URL=http://127.0.0.1:...  # in another
    export TINKER_API_KEY=tml-...
    python examples/own_loop.py counting 20
    python examples/own_loop.py counting 40      # trains steps 20 to 39

The folder gets a line in checkpoints.jsonl for each checkpoint, as the folder of every run, so that it names weights.
"""

import sys

import tinker
from tinker import types

from cookhouse import get_last_checkpoint, save_checkpoint

BASE_MODEL = "cookhouse/tiny"
SEQUENCE = list(range(10, 40, 3))
SAVE_EVERY = 10


def main(folder: str, num_steps: int) -> list[float]:
    """Train up to `num_steps` steps in all, and return the loss of each that was trained."""
    datum = types.Datum(
        model_input=types.ModelInput.from_ints(SEQUENCE[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData(data=SEQUENCE[1:], dtype="int64"),
            "weights": types.TensorData(data=[1.0] * len(SEQUENCE[1:]), dtype="float32"),
        },
    )
    with tinker.ServiceClient() as service:
        last = get_last_checkpoint(folder)
        if last is None:
            trainer = service.create_lora_training_client(base_model=BASE_MODEL, rank=8, seed=0).result()
            losses = []
        else:
            assert last.state_path is not None
            trainer = service.create_training_client_from_state_with_optimizer(last.state_path).result()
            losses = last.loop_state["losses"]
        for step in range(len(losses), num_steps):
            loss = trainer.forward_backward([datum], "cross_entropy")
            trainer.optim_step(types.AdamParams(learning_rate=2e-3, beta1=0.9, beta2=0.95, eps=1e-8)).result()
            losses.append(loss.result().metrics["loss:sum"])
            print(f"step {step}: loss {losses[-1]:.4f}")
            if (step + 1) % SAVE_EVERY == 0:
                save_checkpoint(trainer, f"{step + 1:06d}", folder, {"step": step + 1, "losses": losses}, kind="both")
    return losses


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

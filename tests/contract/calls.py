"""Calls of the SDK that the tests share."""

import tinker
from tinker import types

BASE_MODEL = "cookhouse/tiny"
PROMPT = types.ModelInput.from_ints([3, 17, 4, 9])


def new_trainer(client: tinker.ServiceClient, seed: int = 1) -> tinker.TrainingClient:
    return client.create_lora_training_client(base_model=BASE_MODEL, rank=8, seed=seed).result()


def datum(tokens: list[int], weights: list[float] | None = None) -> types.Datum:
    """Predict each token from those before it."""
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData(data=tokens[1:], dtype="int64"),
            "weights": types.TensorData(data=weights or [1.0] * (len(tokens) - 1), dtype="float32"),
        },
    )


DATA = [datum([3, 17, 4, 9, 22, 11]), datum([5, 6, 7, 8]), datum([30, 2, 30, 2, 30])]
ADAM = types.AdamParams(learning_rate=1e-2, eps=1e-8)


def train(trainer: tinker.TrainingClient, num_steps: int, data: list[types.Datum] = DATA) -> list[float]:
    """Losses of steps that are all submitted before the first is read."""
    passes = []
    for _ in range(num_steps):
        passes.append(trainer.forward_backward(data, "cross_entropy"))
        trainer.optim_step(ADAM)
    return [one.result().metrics["loss:sum"] for one in passes]


def greedy(num_tokens: int, **options: object) -> types.SamplingParams:
    return types.SamplingParams.model_validate({"max_tokens": num_tokens, "temperature": 0.0, "stop": [], **options})


def gradient_norm(trainer: tinker.TrainingClient) -> float:
    """Of the gradient summed so far, which a step of rate 0 clears."""
    metrics = trainer.optim_step(types.AdamParams(learning_rate=0.0)).result().metrics
    assert metrics is not None
    return metrics["grad_norm"]

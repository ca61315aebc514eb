"""One tenant's program: the published SDK and a fixed loop, which knows nothing of kills and catches no error.

`python -m tests.kills.client LOOP FOLDER`, with TINKER_BASE_URL and TINKER_API_KEY. It prints a line for each answer,
and leaves in FOLDER its model's id and all that it was told. T positions.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tinker
from tinker import types

NUM_STEPS = {"supervised": 40, "rl": 16}
TOLD = "told.json"
_ADAM = types.AdamParams(learning_rate=3e-3, eps=1e-8)
_NUM_PROMPTS, _GROUP_SIZE, _MAX_TOKENS = 4, 2, 24
_VOCAB = 500


class Told:
    """What the service answered, in the order in which it was asked."""

    def __init__(self) -> None:
        self.numbers: list[Any] = []

    def add(self, *numbers: Any) -> None:
        self.numbers.append(numbers)
        sys.stdout.write("answered\n")
        sys.stdout.flush()


def supervised(trainer: tinker.TrainingClient, told: Told, num_steps: int) -> None:
    """Two passes a step, the next step sent before this one is answered; two saves on the way."""
    chance = np.random.default_rng(11)
    before: Callable[[], None] | None = None
    for step in range(num_steps):
        passes = [trainer.forward_backward(_batch(chance), "cross_entropy") for _ in range(2)]
        stepped = trainer.optim_step(_ADAM)
        saved = trainer.save_state("middle") if step == num_steps // 3 else None
        if step == num_steps // 2:
            # The SDK gives it its place among the requests in a thread of its own, a moment after this call.
            trainer.save_weights_for_sampler("named").result()

        def answers(passes: Any = passes, stepped: Any = stepped, saved: Any = saved) -> None:
            for each in passes:
                output = each.result()
                told.add(_loss(output), *(_logprobs(output)))
            told.add(_norm(stepped.result()))
            if saved is not None:
                told.add(saved.result().path.split("/", 3)[-1])

        if before is not None:
            before()
        before = answers
    assert before is not None
    before()


def rl(trainer: tinker.TrainingClient, told: Told, num_steps: int) -> None:
    """New weights for every step, answers drawn from named seeds, and a step on what was drawn."""
    chance = np.random.default_rng(12)
    for _ in range(num_steps):
        sampler = trainer.save_weights_and_get_sampling_client().result()
        prompts = [chance.integers(1, _VOCAB, 6).tolist() for _ in range(_NUM_PROMPTS)]
        seeds = chance.integers(0, 2**31, _NUM_PROMPTS).tolist()
        drawing = [
            sampler.sample(
                types.ModelInput.from_ints(prompt),
                _GROUP_SIZE,
                types.SamplingParams(max_tokens=_MAX_TOKENS, temperature=1.0, seed=seed, stop=[]),
            )
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        data = []
        for prompt, drawn in zip(prompts, drawing, strict=True):
            sequences = drawn.result().sequences
            told.add([list(one.tokens) for one in sequences], [list(one.logprobs or []) for one in sequences])
            rewards = [float(np.mean(np.array(one.tokens) % 2)) for one in sequences]
            data += [
                _judged(prompt, one, reward - float(np.mean(rewards)))
                for one, reward in zip(sequences, rewards, strict=True)
            ]
        passed = trainer.forward_backward(data, "importance_sampling")
        stepped = trainer.optim_step(_ADAM)
        output = passed.result()
        told.add(_loss(output), *_logprobs(output))
        told.add(_norm(stepped.result()))


LOOPS: Mapping[str, Callable[[tinker.TrainingClient, Told, int], None]] = {"supervised": supervised, "rl": rl}


def _batch(chance: np.random.Generator) -> list[types.Datum]:
    data = []
    for length in (9, 17, 30):
        tokens_T = chance.integers(1, _VOCAB, length)
        inputs = {
            "target_tokens": types.TensorData.from_numpy(tokens_T[1:]),
            "weights": types.TensorData.from_numpy(np.ones(length - 1, np.float32)),
        }
        data.append(types.Datum(model_input=types.ModelInput.from_ints(tokens_T[:-1].tolist()), loss_fn_inputs=inputs))
    return data


def _judged(prompt: list[int], drawn: types.SampledSequence, advantage: float) -> types.Datum:
    """An answer behind its prompt, whose own tokens have no advantage."""
    tokens = [*prompt, *drawn.tokens]
    num_given = len(prompt) - 1
    given_T = np.zeros(num_given, np.float32)
    logprobs_T = np.concatenate([given_T, np.array(drawn.logprobs, np.float32)])
    advantages_T = np.concatenate([given_T, np.full(len(drawn.tokens), advantage, np.float32)])
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(np.array(tokens[1:])),
            "logprobs": types.TensorData.from_numpy(logprobs_T),
            "advantages": types.TensorData.from_numpy(advantages_T),
        },
    )


def _loss(output: types.ForwardBackwardOutput) -> float:
    return output.metrics["loss:sum"]


def _logprobs(output: types.ForwardBackwardOutput) -> list[list[float]]:
    return [each["logprobs"].to_numpy().tolist() for each in output.loss_fn_outputs]


def _norm(output: types.OptimStepResponse) -> float:
    assert output.metrics is not None
    return output.metrics["grad_norm"]


def main(loop: str, folder: Path) -> None:
    told = Told()
    service = tinker.ServiceClient()
    trainer = service.create_lora_training_client("cookhouse/tiny", rank=8, seed=3).result()
    LOOPS[loop](trainer, told, NUM_STEPS[loop])
    for saving in (trainer.save_state("final"), trainer.save_weights_for_sampler("final")):
        told.add(saving.result().path.split("/", 3)[-1])
    (folder / TOLD).write_text(json.dumps({"model_id": str(trainer.model_id), "numbers": told.numbers}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
    os._exit(0)  # threads of the SDK's HTTP library abort now and then while an interpreter ends

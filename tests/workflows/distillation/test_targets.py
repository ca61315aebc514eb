"""A teacher's most likely tokens as targets: cross-entropy of them is the forward divergence, to the gradient."""

from typing import Any

import numpy as np
import pytest
import tinker
import torch

from cookhouse.data import shifted_datum
from cookhouse.errors import ServiceError
from cookhouse.training import Work
from cookhouse.weights.checkpoints import Cursor
from cookhouse.workflows.distillation.answers import FORWARD_KL, TeacherTargets, taught_objective

pytestmark = pytest.mark.anyio

NUM_POSITIONS, NUM_WORDS, K = 5, 11, 4
TEACHER = torch.log_softmax(torch.tensor(np.random.default_rng(0).normal(size=(NUM_POSITIONS, NUM_WORDS))), -1)


class Ranks:
    """Knows the teacher's distribution at every position behind the first."""

    def __init__(self, count: int = K) -> None:
        self.count = count

    async def sample(self, prompt: tinker.ModelInput, *_: Any, **asked: Any) -> tinker.SampleResponse:
        assert asked == {"include_prompt_logprobs": True, "topk_prompt_logprobs": K}
        assert prompt.length == NUM_POSITIONS + 1
        top = torch.topk(TEACHER, self.count)
        ranked = [
            list(zip(tokens.tolist(), logprobs.tolist(), strict=True))
            for tokens, logprobs in zip(top.indices, top.values, strict=True)
        ]
        return tinker.SampleResponse(sequences=[], _topk_prompt_logprobs_list=[None, *ranked])


def datum() -> tinker.Datum:
    weights = np.array([0, 0, 0, 1, 1, 1], dtype=np.float32)  # a prompt of three, an answer of three
    return shifted_datum(np.array([1, 2, 3, 4, 5, 6]), weights, "none")


async def test_the_loss_and_its_gradient_are_those_of_the_forward_divergence() -> None:
    # Catches probabilities that are not made to sum to 1, positions off by one, and targets in the prompt.
    [soft] = await TeacherTargets(Ranks(), "t", K)([datum()])
    targets, weights = (torch.tensor(soft.loss_fn_inputs[name].to_numpy()) for name in ("target_tokens", "weights"))
    assert targets.shape == weights.shape == (NUM_POSITIONS, K)
    student = torch.tensor(np.random.default_rng(1).normal(size=(NUM_POSITIONS, NUM_WORDS)), requires_grad=True)
    logprobs = torch.log_softmax(student, -1)
    found = logprobs.gather(1, targets)
    [gradient] = torch.autograd.grad(-(weights.double() * found).sum(), student, retain_graph=True)

    divergence = torch.zeros((), dtype=torch.float64)
    for position in (2, 3, 4):  # those that predict the answer
        top = torch.topk(TEACHER[position], K)
        p = torch.softmax(top.values, -1)
        divergence = divergence + (p * (p.log() - logprobs[position, top.indices])).sum()
    [expected] = torch.autograd.grad(divergence, student)
    assert torch.allclose(gradient, expected, atol=1e-7)

    work = Work(cursor=Cursor(), data_D=[soft], payload=None)
    output = tinker.ForwardBackwardOutput(
        loss_fn_output_type="ArrayRecord",
        loss_fn_outputs=[{"logprobs": tinker.TensorData.from_numpy(found.detach().numpy().astype(np.float32))}],
        metrics={},
    )
    metrics = taught_objective(has_teacher_logprobs=False).metrics([(work, output)])
    assert metrics[FORWARD_KL] == pytest.approx(float(divergence.detach()) / 3, abs=1e-6)
    assert metrics["train/num_trained_tokens"] == 3


async def test_fewer_tokens_than_asked_for_are_taken_as_they_are() -> None:
    [soft] = await TeacherTargets(Ranks(2), "t", K)([datum()])
    weights = soft.loss_fn_inputs["weights"].to_numpy()
    assert (weights[:, 2:] == 0).all()
    assert weights.sum(-1).tolist() == pytest.approx([0, 0, 1, 1, 1])


async def test_a_teacher_without_most_likely_tokens_is_refused() -> None:
    class Mute:
        async def sample(self, *_: Any, **__: Any) -> tinker.SampleResponse:
            return tinker.SampleResponse(sequences=[])

    with pytest.raises(ServiceError, match="the teacher mute gave no most likely tokens of a prompt"):
        await TeacherTargets(Mute(), "mute", K)([datum()])

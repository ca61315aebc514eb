"""What a step's answers say of it, and a look back at the weights after it: at each token of the step, once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tinker

from cookhouse.algorithms.rollouts.assembler import RolloutPayload
from cookhouse.algorithms.rollouts.objective import policy_metrics, post_step_divergence
from cookhouse.settings import LossSettings
from cookhouse.training import FakeService, FakeTrainingClient, Work
from cookhouse.weights.checkpoints import Cursor

pytestmark = pytest.mark.anyio


def datum(first: int, mask: Sequence[float], q: Sequence[float]) -> tinker.Datum:
    length = len(mask)
    inputs: dict[str, Any] = {
        "target_tokens": np.arange(first + 1, first + 1 + length),
        "logprobs": np.array(q, dtype=np.float32),
        "advantages": np.array(mask, dtype=np.float32),
        "mask": np.array(mask, dtype=np.float32),
    }
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(list(range(first, first + length))),
        loss_fn_inputs={name: tinker.TensorData.from_numpy(values) for name, values in inputs.items()},
    )


def work(*data: tinker.Datum) -> Work[None]:
    return Work(cursor=Cursor(), data_D=data, payload=None)


async def test_what_is_trained_on_several_times_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches passes over the same datums whose tokens count once for each, in the figures and in what is computed.
    asked: list[list[int]] = []
    forward = FakeTrainingClient.forward

    def spy(client: FakeTrainingClient, data: list[tinker.Datum], loss_fn: Any) -> Any:
        asked.append([each.model_input.to_ints()[0] for each in data])
        return forward(client, data, loss_fn)

    monkeypatch.setattr(FakeTrainingClient, "forward", spy)
    client = await FakeService().create_lora_training_client("fake", seed=3)
    one, other = datum(1, [0, 1], [0, -1.0]), datum(50, [1, 1, 1], [-2.0, -3.0, -4.0])
    once = await post_step_divergence(client, [work(one, other)])
    # Two passes over the first datum; the other one is in the last pass alone.
    again = await post_step_divergence(client, [work(one), work(one, other)])
    assert asked == [[1, 50], [1, 50]]
    assert once == again
    assert set(once) == {"optim/kl_sample_train_v1_post", "optim/kl_sample_train_v2_post"}
    twins = [datum(1, [0, 1], [0, -1.0]), datum(1, [0, 1], [0, -5.0])]
    await post_step_divergence(client, [work(*twins)])
    assert asked[-1] == [1, 1], "two rollouts that read alike are two"


def answer(loss: float, *logprobs_D: Sequence[float]) -> tinker.ForwardBackwardOutput:
    fields = [
        {"logprobs": tinker.TensorData.from_numpy(np.array(logprobs, dtype=np.float32))} for logprobs in logprobs_D
    ]
    metrics = {"loss:sum": loss}
    return tinker.ForwardBackwardOutput(loss_fn_output_type="", loss_fn_outputs=fields, metrics=metrics)


ONE, OTHER = datum(1, [0, 1, 1], [0, -1.0, -2.0]), datum(50, [1, 1, 1], [-2.0, -3.0, -4.0])


def test_the_sampler_is_compared_with_the_first_weights_and_these_with_the_last() -> None:
    """Catches the policy's own movement over several epochs in the figure of the sampler."""
    works = [work(ONE), work(OTHER)]
    first = [answer(-1.0, [0, -1.0, -2.5]), answer(-2.0, [-2.0, -3.0, -4.0])]
    later = [answer(-1.0, [0, -0.5, -2.0]), answer(-2.0, [-1.0, -3.0, -4.0])]
    last = [answer(-1.0, [0, -0.25, -2.0]), answer(-2.0, [-1.0, -2.0, -4.0])]
    once = policy_metrics(LossSettings(), [*zip(works, first, strict=True)])
    again = policy_metrics(LossSettings(), [*zip(works * 3, [*first, *later, *last], strict=True)])
    for metrics in (once, again):
        assert metrics["optim/kl_sample_train_v1"] == pytest.approx(0.5 / 5)
        assert metrics["optim/kl_sample_train_v2"] == pytest.approx(0.5 * 0.25 / 5)
    assert "optim/kl_ppo_epochs_v1" not in once
    assert again["optim/kl_ppo_epochs_v1"] == pytest.approx((-0.75 - 0.5 - 1.0 - 1.0) / 5)
    assert again["optim/kl_ppo_epochs_v2"] == pytest.approx(0.5 * (0.75**2 + 0.5**2 + 1 + 1) / 5)


@pytest.mark.parametrize(("reduction", "denominator"), [("none", 10), ("mean", 4), ("token_mean", 2)])
def test_the_loss_is_a_sum_and_a_mean(reduction: Any, denominator: int) -> None:
    """Catches a mean that grows with the epochs, or is divided twice; five tokens in two datums, trained on twice."""
    halves = [Work(cursor=Cursor(), data_D=[ONE], payload=None, closes_update=False), work(OTHER)]
    answers = [answer(-1.0, [0, -1.0, -2.0]), answer(-2.0, [-2.0, -3.0, -4.0])]
    parts = [*zip(halves * 2, answers * 2, strict=True)]
    metrics = policy_metrics(LossSettings(), parts, reduction=reduction)
    assert metrics["optim/loss"] == -6.0
    assert metrics["optim/policy_loss"] == pytest.approx(-6.0 / denominator)
    assert metrics["train/num_trained_tokens"] == 10
    assert "optim/policy_loss" not in policy_metrics(LossSettings(), [])


def test_a_mean_is_over_rollouts() -> None:
    """Catches a loss that shrinks as a rollout forks."""
    payload = RolloutPayload(num_datums_P=[2], num_datums_P_G=[[2]])
    forked = Work(cursor=Cursor(), data_D=[ONE, OTHER], payload=payload)
    answers = answer(-6.0, [0, -1.0, -2.0], [-2.0, -3.0, -4.0])
    assert policy_metrics(LossSettings(), [(forked, answers)], reduction="mean")["optim/policy_loss"] == -6.0

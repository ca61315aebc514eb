"""A look back at the weights after a step: at each token that the step was trained on, once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tinker

from cookhouse.training import FakeService, FakeTrainingClient, Work
from cookhouse.weights.checkpoints import Cursor
from cookhouse.workflows.reinforcement.objective import post_step_divergence

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

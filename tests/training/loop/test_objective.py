"""What a step asks for and reports: the service's likelihood, and a loss of the user's own that computes the same."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tinker
import torch

from cookhouse.telemetry import read_metrics
from cookhouse.training import CROSS_ENTROPY, CustomLoss, FakeService, Work, supervised_objective
from cookhouse.weights.checkpoints import Cursor


def test_loss_is_the_weighted_mean_over_the_whole_batch(datum: Callable[[Sequence[int]], tinker.Datum]) -> None:
    # Catches a mean of means: the two datums have 1 and 3 trained tokens.
    work = Work(cursor=Cursor(), payload=None, data_D=[datum([1, 2]), datum([3, 4, 5, 6])])
    logprobs_D = [[-9.0, -1.0], [-9.0, -2.0, -3.0, -6.0]]
    output = tinker.ForwardBackwardOutput(
        loss_fn_output_type="ArrayRecord",
        loss_fn_outputs=[
            {"logprobs": tinker.TensorData.from_numpy(np.array(lp, dtype=np.float32))} for lp in logprobs_D
        ],
    )
    metrics = CROSS_ENTROPY.metrics([(work, output)])
    assert metrics == {"train/loss": 12.0 / 4, "train/num_tokens": 6, "train/num_trained_tokens": 4}


def test_missing_output_is_not_averaged_over(datum: Callable[[Sequence[int]], tinker.Datum]) -> None:
    work = Work(cursor=Cursor(), payload=None, data_D=[datum([1, 2]), datum([3, 4])])
    output = tinker.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", loss_fn_outputs=[])
    with pytest.raises(ValueError, match="zip"):
        CROSS_ENTROPY.metrics([(work, output)])


def negative_log_likelihood(
    data: list[tinker.Datum], logprobs_D_T: list[torch.Tensor]
) -> tuple[torch.Tensor, dict[str, float]]:
    weighted = [
        (torch.tensor(datum.loss_fn_inputs["weights"].to_numpy()) * logprobs_T).sum()
        for datum, logprobs_T in zip(data, logprobs_D_T, strict=True)
    ]
    loss = -torch.stack(weighted).sum()
    return loss, {"nll_sum": float(loss.detach()), "num_datums": float(len(data))}


@pytest.mark.anyio
async def test_a_loss_of_the_users_own_trains_as_the_services_does(new_kit: Any) -> None:
    # Catches a gradient of the wrong sign or scale, and one that is not kept until the optimizer step.
    found = {}
    for name, loss_fn in (("service", "cross_entropy"), ("own", f"{__file__}:negative_log_likelihood")):
        kit = new_kit(name)
        await (await kit.loop(FakeService(), objective=supervised_objective(loss_fn))).run()
        kit.telemetry.close()
        found[name] = read_metrics(kit.folder / "metrics.jsonl")
    columns = ("train/loss", "optim/grad_norm", "train/num_trained_tokens")
    service, own = ([[row[column] for column in columns] for row in found[name]] for name in ("service", "own"))
    assert len(own) == 6
    np.testing.assert_allclose(own, service, rtol=1e-6)  # logprobs and their gradient are float32 on the way
    # Two trained tokens of each of two datums.
    assert [row["train/nll_sum"] for row in found["own"]] == pytest.approx([4 * loss for loss, *_ in own], rel=1e-6)
    assert {row["train/num_datums"] for row in found["own"]} == {2.0}
    assert "train/nll_sum" not in found["service"][0]


@pytest.mark.anyio
async def test_the_gradient_of_a_custom_loss_is_that_of_the_loss_it_stands_for(
    datum: Callable[[Sequence[int]], tinker.Datum],
) -> None:
    work = Work(cursor=Cursor(), payload=None, data_D=[datum([1, 2]), datum([3, 4, 5, 6])])
    gradients = []
    for loss in (CROSS_ENTROPY.loss, CustomLoss(function=negative_log_likelihood)):
        client: Any = await FakeService().create_lora_training_client("fake", seed=0)
        await loss.submit(client, work)
        gradients.append(client._state.gradient)
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-6)
    assert np.count_nonzero(gradients[0]) == 4

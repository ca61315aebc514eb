"""The reference of pairs: its sums over answers, asked once, kept in a file, and made while the batch before trains."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tinker
from tests.algorithms.pairs.kit import pairs

from cookhouse.algorithms.pairs.dataset import Pair, PairDataset, interleaved
from cookhouse.algorithms.pairs.objective import pair_objective
from cookhouse.algorithms.pairs.reference import (
    NoReference,
    PairAssembler,
    PairPayload,
    ServiceReference,
    sums_by_forward,
    sums_by_sampler,
)
from cookhouse.errors import InputError, ServiceError
from cookhouse.settings import PairLossSettings
from cookhouse.telemetry import Telemetry
from cookhouse.training import BatchSource, FakeService, Work
from cookhouse.weights.checkpoints import Cursor
from cookhouse.workflows.preference.evaluation import measure_pairs

pytestmark = pytest.mark.anyio


class Counting:
    """Says that token t has a logprob of -t, and counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    async def __call__(self, sequence: tinker.ModelInput) -> Sequence[float | None]:
        tokens = sequence.to_ints()
        self.asked.append(tokens)
        return [None, *(-float(token) for token in tokens[1:])]


async def test_sums_are_over_the_tokens_of_each_answer() -> None:
    # Catches a shift by one, a prompt that is counted, and chosen and rejected in the wrong order.
    some = pairs(2)
    found = await ServiceReference(sums_by_sampler(Counting())).logprobs(some)
    expected = [[-float((each.tokens_T * each.weights_T).sum()) for each in pair.examples] for pair in some]
    np.testing.assert_array_equal(found, expected)


async def test_a_trainer_and_a_sampler_of_the_same_weights_say_the_same() -> None:
    # Catches logprobs of inputs in the place of targets, and answers given back in another order.
    service, some = FakeService(), pairs(3)
    client = await service.create_lora_training_client("any", seed=1)
    own = await client.save_weights_and_get_sampling_client()
    one = await ServiceReference(sums_by_forward(client)).logprobs(some)
    np.testing.assert_array_equal(one, await ServiceReference(sums_by_sampler(own.compute_logprobs)).logprobs(some))
    assert [call.kind for call in service.calls].count("forward") == 2  # submitted and finished


async def test_an_answer_is_asked_for_once_also_by_a_resumed_run(tmp_path: Path) -> None:
    some, cache, first, later = pairs(3), tmp_path / "reference.jsonl", Counting(), Counting()
    reference = ServiceReference(sums_by_sampler(first), cache)
    found = await reference.logprobs(some[:2])
    await reference.logprobs(some[:2])
    assert len(first.asked) == 4
    resumed = ServiceReference(sums_by_sampler(later), cache)
    np.testing.assert_array_equal(await resumed.logprobs(some[:2]), found)
    assert later.asked == []
    await resumed.logprobs(some)
    assert len(later.asked) == 2


async def test_the_same_tokens_with_other_weights_are_another_answer() -> None:
    # Catches a sum over an answer that is handed out for the same tokens with more of them trained.
    [pair] = pairs(1)
    chosen, rejected = (replace(each, weights_T=np.ones_like(each.weights_T)) for each in pair.examples)
    whole = Pair(chosen=chosen, rejected=rejected)
    reference = ServiceReference(sums_by_sampler(Counting()))
    answers = await reference.logprobs([pair])
    everything = await reference.logprobs([whole])
    expected = [[-float(each.tokens_T[1:].sum()) for each in pair.examples]]
    np.testing.assert_array_equal(everything, expected)
    assert (everything < answers).all()


async def test_a_torn_line_is_computed_again_and_a_foreign_one_refused(tmp_path: Path) -> None:
    cache = tmp_path / "reference.jsonl"
    await ServiceReference(sums_by_sampler(Counting()), cache).logprobs(pairs(1))
    whole = cache.read_text()
    cache.write_text(whole[:-20])
    counting = Counting()
    await ServiceReference(sums_by_sampler(counting), cache).logprobs(pairs(1))
    assert len(counting.asked) == 2
    assert cache.read_text() == whole
    cache.write_text("[1]\n")
    with pytest.raises(InputError, match=r"line 1, holds no logprobs"):
        ServiceReference(sums_by_sampler(counting), cache)


async def test_a_model_that_gives_no_logprobs_is_refused() -> None:
    async def silent(sequence: tinker.ModelInput) -> Sequence[float | None]:
        return [None] * sequence.length

    with pytest.raises(ServiceError, match=r"gave no logprob for some token of pairs\.jsonl:1"):
        await ServiceReference(sums_by_sampler(silent)).logprobs(pairs(1))


async def test_the_reference_of_the_next_batch_is_computed_while_a_batch_is_trained_on() -> None:
    counting = Counting()
    dataset = PairDataset(pairs(6), batch_size=2)
    assemble = PairAssembler(ServiceReference(sums_by_sampler(counting)), Telemetry([]))
    source: BatchSource[list, PairPayload] = BatchSource(  # type: ignore[type-arg]
        dataset, assemble, total_steps=3, steps_per_epoch=3
    )
    first = await source.next_work()
    assert first is not None
    for _ in range(200):
        if len(counting.asked) == 8:
            break
        await asyncio.sleep(0.01)
    assert len(counting.asked) == 8  # of two batches, and nobody has asked for the second
    second = await source.next_work()
    assert second is not None
    assert second.payload.reference_P2.shape == (2, 2)
    await source.aclose()


async def test_metrics_are_those_of_the_pairs_and_measuring_leaves_no_gradient() -> None:
    service, some, settings = FakeService(), pairs(3), PairLossSettings()
    client = await service.create_lora_training_client("any", seed=1)
    reference = ServiceReference(
        sums_by_sampler((await service.create_sampling_client(base_model="any")).compute_logprobs)
    )
    measured = await measure_pairs(client, some, reference, settings)()
    assert not client._state.gradient.any()
    objective = pair_objective(settings)
    payload = PairPayload(reference_P2=await reference.logprobs(some))
    work = Work(cursor=Cursor(), data_D=interleaved(some), payload=payload)
    output = await objective.loss.submit(client, work)
    trained = objective.metrics([(work, output)])
    assert {f"train/{name}" for name in measured} < trained.keys()
    assert [trained[f"train/{name}"] for name in measured] == pytest.approx(list(measured.values()), abs=1e-6)
    assert measured["margin"] == pytest.approx(measured["chosen_reward"] - measured["rejected_reward"])
    assert measured["chosen_tokens"] == np.mean([pair.chosen.num_trained_tokens for pair in some])
    assert trained["train/num_tokens"] == sum(pair.num_tokens - 2 for pair in some)


async def test_equal_rewards_are_half_right() -> None:
    service, some = FakeService(), pairs(4)
    client = await service.create_lora_training_client("any", seed=1)
    own = await client.save_weights_and_get_sampling_client()
    found = await measure_pairs(
        client, some, ServiceReference(sums_by_sampler(own.compute_logprobs)), PairLossSettings()
    )()
    assert (found["accuracy"], found["margin"]) == (0.5, 0.0)
    assert found["dpo_loss"] == pytest.approx(np.log(2))


async def test_datums_that_are_no_pairs_are_refused() -> None:
    service, some = FakeService(), pairs(2)
    client = await service.create_lora_training_client("any", seed=1)
    payload = PairPayload(reference_P2=await NoReference().logprobs(some))
    work = Work(cursor=Cursor(), data_D=interleaved(some)[:3], payload=payload)
    with pytest.raises(InputError, match="3 datums"):
        await pair_objective(PairLossSettings()).loss.submit(client, work)

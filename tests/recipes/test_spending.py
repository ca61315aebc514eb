"""What a run is to spend, what it has, and a run that ends when it has spent what it may."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tinker
from tests.recipes.events import Events

from cookhouse.adapters import Adapters
from cookhouse.errors import InputError, ServiceError
from cookhouse.recipes import dry_run, run_async
from cookhouse.recipes.supervised import SupervisedConfig
from cookhouse.runs import read_history
from cookhouse.settings.spending import prices_in
from cookhouse.telemetry import events, read_metrics
from cookhouse.training import FakeService

pytestmark = pytest.mark.anyio

MakeConfig = Callable[..., SupervisedConfig]
TRAINING_ALONE = {"num_eval": 0, "num_samples": 0, "save_every": 0}


class HostedFake(FakeService):
    """One that does not tell what it has counted."""

    is_hosted = True

    async def connect(self) -> "HostedFake":
        return self


def adapters(service: FakeService, *sinks: Any) -> Adapters:
    return Adapters(service=service.connect, sinks=list(sinks))


def trained(folder: Path) -> int:
    return int(sum(row.get("train/num_tokens", 0) for row in read_metrics(folder / "metrics.jsonl")))


@pytest.mark.parametrize("settings", [{}, {"max_steps": 2}, {"n_batches": 2}, {"max_steps": 4, "batch_size": 5}])
async def test_tokens_of_conversations_are_known_before_exactly(
    make_config: MakeConfig, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Catches tokens of other batches than those that are trained on, and of targets in the place of positions."""
    config, told = make_config(**TRAINING_ALONE, price_per_million="2", **settings), Events()
    plan = await in_thread(config)
    result = await run_async("supervised", config, adapters=adapters(HostedFake(), told))
    assert result.summary.usage == {"trained_tokens": trained(tmp_path / "run")}
    assert plan["usage"] == f"{trained(tmp_path / 'run'):,} tokens trained; on top: evaluations"
    cost = f"{trained(tmp_path / 'run') * 2 / 1e6:,.6g}, by train 2, sample 2, prefill 2 per million"
    assert (plan["cost"], result.summary.cost) == (f"{cost}; on top: evaluations", cost)
    notes = [event.text["text"] for event in told.all if event.name == events.DATA_NOTE]
    assert f"usage: {plan['usage']}" in notes


async def in_thread(config: Any, recipe: str = "supervised") -> dict[str, str]:
    import asyncio

    plan = await asyncio.to_thread(dry_run, recipe, config, adapters=Adapters(service=FakeService().connect))
    return dict(plan.facts)


async def test_of_rollouts_the_most_is_known(tmp_path: Path) -> None:
    rows = [{"question": f"Compute {n} + 1.", "answer": str(n + 1)} for n in range(8)]
    (tmp_path / "rl.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"dataset_path": str(tmp_path / "rl.jsonl"), "test_path": str(tmp_path / "rl.jsonl"), "num_eval": 0}
    config = {**data, "batch_size": 2, "group_size": 3, "max_steps": 4, "max_tokens": 10}
    facts = await in_thread(
        {**config, "log_path": str(tmp_path / "run"), "price_per_million": "sample:1e6"}, "rl_basic"
    )
    said = "at most 240 tokens sampled (4 steps × 2 groups × 3 rollouts × 10 tokens"
    assert facts["usage"].startswith(said)
    on_top = "on top: prompts, and training on these with what was sampled; evaluations"
    assert facts["cost"] == f"at most 240, by sample 1e+06 per million; {on_top}"


async def test_evaluations_are_counted_by_what_is_sent_and_sampled(make_config: MakeConfig) -> None:
    """Catches samples that are not counted, and prompts that are counted once for each sample."""
    result = await run_async("supervised", make_config(), adapters=adapters(HostedFake()))
    usage = result.summary.usage
    assert usage is not None
    assert set(usage) == {"trained_tokens", "scored_tokens", "prompt_tokens", "sampled_tokens"}
    assert usage["sampled_tokens"] == 2 * 4 * 3, "before and after, four prompts, three tokens of the fake each"
    nll_tokens = result.metrics["test/nll_tokens"]
    assert usage["scored_tokens"] > 2 * nll_tokens
    assert result.summary.cost is None


async def test_other_services_are_not_counted_for(make_config: MakeConfig) -> None:
    result = await run_async("supervised", make_config(), adapters=adapters(FakeService()))
    assert result.summary.usage is None


async def test_a_cap_ends_the_run_at_a_step_and_holds_over_a_resume(make_config: MakeConfig, tmp_path: Path) -> None:
    """Catches a cap of each launch alone, and one that only a sum after the last step notices."""
    service, settings = FakeService(), {**TRAINING_ALONE, "max_tokens_total": 100}
    result = await run_async("supervised", make_config(**settings), adapters=adapters(service))
    summary, used = result.summary, trained(tmp_path / "run")
    assert summary.is_interrupted
    assert 2 <= summary.num_steps < summary.total_steps
    assert summary.stopped is not None
    assert summary.stopped.startswith("max_tokens_total=100 is reached: ")
    assert summary.usage == {"trained_tokens": used}
    assert summary.state_path in service.states
    assert summary.next_command.endswith("behavior_if_log_dir_exists=resume max_tokens_total=200"), (
        "as many are refused"
    )

    resumed = {**settings, "behavior_if_log_dir_exists": "resume"}
    again = FakeService(states=service.states)
    with pytest.raises(InputError, match=f"has used {used} tokens, and max_tokens_total=100 are allowed; set more"):
        await run_async("supervised", make_config(**resumed), adapters=adapters(again))
    assert again.calls == []
    assert read_history(tmp_path / "run").status == "interrupted", "what is refused changes nothing"
    more = {**resumed, "max_tokens_total": used + 1}
    one = await run_async("supervised", make_config(**more), adapters=adapters(FakeService(states=service.states)))
    assert one.summary.is_interrupted, "what earlier launches used counts"
    assert summary.num_steps < one.summary.num_steps <= summary.num_steps + 2, "a step, and one that was in flight"


async def test_a_run_that_breaks_has_left_its_counts(make_config: MakeConfig, tmp_path: Path) -> None:
    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("forward_backward", 2):
            raise tinker.RequestFailedError("gone", "r", tinker.types.RequestErrorCategory.Server)

    with pytest.raises(ServiceError, match="gone"):
        await run_async("supervised", make_config(**TRAINING_ALONE), adapters=adapters(HostedFake(gate=gate)))
    usage = read_history(tmp_path / "run").usage
    assert usage is not None
    assert usage["trained_tokens"] >= trained(tmp_path / "run") > 0


@pytest.mark.parametrize(
    ("text", "prices"),
    [
        ("1.5", {"train": 1.5, "sample": 1.5, "prefill": 1.5}),
        ("train:1.2, sample:0", {"train": 1.2, "sample": 0.0}),
    ],
)
def test_prices_are_read(text: str, prices: dict[str, float]) -> None:
    assert prices_in(text) == prices


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("cheap", "'cheap' is no price; write a number from 0 on"),
        ("-1", "'-1' is no price"),
        ("nan", "'nan' is no price"),
        ("train:", "'' is no price"),
        ("tarin:1", "'tarin' is no kind of tokens; write one number, or some of train:1.2"),
        ("train:1,train:2", "'train' is there twice"),
    ],
)
def test_a_wrong_price_is_refused_with_the_way_out(text: str, error: str, make_config: MakeConfig) -> None:
    with pytest.raises(InputError, match=error):
        make_config(price_per_million=text)


async def test_tokens_without_a_price_are_said(make_config: MakeConfig) -> None:
    config = make_config(price_per_million="train:1")
    result = await run_async("supervised", config, adapters=adapters(HostedFake()))
    assert result.summary.cost is not None
    assert "; tokens without a price: 24 of sample, " in result.summary.cost

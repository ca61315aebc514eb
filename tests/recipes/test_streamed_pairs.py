"""Runs over pairs whose data is not all in memory: over the fake service, with small limits."""

import os
import signal
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import tinker
from tests.recipes.events import Events
from tests.recipes.pairs import MakeConfig, config_maker, some, write

from cookhouse.adapters import Adapters
from cookhouse.data.batches import stream
from cookhouse.data.sources import lines
from cookhouse.errors import BadRowsError, InputError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import dry_run, run_async
from cookhouse.recipes.dpo import Config
from cookhouse.telemetry import Event, read_metrics
from cookhouse.training import FakeService
from cookhouse.training.clients.fake import FakeTrainingClient

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("streamed")]


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is streamed, in blocks and windows of a few rows."""
    monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 0)
    monkeypatch.setattr(stream, "_WINDOW_BYTES", 900)
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 200)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the prompts of each batch that is trained on say, as they come."""
    tokenizer = get_tokenizer("cookhouse/tiny")
    batches: list[list[str]] = []
    submit = FakeTrainingClient.forward_backward_custom

    def recorded(client: FakeTrainingClient, data: list[tinker.Datum], *arguments: Any) -> Any:
        prompts = [tokenizer.decode(datum.model_input.to_ints()) for datum in data[::2]]
        batches.append([prompt.split("say ")[1].split("\n")[0] for prompt in prompts])
        return submit(client, data, *arguments)

    monkeypatch.setattr(FakeTrainingClient, "forward_backward_custom", recorded)
    return batches


@pytest.fixture
def make_config(tmp_path: Path) -> MakeConfig:
    return config_maker(tmp_path, some(0, 30), some(50, 4), num_samples=0)


async def run(config: Config, service: FakeService, *sinks: Events) -> Any:
    return await run_async("dpo", config, adapters=Adapters(service=service.connect, sinks=[*sinks]))


def trained(folder: Path) -> list[dict[str, Any]]:
    """What was trained, step by step, without times."""
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "optim/lr" in row]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


async def test_an_epoch_trains_every_pair_once_in_a_new_order_and_resumes_to_the_bit(
    make_config: MakeConfig, tmp_path: Path, asked: list[list[str]]
) -> None:
    """Catches a cursor that skips or repeats pairs, in the middle of an epoch and of a window."""
    notes: list[str] = []
    note = Events(lambda event: notes.append(event.text["text"]) if event.name == "data.note" else None)
    whole = await run(make_config(log_path=str(tmp_path / "whole")), FakeService(), note)
    first, second = asked[:8], asked[8:]
    assert [len(batch) for batch in (*first, *second)] == [4, 4, 4, 4, 4, 4, 4, 2] * 2
    assert (
        sorted(chain.from_iterable(first)) == sorted(chain.from_iterable(second)) == sorted(str(n) for n in range(30))
    )
    assert first != second
    assert notes[-1].startswith("epoch 1 had 60 examples of ")

    def press(event: Event) -> None:
        if event.name == "dpo.step" and event.step == 5:
            os.kill(os.getpid(), signal.SIGINT)

    service = FakeService()
    assert (await run(make_config(), service, Events(press))).summary.is_interrupted
    resumed = await run(make_config(behavior_if_log_dir_exists="resume"), FakeService(states=service.states))
    assert trained(resumed.summary.folder) == trained(whole.summary.folder)
    assert resumed.summary.after("test/margin") == whole.summary.after("test/margin")


async def test_what_is_held_out_is_not_trained_on(
    make_config: MakeConfig, tmp_path: Path, asked: list[list[str]]
) -> None:
    # Catches a fraction whose prompts stand elsewhere in the data, too, and a test set that overlaps.
    twice = write(tmp_path / "twice.jsonl", [*some(0, 20), *some(0, 20)])
    result = await run(make_config(dataset_path=twice, test_path=None, eval_fraction=0.3, num_epochs=1), FakeService())
    held_out = {row.prompt[0]["content"].removeprefix("say ") for row in result.state.data.test}
    assert held_out
    assert held_out.isdisjoint(chain.from_iterable(asked))
    asked.clear()
    overlapping = write(tmp_path / "overlap.jsonl", some(28, 4))
    config = make_config(test_path=overlapping, num_epochs=1, behavior_if_log_dir_exists="delete")
    await run(config, FakeService())
    assert sorted(chain.from_iterable(asked)) == sorted(str(n) for n in range(28))


async def test_all_rows_of_prompts_that_are_not_held_out_are_trained_on(
    make_config: MakeConfig, tmp_path: Path, asked: list[list[str]]
) -> None:
    # Catches rows drawn one by one, which take all the others of their prompts out of the data.
    path = write(tmp_path / "six.jsonl", [row for row in some(0, 40) for _ in range(6)])
    config = make_config(dataset_path=path, test_path=None, eval_fraction=0.1, num_epochs=1, batch_size=16)
    result = await run(config, FakeService())
    held_out = {row.prompt[0]["content"].removeprefix("say ") for row in result.state.data.test}
    assert 0 < len(held_out) < 12, "4 of 40 are expected; more than 11 are drawn once in three thousand seeds"
    trained_on = Counter(chain.from_iterable(asked))
    assert trained_on == {str(number): 6 for number in range(40) if str(number) not in held_out}


async def test_rows_that_cannot_be_used_stop_the_run_before_their_batch_or_are_counted(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    rows = [*some(100, 600), {"prompt": "q", "chosen": "same", "rejected": "same"}]
    path = write(tmp_path / "bad.jsonl", rows)
    with pytest.raises(BadRowsError, match=r"bad\.jsonl:601: chosen and rejected are the same"):
        await run(make_config(dataset_path=path, batch_size=200, num_epochs=1), FakeService())
    config = make_config(
        dataset_path=path, batch_size=200, num_epochs=1, on_bad_row="skip", log_path=str(tmp_path / "skipped")
    )
    result = await run(config, FakeService())
    found = trained(result.summary.folder)
    assert sum(row["data/num_skipped_rows"] for row in found) == 1
    assert sum(row["data/num_examples"] for row in found) == 1200


async def test_a_batch_without_a_pair_to_learn_from_has_no_loss(make_config: MakeConfig, tmp_path: Path) -> None:
    # Catches a mean over nothing, and a step that ends the run.
    path = write(tmp_path / "one.jsonl", [*some(0, 2), {"prompt": "q", "chosen": "", "rejected": "no"}])
    config = make_config(dataset_path=path, batch_size=1, num_epochs=1, on_bad_row="skip")
    result = await run(config, FakeService())
    losses = ["train/dpo_loss" in row for row in trained(result.summary.folder)]
    assert sorted(losses) == [False, True, True]


async def test_single_answers_are_not_streamed(make_config: MakeConfig, tmp_path: Path) -> None:
    rows = [{"prompt": f"say {n}", "completion": "it is", "label": n % 2 > 0} for n in range(8)]
    path = write(tmp_path / "kto.jsonl", rows)
    with pytest.raises(InputError, match="single answers with a label are matched with one another"):
        await run(make_config(dataset_path=path, pair_loss="kto"), FakeService())


def test_a_plan_marks_its_estimates(make_config: MakeConfig) -> None:
    plan = dry_run("dpo", make_config())
    assert plan.facts["pairs"].startswith("about 30 to train on, of which 0 lose an end; 4 held out (estimated from ")
    assert plan.facts["steps"] == "16 in all, 8 per epoch"
    assert "".join(text for text, is_trained in plan.previews[0] if is_trained) == " 0 is said\n"

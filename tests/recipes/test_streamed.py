"""Supervised runs whose data is not all in memory, mixed, or split: over the fake service, with small limits."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tinker
from tests.recipes.events import Events

from cookhouse.adapters import Adapters
from cookhouse.data import NoopDatasetStore
from cookhouse.data.batches import stream
from cookhouse.data.sources import lines
from cookhouse.errors import BadRowsError, InputError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import dry_run, run_async
from cookhouse.recipes.supervised import SupervisedConfig
from cookhouse.telemetry import Event, read_metrics
from cookhouse.training import FakeService
from cookhouse.training.clients.fake import FakeTrainingClient
from cookhouse.weights.checkpoints import CheckpointFile

pytestmark = pytest.mark.anyio

MakeConfig = Callable[..., SupervisedConfig]


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is streamed, in blocks and windows of a few rows."""
    monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 0)
    monkeypatch.setattr(stream, "_WINDOW_BYTES", 1500)
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 300)


def losses(folder: Path) -> list[tuple[float, float]]:
    return [(row["step"], row["train/loss"]) for row in read_metrics(folder / "metrics.jsonl") if "train/loss" in row]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the prompts of each batch that is trained on say, as they come."""
    tokenizer = get_tokenizer("cookhouse/tiny")
    batches: list[list[str]] = []
    forward_backward = FakeTrainingClient.forward_backward

    def recorded(client: FakeTrainingClient, data: list[tinker.Datum], *arguments: Any) -> Any:
        prompts = [tokenizer.decode(datum.model_input.to_ints()) for datum in data]
        batches.append([prompt.split("say ")[1].split("<")[0] for prompt in prompts])
        return forward_backward(client, data, *arguments)

    monkeypatch.setattr(FakeTrainingClient, "forward_backward", recorded)
    return batches


@pytest.mark.usefixtures("streamed")
async def test_a_streamed_epoch_trains_every_row_once_and_resumes_to_the_bit(
    make_config: MakeConfig, conversations: Callable[..., Path], tmp_path: Path
) -> None:
    """Catches a cursor that skips or repeats rows, in the middle of an epoch and of a window."""
    data = str(conversations("many.jsonl", 45))
    whole_service, notes = FakeService(), []
    note = Events(lambda event: notes.append(event.text["text"]) if event.name == "data.note" else None)
    config = make_config(dataset_path=data, log_path=str(tmp_path / "whole"))
    await run_async("supervised", config, adapters=Adapters(service=whole_service.connect, sinks=[note]))
    rows = [row for row in read_metrics(tmp_path / "whole" / "metrics.jsonl") if "train/loss" in row]
    assert [row["data/num_examples"] for row in rows] == [*[4] * 11, 1, *[4] * 11, 1]
    assert len(losses(tmp_path / "whole")) == 24
    assert notes[-2].startswith("epoch 0 had 45 examples of ")
    assert notes[-1].startswith("epoch 1 had 45 examples of ")

    def press(event: Event) -> None:
        if event.name == "training.step" and event.step == 5:
            os.kill(os.getpid(), signal.SIGINT)

    service = FakeService()
    await run_async(
        "supervised", make_config(dataset_path=data), adapters=Adapters(service=service.connect, sinks=[Events(press)])
    )
    assert 5 <= len(losses(tmp_path / "run")) < 24
    config = make_config(dataset_path=data, behavior_if_log_dir_exists="resume")
    await run_async("supervised", config, adapters=Adapters(service=FakeService(states=service.states).connect))
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


@pytest.mark.usefixtures("streamed")
async def test_a_bad_row_stops_a_streamed_run_before_its_batch(
    make_config: MakeConfig, conversations: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches steps that are lost with the batch that cannot be made, and a resume that cannot go on."""
    monkeypatch.setattr(stream, "_SAMPLE_ROWS", 1)
    path = conversations("many.jsonl", 40)
    rows = path.read_text().splitlines()
    rows[20] = '{"messages": "' + "x" * (len(rows[20]) - 16) + '"}'
    path.write_text("\n".join(rows) + "\n")
    service = FakeService()
    settings: dict[str, Any] = {"dataset_path": str(path), "num_epochs": 1, "save_every": 0}
    with pytest.raises(BadRowsError, match=r"many.jsonl:21: messages must be a list") as caught:
        await run_async("supervised", make_config(**settings), adapters=Adapters(service=service.connect))
    done = len(losses(tmp_path / "run"))
    (saved,) = CheckpointFile(tmp_path / "run" / "checkpoints.jsonl").read()
    assert saved.step == done > 0
    note = f"the {done} steps before are done and saved; on_bad_row=skip goes on without such rows"
    assert note in caught.value.__notes__
    assert any("behavior_if_log_dir_exists=resume" in note for note in caught.value.__notes__)
    config = make_config(**settings, behavior_if_log_dir_exists="resume", on_bad_row="skip")
    result = await run_async(
        "supervised", config, adapters=Adapters(service=FakeService(states=service.states).connect)
    )
    assert result.summary.num_steps == 10
    rows_of_run = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert sum(row.get("data/num_skipped_rows", 0) for row in rows_of_run) == 1


async def test_rows_that_are_skipped_are_counted_and_named(make_config: MakeConfig, tmp_path: Path) -> None:
    train = tmp_path / "train.jsonl"
    train.write_text(train.read_text() + "{\n" * 22)
    config = make_config(on_bad_row="skip")
    result = await run_async("supervised", config, adapters=Adapters(service=FakeService().connect))
    left_out = f"22 rows cannot be used and are left out: {train}:13-32: not JSON"
    assert result.state.context.notes[0].startswith(left_out)
    assert (result.state.context.notes[1], result.summary.total_steps) == ("left out: 2 more", 6)


async def test_a_fraction_is_held_out_and_never_trained_on(
    make_config: MakeConfig, conversations: Callable[..., Path], tmp_path: Path, asked: list[list[str]]
) -> None:
    """Catches a row that is both, twins of a held-out row among them, and a split that a resume draws anew."""
    path = conversations("many.jsonl", 30)
    path.write_text(path.read_text() * 2)
    settings: dict[str, Any] = {"dataset_path": str(path), "test_path": None, "eval_fraction": 0.2, "num_epochs": 1}
    seen = []
    for name in ("a", "b"):
        asked.clear()
        config = make_config(**settings, log_path=str(tmp_path / name), max_steps=99)
        result = await run_async("supervised", config, adapters=Adapters(service=FakeService().connect))
        held_out = {message["content"] for c in result.state.data.test for message in c.messages}
        trained = {f"say {said}" for batch in asked for said in batch}
        assert len(result.state.data.test) == 12
        assert not held_out & trained
        assert any(
            "say what a held-out row says, and are not trained on" in note for note in result.state.context.notes
        )
        seen.append((held_out, trained))
    assert seen[0] == seen[1]


async def test_a_fraction_asks_nothing_of_rows_without_an_answer(make_config: MakeConfig, tmp_path: Path) -> None:
    """Catches a run over rows that may be trained on, refused when one of them happens to be held out."""
    path = tmp_path / "some_empty.jsonl"
    rows = [{"prompt": f"say {number}", "completion": "" if number % 2 else str(number)} for number in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = make_config(dataset_path=str(path), test_path=None, eval_fraction=0.5, max_steps=1)
    result = await run_async("supervised", config, adapters=Adapters(service=FakeService().connect))
    assert result.state.data.test
    assert all(conversation.has_answer for conversation in result.state.data.test)
    (note,) = (note for note in result.state.context.notes if "eval_fraction" in note)
    assert note.startswith(
        f"{10 - len(result.state.data.test)} of the conversations that eval_fraction holds out have no ans"
    )


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_sets_are_mixed_by_weight_in_every_batch(
    make_config: MakeConfig,
    conversations: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[list[str]],
    is_streamed: bool,
) -> None:
    if is_streamed:
        monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 0)
    few, many = conversations("few.jsonl", 2), tmp_path / "many.jsonl"
    text = conversations("other.jsonl", 120).read_text().splitlines()
    many.write_text("\n".join(text[100:]) + "\n")
    service = FakeService()
    config = make_config(dataset_path=f"{few},{many}", dataset_weights="1,3", num_epochs=1)
    result = await run_async("supervised", config, adapters=Adapters(service=service.connect))
    batches = asked
    assert [sorted(len(said) for said in batch) for batch in batches][:6] == [[1, 3, 3, 3]] * 6
    assert sorted(said for batch in batches for said in batch if len(said) == 3) == [str(n) for n in range(100, 120)]
    assert result.summary.total_steps == 7
    assert f"{few} is gone through 3.5 times in an epoch, of 7 steps" in result.state.context.notes


async def test_a_batch_that_holds_no_row_of_a_set_is_refused(
    make_config: MakeConfig, conversations: Callable[..., Path]
) -> None:
    one, two = conversations("one.jsonl", 3), conversations("two.jsonl", 6)
    config = make_config(dataset_path=f"{one},{two}", dataset_weights="1,99")
    with pytest.raises(
        InputError, match=r"batch_size is 4; that is too small for one of each of .* at the weights 1, 99"
    ):
        await asyncio.to_thread(dry_run, "supervised", config)


async def test_sets_without_weights_are_gone_through_once(
    make_config: MakeConfig, conversations: Callable[..., Path], asked: list[list[str]]
) -> None:
    service = FakeService()
    one, two = conversations("one.jsonl", 3), conversations("two.jsonl", 6)
    config = make_config(dataset_path=f"{one},{two}", num_epochs=1)
    await run_async("supervised", config, adapters=Adapters(service=service.connect))
    said = sorted(said for batch in asked for said in batch)
    assert said == ["0", "0", "1", "1", "2", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"eval_fraction": 0.0}, "eval_fraction is 0.0; it must be above 0 and below 1, such as 0.05"),
        ({"eval_fraction": 1.5}, "eval_fraction is 1.5; it must be above 0"),
        ({"eval_fraction": 0.1}, "eval_fraction and test_path both say what is held out; give one of them"),
        ({"dataset_weights": "1"}, "dataset_weights=1 would change nothing: it is read with several data sets"),
        ({"dataset_weights": "1,0"}, "dataset_weights is '1,0'; there must be one above 0 for each of"),
        ({"dataset_weights": "1,2,3"}, "dataset_weights is '1,2,3'; there must be one above 0 for each of"),
        ({"dataset_weights": "x"}, "dataset_weights is 'x'; it must be numbers separated by commas"),
        ({"dataset_path": "hh"}, r"hh holds preferences \(chosen, rejected\), and supervised training needs conversat"),
        ({"dataset_path": "polaris"}, "polaris holds problems without written answers"),
        ({"dataset_path": ","}, "dataset_path names no data set"),
        ({"dataset_path": "nobody/nothing"}, "nobody/nothing is not on disk .looked in .*; check the network"),
    ],
)
async def test_settings_of_data_that_cannot_work_are_refused(
    make_config: MakeConfig, conversations: Callable[..., Path], settings: dict[str, Any], reason: str
) -> None:
    given = _as_dict(make_config())
    if settings.get("dataset_weights", "1") != "1":
        given["dataset_path"] += f",{conversations('second.jsonl', 4)}"
    with pytest.raises(InputError, match=reason):
        await asyncio.to_thread(dry_run, "supervised", {**given, **settings})


def _as_dict(config: SupervisedConfig) -> dict[str, Any]:
    names = ("dataset_path", "test_path", "log_path", "batch_size", "num_epochs")
    return {name: getattr(config, name) for name in names}


@pytest.mark.usefixtures("streamed")
async def test_streamed_data_without_a_trained_token_is_refused(
    make_config: MakeConfig, conversations: Callable[..., Path]
) -> None:
    config = make_config(dataset_path=str(conversations("many.jsonl", 40)), max_length=4)
    with pytest.raises(InputError, match=r"none of 40 rows from all over it has a trained token; check train_on_what"):
        await asyncio.to_thread(dry_run, "supervised", config)


@pytest.mark.usefixtures("streamed")
async def test_a_batch_of_rows_that_cannot_be_used_has_no_loss(
    make_config: MakeConfig, conversations: Callable[..., Path], tmp_path: Path
) -> None:
    # Catches a run that ends by a division through no token, and weights that Adam moves without a gradient.
    path = conversations("many.jsonl", 12)
    path.write_text(path.read_text().splitlines()[0] + "\n{\n{\n{\n")
    config = make_config(dataset_path=str(path), batch_size=1, num_epochs=1, on_bad_row="skip")
    service = FakeService()
    await run_async("supervised", config, adapters=Adapters(service=service.connect))
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert sum("train/loss" in row for row in rows) == 1
    assert [call.kind for call in service.calls if call.phase == "submit"].count("optim_step") == 1
    assert [row["train/num_tokens"] > 0 for row in rows if "optim/lr" in row].count(True) == 1


@pytest.mark.usefixtures("streamed")
async def test_a_plan_of_streamed_data_marks_its_estimates(
    make_config: MakeConfig, conversations: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_SAMPLE_ROWS", 16)
    config = make_config(dataset_path=str(conversations("many.jsonl", 100)), log_path=None)
    plan = await asyncio.to_thread(dry_run, "supervised", config)
    assert plan.facts["conversations"] == "100 to train on, 4 held out"
    assert plan.facts["examples"] == "about 100, of which 0 are truncated"
    assert plan.facts["estimated from"] == "16 rows"
    assert plan.previews


async def test_a_set_that_the_store_made_up_is_marked(make_config: MakeConfig) -> None:
    adapters = Adapters(service=FakeService().connect, datasets=NoopDatasetStore())
    config = make_config(dataset_path="someone/something", test_path=None, num_epochs=1)
    result = await run_async("supervised", config, adapters=adapters)
    assert result.state.context.notes[0] == (
        "synthetic: the rows of someone/something (train) are made up by the store of data sets"
    )
    assert result.summary.total_steps == 16


async def test_a_stage_that_filters_streamed_data_is_obeyed(
    make_config: MakeConfig, conversations: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches rows that a recipe's own stage left out and that are trained on all the same."""
    monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 0)
    from cookhouse.algorithms.base.rows import sources_of
    from cookhouse.workflows.supervised.rows import read_data

    config = make_config(dataset_path=str(conversations("many.jsonl", 9)), test_path=None)
    data = read_data(config, sources_of(config, "conversations"))
    kept = [c for c in data.conversations if "7" not in str(c.messages)]
    (part,) = data.with_conversations(kept).train
    assert part.conversations is not None
    assert len(part.conversations) == 8
    assert data.with_conversations(data.conversations) is data


async def test_killed_between_saves_a_streamed_run_goes_on_from_the_last(
    make_config: MakeConfig, conversations: Callable[..., Path], tmp_path: Path, streamed: None
) -> None:
    del streamed
    data = str(conversations("many.jsonl", 30))
    await run_async(
        "supervised",
        make_config(dataset_path=data, log_path=str(tmp_path / "whole")),
        adapters=Adapters(service=FakeService().connect),
    )

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("forward_backward", 5):
            raise tinker.RequestFailedError("killed", "r", tinker.types.RequestErrorCategory.Server)

    service = FakeService(gate=gate)
    with pytest.raises(Exception, match="killed"):
        await run_async("supervised", make_config(dataset_path=data), adapters=Adapters(service=service.connect))
    config = make_config(dataset_path=data, behavior_if_log_dir_exists="resume")
    await run_async("supervised", config, adapters=Adapters(service=FakeService(states=service.states).connect))
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    assert json.loads((tmp_path / "run" / "data.json").read_text())["train"]["num_lines"] == 30


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_run_can_be_shrunk_and_resumed_as_it_was(
    make_config: MakeConfig,
    conversations: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[list[str]],
    is_streamed: bool,
) -> None:
    """Catches rows behind the limit that are trained on, and epochs longer than `n_batches` after a resume."""
    if is_streamed:
        monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 0)
        monkeypatch.setattr(lines, "_BLOCK_BYTES", 300)
    small: dict[str, Any] = {"dataset_path": str(conversations("many.jsonl", 40)), "n_train_samples": 10}
    await run_async("supervised", make_config(**small), adapters=Adapters(service=FakeService().connect))
    assert [len(batch) for batch in asked] == [4, 4, 2] * 2
    assert {int(number) for batch in asked for number in batch} == set(range(10))
    whole, small = [*asked], {**small, "num_epochs": 8, "n_batches": 2, "log_path": str(tmp_path / "few")}
    asked.clear()
    service = FakeService()

    def press(event: Event) -> None:
        if event.name == "training.step" and event.step == 1:
            os.kill(os.getpid(), signal.SIGINT)

    adapters = Adapters(service=service.connect, sinks=[Events(press)])
    result = await run_async("supervised", make_config(**small), adapters=adapters)
    assert result.summary.num_steps < result.summary.total_steps == 16
    again = {**small, "behavior_if_log_dir_exists": "resume"}
    adapters = Adapters(service=FakeService(states=service.states).connect)
    with pytest.raises(InputError, match=r"n_train_samples=12, but the run in .* was started with 10"):
        await run_async("supervised", make_config(**again | {"n_train_samples": 12}), adapters=adapters)
    result = await run_async("supervised", make_config(**again), adapters=adapters)
    assert result.summary.num_steps == 16
    assert asked[:4] == whole[:2] + whole[3:5]
    assert len(asked) == 16

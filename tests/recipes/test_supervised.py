"""The supervised recipe from config to result, over the fake service."""

import asyncio
import json
import os
import re
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import chz
import pytest
import tinker
from tests.recipes.events import Events
from tests.workflows.kit import make_context

from cookhouse.adapters import Adapters
from cookhouse.data import read_conversations
from cookhouse.data.sources.tables import ListRows
from cookhouse.errors import InputError, ServiceError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import dry_run, find_recipe, run_async
from cookhouse.recipes.supervised import SupervisedConfig
from cookhouse.telemetry import Event, read_metrics
from cookhouse.training import FakeService
from cookhouse.weights.checkpoints import CheckpointFile
from cookhouse.workflows import SupervisedState
from cookhouse.workflows.supervised.dataset import build_supervised_dataset
from cookhouse.workflows.supervised.rows import RunData, TrainingRows

pytestmark = pytest.mark.anyio

MakeConfig = Callable[..., SupervisedConfig]


def parrot(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:  # noqa: ARG001
    """Answers as the data does once the fake model has been trained at all, and with nothing before."""
    tokenizer = get_tokenizer("cookhouse/tiny")
    asked = tokenizer.decode(prompt_T).rpartition("say ")[2].split("<")[0]
    answer = f"{asked} is said" if abs(theta).max() > 0.5 else "what?"
    return [*tokenizer.encode(answer, add_special_tokens=False), tokenizer.convert_tokens_to_ids("<|im_end|>")]


def losses(folder: Path) -> list[tuple[float, float]]:
    return [(row["step"], row["train/loss"]) for row in read_metrics(folder / "metrics.jsonl") if "train/loss" in row]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_run_reports_before_and_after_and_leaves_a_folder(make_config: MakeConfig) -> None:
    service = FakeService(answer=parrot)
    events = Events()
    result = await run_async(
        "supervised", make_config(learning_rate=0.5), adapters=Adapters(service=service.connect, sinks=[events])
    )
    summary, folder = result.summary, result.summary.folder
    assert (summary.num_steps, summary.total_steps, summary.is_interrupted) == (6, 6, False)
    loss_before, loss_after = summary.before("test/nll"), summary.after("test/nll")
    assert loss_before is not None
    assert loss_after is not None
    assert loss_after < loss_before
    assert (summary.before("test/exact_match"), summary.after("test/exact_match")) == (0.0, 1.0)
    assert [(s.prompt, s.expected, s.before, s.after) for s in summary.samples] == [
        ("say 0", "0 is said", "what?", "0 is said"),
        ("say 2", "2 is said", "what?", "2 is said"),
    ]
    assert summary.next_command == f"cookhouse report {folder}", "nobody can sample from what is made up"
    assert service.closed_with == "success"
    assert service.states.keys() >= {summary.state_path, summary.sampler_path}

    rows = read_metrics(folder / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(7))
    assert rows[0]["test/nll"] == summary.before("test/nll")
    assert rows[6]["test/nll"] == summary.after("test/nll")
    assert [point.name for point in CheckpointFile(folder / "checkpoints.jsonl").read()] == [
        "000002",
        "000004",
        "final",
    ]
    record = json.loads((folder / "config.json").read_text())
    assert record["config"]["renderer_name"] == "qwen3_instruct"
    assert (folder / "logs.log").read_text().count("training.step") == 6
    assert {"run.start", "training.step", "training.checkpoint", "eval.complete", "run.end"} <= set(events.names)
    assert {"folder", "metrics", "checkpoints", "state_path", "sampler_path"} <= set(result.artifacts)
    assert result.state.eval_results["test/exact_match"] == result.state.eval_results["accuracy"] == 1.0


async def test_answers_shown_are_spread_over_the_skills(make_config: MakeConfig, tmp_path: Path) -> None:
    """Catches a choice by the order of the file alone, in which a skill that clusters is all that is shown."""
    skills = ["sort", "sort", "add", "sort", "fact", "sort"]
    rows = [
        {
            "messages": [{"role": "user", "content": f"say {n}"}, {"role": "assistant", "content": f"{n} is said"}],
            "skill": skill,
        }
        for n, skill in enumerate(skills)
    ]
    test_path = tmp_path / "skills.jsonl"
    test_path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    async def shown(service: FakeService, count: int) -> list[str]:
        config = make_config(
            test_path=str(test_path), num_samples=count, num_epochs=1, behavior_if_log_dir_exists="delete"
        )
        result = await run_async("supervised", config, adapters=Adapters(service=service.connect))
        return [skills[int(sample.prompt.removeprefix("say "))] for sample in result.summary.samples]

    assert await shown(FakeService(answer=parrot), 6) == ["add", "fact", "sort", "sort", "sort", "sort"]
    assert await shown(FakeService(answer=parrot), 3) == ["add", "sort", "sort"]
    assert await shown(FakeService(), 3) == ["add", "sort", "sort"]


async def test_run_without_held_out_conversations_measures_nothing(make_config: MakeConfig) -> None:
    result = await run_async(
        "supervised", make_config(test_path=None), adapters=Adapters(service=FakeService().connect)
    )
    assert (result.summary.before("test/nll"), result.summary.after("test/exact_match")) == (None, None)
    assert result.summary.samples == []


async def test_ctrl_c_saves_and_resuming_gives_the_same_losses(make_config: MakeConfig, tmp_path: Path) -> None:
    whole = await run_async(
        "supervised", make_config(log_path=str(tmp_path / "whole")), adapters=Adapters(service=FakeService().connect)
    )

    def press(event: Event) -> None:
        if event.name == "training.step" and event.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    service = FakeService()
    interrupted = await run_async(
        "supervised", make_config(), adapters=Adapters(service=service.connect, sinks=[Events(press)])
    )
    summary = interrupted.summary
    assert summary.is_interrupted
    assert 3 <= summary.num_steps < 6
    assert (
        summary.next_command == f"cookhouse run supervised log_path={summary.folder} behavior_if_log_dir_exists=resume"
    )
    assert service.closed_with == "interrupted"
    assert summary.before("test/nll") is not None
    assert summary.after("test/nll") is None

    later = FakeService(states=service.states)
    config = make_config(behavior_if_log_dir_exists="resume")
    resumed = await run_async("supervised", config, adapters=Adapters(service=later.connect))
    assert losses(summary.folder) == losses(whole.summary.folder)
    assert resumed.summary.before("test/nll") == whole.summary.before("test/nll")
    assert resumed.summary.after("test/nll") == whole.summary.after("test/nll")
    assert [s.before for s in resumed.summary.samples] == [s.before for s in whole.summary.samples]


async def test_every_row_is_trained_in_every_epoch_and_a_resume_counts_the_smaller_batch(
    make_config: MakeConfig, conversations: Callable[..., Path], tmp_path: Path
) -> None:
    """Catches an epoch that ends before its last, smaller batch, a schedule of other steps, and a cursor that skips."""
    data = str(conversations("ten.jsonl", 10))
    notes: list[str] = []
    note = Events(lambda event: notes.append(event.text["text"]) if event.name == "data.note" else None)
    config = make_config(dataset_path=data, log_path=str(tmp_path / "whole"))
    whole = await run_async("supervised", config, adapters=Adapters(service=FakeService().connect, sinks=[note]))
    rows = [row for row in read_metrics(whole.summary.folder / "metrics.jsonl") if "train/loss" in row]
    assert [(row["progress/epoch"], row["progress/batch"]) for row in rows] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2),
    ]  # fmt: skip
    rate = rows[0]["optim/lr"]
    assert [row["optim/lr"] / rate for row in rows] == pytest.approx([1 - step / 6 for step in range(6)])
    assert [row["train/num_trained_tokens"] for row in rows] == [16, 16, 8, 16, 16, 8]  # four to a row
    assert "the last batch of an epoch has 2 of the 10 examples, not 4" in notes

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("forward_backward", 4):
            raise tinker.RequestFailedError("killed", "r", tinker.types.RequestErrorCategory.Server)

    broken = FakeService(gate=gate)
    with pytest.raises(ServiceError, match="killed"):
        await run_async(
            "supervised", make_config(dataset_path=data, save_every=3), adapters=Adapters(service=broken.connect)
        )
    config = make_config(dataset_path=data, save_every=3, behavior_if_log_dir_exists="resume")
    await run_async("supervised", config, adapters=Adapters(service=FakeService(states=broken.states).connect))
    assert losses(tmp_path / "run") == losses(whole.summary.folder)


@pytest.fixture
def long_rows(tmp_path: Path) -> Path:
    """One answer, and one prompt, that the embedded model cannot take whole, among others that it can."""
    rows = [{"prompt": "q", "completion": "a"}] * 3
    rows += [{"prompt": "q", "completion": "word " * 3000}, {"prompt": "word " * 3000, "completion": "a"}]
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


async def test_rows_longer_than_the_model_are_cut_before_they_are_sent(
    make_config: MakeConfig, long_rows: Path
) -> None:
    """Catches a run that a dry run passes, and that the service ends at the first long row."""
    config = make_config(dataset_path=str(long_rows), test_path=str(long_rows), eval_max_tokens=2040, log_path=None)
    plan = await asyncio.to_thread(dry_run, "supervised", config)
    assert plan.notes == [
        f"2 of 5 conversations say nearly what an earlier one says; the first is {long_rows}:2, as {long_rows}:1",
        "5 of 5 held-out conversations say nearly what one that is trained on says; "
        f"the first is {long_rows}:1, as {long_rows}:1",
        "2 of 5 examples are truncated: they are cut to 2,048 tokens (all that cookhouse/tiny takes)",
        "batch_size=4 makes 2 steps of 4 examples, which teach little; a smaller batch_size, or more num_epochs, gives "
        "more",
        f"1 of 5 examples have no trained token and are left out; the first is {long_rows}:5, cut from "
        "3012 to 2048 tokens",
        "2 of 5 held-out examples are truncated: they are cut to 2,048 tokens (all that cookhouse/tiny takes)",
        "1 of 5 held-out conversations are not answered in evaluations, since their prompts leave no room: the model "
        "takes 2,048 tokens in all",
        "4 of 5 held-out conversations are answered with fewer than 2040 tokens: the model takes 2,048 tokens in all",
    ]
    assert plan.facts["context"] == "2,048 tokens, prompt and answer together"
    assert plan.facts["longest example"] == "2,048 tokens"


async def test_what_the_service_takes_bounds_a_run_before_it_is_trained(
    make_config: MakeConfig, long_rows: Path, tmp_path: Path
) -> None:
    config = make_config(dataset_path=str(long_rows), log_path=str(tmp_path / "run"))
    service = FakeService(max_context_tokens=1024)
    with pytest.raises(InputError, match=r"takes 1,024 tokens at this service, .* has 2,048; set max_length=1024"):
        await run_async("supervised", config, adapters=Adapters(service=service.connect))
    assert {call.kind for call in service.calls} == {"create_model", "close"}
    assert not (tmp_path / "run").exists()
    fitting = chz.replace(config, max_length=1024)
    service = FakeService(max_context_tokens=1024)
    assert (await run_async("supervised", fitting, adapters=Adapters(service=service.connect))).summary.num_steps == 2
    held_out = make_config(test_path=str(long_rows), log_path=str(tmp_path / "held_out"))
    with pytest.raises(InputError, match=r"has 2,048; .* eval_max_tokens or num_eval lower"):
        await run_async("supervised", held_out, adapters=Adapters(service=FakeService(max_context_tokens=1024).connect))


async def test_a_batch_larger_than_the_data_trains_on_all_of_it(make_config: MakeConfig) -> None:
    result = await run_async("supervised", make_config(batch_size=13), adapters=Adapters(service=FakeService().connect))
    assert result.summary.total_steps == 2
    few = "batch_size=13 makes 2 steps of 12 examples, which teach little; a smaller batch_size, or more num_epochs"
    repeated, *notes = result.state.context.notes
    assert repeated.startswith("4 of 4 held-out conversations say nearly what one that is trained on says")
    assert notes == [
        f"{few}, gives more",
        "batch_size is 13 and there are 12 examples: they make one batch",
    ]


async def test_killed_run_is_done_again_from_its_last_checkpoint(make_config: MakeConfig, tmp_path: Path) -> None:
    # What kill -9 leaves: rows after the last checkpoint, and a torn line.
    whole = await run_async(
        "supervised", make_config(log_path=str(tmp_path / "whole")), adapters=Adapters(service=FakeService().connect)
    )

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("forward_backward", 3):
            raise tinker.RequestFailedError("killed", "r", tinker.types.RequestErrorCategory.Server)

    service = FakeService(gate=gate)
    with pytest.raises(ServiceError, match="killed"):
        await run_async("supervised", make_config(), adapters=Adapters(service=service.connect))
    folder = tmp_path / "run"
    assert len(losses(folder)) == 3
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "train/l')
    config = make_config(behavior_if_log_dir_exists="resume")
    await run_async("supervised", config, adapters=Adapters(service=FakeService(states=service.states).connect))
    assert losses(folder) == losses(whole.summary.folder)


@pytest.mark.parametrize("name", ["train", "test"])
async def test_a_resume_on_other_data_is_refused(
    make_config: MakeConfig, conversations: Callable[..., Path], name: str
) -> None:
    # Catches a run that goes on with half of its rows as if nothing had happened.
    service = FakeService()
    await run_async("supervised", make_config(max_steps=2), adapters=Adapters(service=service.connect))
    was = len((conversations(f"{name}.jsonl", 80 if name == "train" else 2)).read_text().splitlines())
    config = make_config(max_steps=2, behavior_if_log_dir_exists="resume")
    again = FakeService(states=service.states)
    with pytest.raises(InputError, match=f"{name}.jsonl has changed since the run .* has {was}; the first that is"):
        await run_async("supervised", config, adapters=Adapters(service=again.connect))
    with pytest.raises(InputError, match="restore it, or choose another log_path"):
        await asyncio.to_thread(dry_run, "supervised", config)
    assert again.calls == []


@pytest.fixture
def named(tmp_path: Path) -> Callable[[str], str]:
    """The name of a data set in a file of Python, whose function reads the rows of a JSON Lines file."""

    def name(path: str) -> str:
        file = tmp_path / f"{Path(path).stem}.py"
        file.write_text(
            "import json\nfrom pathlib import Path\n\n"
            f"def rows():\n    return [json.loads(line) for line in Path({path!r}).read_text().splitlines()]\n"
        )
        return f"{file}:rows"

    return name


async def test_a_data_set_by_name_trains_as_its_rows_in_a_file(
    make_config: MakeConfig, named: Callable[[str], str], tmp_path: Path
) -> None:
    # The order of a tool's keys is part of the prompt: catches rows that are sorted on their way.
    tools = [{"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}]
    train = tmp_path / "train.jsonl"
    train.write_text(
        "".join(json.dumps({**json.loads(line), "tools": tools}) + "\n" for line in train.read_text().splitlines())
    )
    of_file = make_config(log_path=str(tmp_path / "file"))
    of_name = make_config(dataset_path=named(str(train)), test_path=named(str(tmp_path / "test.jsonl")))
    for config in (of_file, of_name):
        await run_async("supervised", config, adapters=Adapters(service=FakeService().connect))
    assert losses(tmp_path / "run") == losses(tmp_path / "file")
    rows, expected = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("run", "file"))
    assert rows[-1]["test/nll"] == expected[-1]["test/nll"]


async def test_a_data_set_by_name_that_is_bad_opens_nothing(make_config: MakeConfig, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def broken():\n    raise OSError('gone')\n\ndef empty():\n    return [{}]\n")
    service = FakeService()
    for name, said in (("broken", "gives no rows: OSError: gone"), ("empty", "row 1: no messages")):
        config = make_config(dataset_path=f"{file}:{name}")
        with pytest.raises(InputError, match=f"own.py:{name} {said}"):
            await run_async("supervised", config, adapters=Adapters(service=service.connect))
    assert service.calls == []
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["train", "test"])
async def test_a_resume_on_other_rows_of_a_data_set_by_name_is_refused(
    make_config: MakeConfig, conversations: Callable[..., Path], named: Callable[[str], str], tmp_path: Path, name: str
) -> None:
    service = FakeService()
    path = tmp_path / f"{name}.jsonl"
    which = {"train": "dataset_path", "test": "test_path"}[name]
    settings = {which: named(str(path)), "max_steps": 2}
    await run_async("supervised", make_config(**settings), adapters=Adapters(service=service.connect))
    again = make_config(**settings, behavior_if_log_dir_exists="resume")
    await run_async("supervised", again, adapters=Adapters(service=FakeService(states=service.states).connect))
    conversations(path.name, 3)
    with pytest.raises(InputError, match=f"{name}.py:rows has changed since the run .* has 3; the first that is"):
        await asyncio.to_thread(dry_run, "supervised", again)


async def test_finished_run_can_be_resumed_without_training(make_config: MakeConfig) -> None:
    service = FakeService()
    done = await run_async("supervised", make_config(), adapters=Adapters(service=service.connect))
    rows = read_metrics(done.summary.folder / "metrics.jsonl")
    again = FakeService(states=service.states)
    config = make_config(behavior_if_log_dir_exists="resume")
    result = await run_async("supervised", config, adapters=Adapters(service=again.connect))
    assert not [call for call in again.calls if call.kind in ("optim_step", "save_state")]
    assert result.summary.after("test/nll") == done.summary.after("test/nll")
    assert read_metrics(result.summary.folder / "metrics.jsonl") == rows


async def test_second_ctrl_c_stops_at_once_and_leaves_no_task(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cookhouse.training.interrupt._ONE_SECONDS", 0)

    async def gate(kind: str, _: int) -> None:
        if kind == "optim_step":
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.02)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    before = asyncio.all_tasks()
    service = FakeService(gate=gate)
    with pytest.raises(KeyboardInterrupt):
        await run_async("supervised", make_config(), adapters=Adapters(service=service.connect))
    assert asyncio.all_tasks() == before
    assert service.closed_with == "interrupted"


async def test_ctrl_c_during_the_final_save_loses_no_step(make_config: MakeConfig) -> None:
    async def gate(kind: str, _: int) -> None:
        if kind == "save_state":
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.02)

    service = FakeService(gate=gate)
    with pytest.raises(KeyboardInterrupt) as stopped:
        await run_async("supervised", make_config(save_every=0), adapters=Adapters(service=service.connect))
    assert any("its last checkpoint is kept" in note for note in stopped.value.__notes__)
    again = FakeService(states=service.states)
    config = make_config(save_every=0, behavior_if_log_dir_exists="resume")
    result = await run_async("supervised", config, adapters=Adapters(service=again.connect))
    assert result.summary.num_steps == result.summary.total_steps
    assert not [call for call in again.calls if call.kind == "optim_step"], "a step that was saved was done again"


@pytest.mark.parametrize("is_users_wish", [True, False])
async def test_a_run_stopped_before_it_trained_keeps_its_folder_unless_its_user_stopped_it(
    make_config: MakeConfig, tmp_path: Path, is_users_wish: bool
) -> None:
    """What cancels a run otherwise is a server that died, and its log, named in the error, lies in the folder."""
    present = asyncio.current_task()
    assert present is not None

    async def gate(kind: str, _: int) -> None:
        if kind == "create_model":
            if is_users_wish:
                os.kill(os.getpid(), signal.SIGINT)
            else:
                present.cancel()
            await asyncio.Event().wait()

    config = make_config(log_path=str(tmp_path / "runs" / "a"))
    with pytest.raises(KeyboardInterrupt if is_users_wish else asyncio.CancelledError):
        await run_async("supervised", config, adapters=Adapters(service=FakeService(gate=gate).connect))
    present.uncancel()
    assert (tmp_path / "runs").exists() != is_users_wish


def test_a_stopped_run_tokenizes_no_further(make_config: MakeConfig) -> None:
    """Ctrl-C would otherwise wait for the whole data set: a process ends no sooner than its threads."""
    config = make_config()
    assert config.dataset_path is not None
    state = SupervisedState(context=make_context(), config=config)
    conversations = read_conversations(config.dataset_path)[:1] * 1000
    rows = TrainingRows(name="rows", rows=ListRows([], "rows"), conversations=conversations)
    state.data = RunData(train=[rows], weights=[1.0], test=[])
    has_begun, may_go_on, num_rendered = threading.Event(), threading.Event(), []

    class Renderer:
        def build_supervised_examples(self, *_: object) -> list[object]:
            has_begun.set()
            may_go_on.wait(60)
            num_rendered.append(1)
            return []

    state.renderer = Renderer()  # type: ignore[assignment]

    async def stop_while_rendering() -> None:
        building = asyncio.ensure_future(build_supervised_dataset.run(state))
        assert await asyncio.to_thread(has_begun.wait, 60)
        building.cancel()
        await asyncio.wait([building])
        may_go_on.set()

    asyncio.run(stop_while_rendering())  # returns when the threads are done
    assert len(num_rendered) == 10, "it looks up once in a hundredth of the data"


def test_bundled_data_is_one_set_of_several(make_config: MakeConfig, conversations: Callable[..., Path]) -> None:
    # Catches `bundled` that is a file of that name wherever another name stands beside it.
    def counts(**settings: Any) -> tuple[int, int]:
        plan = dry_run("supervised", make_config(**{"test_path": None, "num_eval": 10**6, **settings}))
        found = re.match(r"([\d,]+) to train on, ([\d,]+) held out", plan.facts["conversations"])
        assert found is not None
        return int(found[1].replace(",", "")), int(found[2].replace(",", ""))

    both = f"bundled,{conversations()}"
    num_train, num_test = counts(dataset_path="bundled")
    assert counts(dataset_path=both) == (num_train + 12, num_test)
    assert counts(test_path="bundled") == (12, num_test)
    assert counts(dataset_path=both, n_train_samples=5, dataset_weights="3,1") == (10, num_test)


async def test_refused_session_leaves_no_folder(make_config: MakeConfig, tmp_path: Path) -> None:
    async def gate(kind: str, _: int) -> None:
        if kind == "create_model":
            raise tinker.RequestFailedError("no such model", "r", tinker.types.RequestErrorCategory.User)

    config = make_config(log_path=str(tmp_path / "runs" / "a"))
    with pytest.raises(InputError, match="no such model"):
        await run_async("supervised", config, adapters=Adapters(service=FakeService(gate=gate).connect))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dataset_path": "missing.jsonl"}, "missing.jsonl does not exist"),
        ({"train_on_what": "all_asistant_messages"}, "did you mean all_assistant_messages"),
        ({"renderer_name": "qwen3_instuct"}, "did you mean qwen3_instruct"),
        ({"max_length": 1}, "max_length is 1"),
        ({"lr_schedule": "warmup_linear", "warmup_steps": 6}, "warmup_steps is 6"),
    ],
)
async def test_bad_input_connects_to_nothing_and_leaves_nothing(
    make_config: MakeConfig, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    service = FakeService()
    before = names_in(tmp_path)
    with pytest.raises(InputError, match=message):
        await run_async("supervised", make_config(**settings), adapters=Adapters(service=service.connect))
    assert service.calls == []
    assert names_in(tmp_path) == before


async def test_existing_folder_is_refused_before_anything_is_read(make_config: MakeConfig) -> None:
    await run_async("supervised", make_config(), adapters=Adapters(service=FakeService().connect))
    config = make_config(dataset_path="missing.jsonl")
    with pytest.raises(InputError, match="there is no terminal to ask on"):
        await run_async("supervised", config, adapters=Adapters(service=FakeService().connect))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; it must be at least 1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"lr_schedule": "lineer"}, "did you mean linear"),
        ({"model_name": "cookhouse/tinny"}, "did you mean cookhouse/tiny"),
        ({"ttl_seconds": 60}, "ttl_seconds is 60; it must be at least 3600"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SupervisedConfig(**settings)


@pytest.mark.parametrize(
    ("model", "batch_size", "learning_rate", "eval_every"),
    [("cookhouse/tiny", 32, 5e-3, 40), ("meta-llama/Llama-3.1-8B", 128, 2e-4, 0)],
)
def test_defaults_are_those_of_the_vetted_run(
    model: str, batch_size: int, learning_rate: float, eval_every: int
) -> None:
    config = find_recipe("supervised").config_class(model_name=model)
    assert (config.batch_size, config.learning_rate, config.lr_schedule) == (batch_size, learning_rate, "linear")
    assert (config.max_length, config.lora_rank, config.num_epochs) == (32768, 32, 1)
    assert (config.save_every, config.eval_every) == (20, eval_every)


def test_a_dry_run_says_how_many_rows_are_held_out_and_how_many_are_measured(
    make_config: MakeConfig, conversations: Callable[..., Path]
) -> None:
    # Catches rows that are neither trained on nor measured without a word.
    split: dict[str, Any] = {"dataset_path": str(conversations("many.jsonl", 40)), "test_path": None}
    plan = dry_run("supervised", make_config(**split, eval_fraction=0.25, num_eval=4))
    said = "30 to train on, 10 held out, of which 4 are measured and 6 neither measured nor trained on"
    assert plan.facts["conversations"] == said
    whole = dry_run("supervised", make_config(**split, eval_fraction=0.25))
    assert whole.facts["conversations"] == "30 to train on, 10 held out"


def test_dry_run_counts_and_makes_nothing(make_config: MakeConfig, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    plan = dry_run("sl_basic", make_config())
    assert plan.facts["conversations"] == "12 to train on, 4 held out"
    assert plan.facts["steps"] == "6 in all, 3 per epoch"
    assert plan.facts["adapter"].endswith("MB with gradient and optimizer state")
    assert [text for text, is_trained in plan.previews[0] if is_trained] == ["0 is said<|im_end|>"]
    assert sorted(tmp_path.iterdir()) == before


def test_dry_run_names_the_fields_that_are_not_read(make_config: MakeConfig, tmp_path: Path) -> None:
    # Catches a misspelled field that nobody would miss.
    (tmp_path / "rows.jsonl").write_text('{"prompt": "q", "completion": "a", "sytem": "s", "id": 3, "note": ""}\n')
    plan = dry_run("supervised", make_config(dataset_path=str(tmp_path / "rows.jsonl")))
    assert plan.facts["unused fields"] == "id, sytem"


def test_dry_run_refuses_the_folder_that_a_run_would_refuse(make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds files but no run"):
        dry_run("supervised", make_config(log_path=str(tmp_path / "a"), behavior_if_log_dir_exists="ask"))
    (tmp_path / "a" / "config.json").write_text("{}")
    with pytest.raises(InputError, match="exists; choose another log_path"):
        dry_run("supervised", make_config(log_path=str(tmp_path / "a"), behavior_if_log_dir_exists="raise"))
    plan = dry_run("supervised", make_config(log_path=str(tmp_path / "a"), behavior_if_log_dir_exists="ask"))
    assert plan.folder == tmp_path / "a"
    assert (tmp_path / "a" / "notes.txt").exists()


def test_every_field_is_documented() -> None:
    config = find_recipe("supervised").config_class
    assert all(field._doc for field in chz.chz_fields(config).values())

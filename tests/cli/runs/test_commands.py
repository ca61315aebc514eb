"""`cookhouse runs` over ten small runs of three recipes, one of them a user's own; some have not come to an end."""

import asyncio
import json
import re
import shutil
import signal
import sys
from collections.abc import Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.diagnosis.series import GRPO, rollouts
from tests.runs.kit import make_run

from cookhouse.cli import main
from cookhouse.cli.runs.names import complete_run
from cookhouse.errors import ServiceError
from cookhouse.registry import Artifact, NewModel, open_registry
from cookhouse.runs import read_history, read_launches
from cookhouse.runs.lock import hold
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeService
from cookhouse.training.clients.fake import Gate

pytestmark = pytest.mark.usefixtures("kitchen")

OWN = """
import chz
from cookhouse import Adapters, Recipe, SupervisedSettings, supervised_workflow

@chz.chz
class Config(SupervisedSettings):
    batch_size: int = 2
    num_eval: int = 0
    spice: str = chz.field(default="mild", doc="Of the recipe's own.")

MINE = Recipe(name="mine", description="Of one's own.", config_class=Config, workflow=supervised_workflow)

class Kept:
    def write(self, record):
        with open("records.txt", "a") as file:
            file.write(type(record).__name__ + " " + getattr(record, "name", "") + chr(10))
    def close(self):
        pass

def adapters():
    return Adapters(sinks=[Kept()])
"""
SUPERVISED = ("supervised", "dataset_path=sl.jsonl", "batch_size=2", "num_eval=0")
RL = ("rl_basic", "dataset_path=rl.jsonl", "test_path=rl.jsonl", "num_eval=0", "batch_size=2", "group_size=2")
RUNS = {
    "base": (*SUPERVISED, "max_steps=4"),
    "fast": (*SUPERVISED, "max_steps=4", "learning_rate=0.5"),
    "long": (*SUPERVISED, "max_steps=6", "seed=3"),
    "tested": (*SUPERVISED[:3], "max_steps=4", "num_eval=2", "test_path=sl.jsonl", "eval_max_tokens=4"),
    "child": (*SUPERVISED, "max_steps=2", "load_checkpoint_path=long"),
    "rl-1": (*RL, "max_steps=2"),
    "rl-2": (*RL, "max_steps=2", "learning_rate=0.5", "advantage=normalized"),
    "broken": (*RL, "max_steps=4"),
    "own": ("own.py:MINE", "dataset_path=sl.jsonl", "max_steps=2", "spice=hot"),
    "halted": ("own.py:MINE", "dataset_path=sl.jsonl", "max_steps=6", "--adapters", "own.py:adapters"),
}
"""Names, the oldest first, so that `base` is 1 and `halted` 10, and how each is started."""
STATES = dict.fromkeys(RUNS, "finished") | {"broken": "failed", "halted": "interrupted"}


class FakeConnection:
    """Fits `cookhouse.service.connection.Connection`."""

    def __init__(self, service: FakeService) -> None:
        self.connect = service.connect

    async def guard(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await work


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main([*arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


class Kitchen:
    """Runs in a folder, on one service whose saved states last."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.states: dict[str, Any] = {}
        self._patch = patch

    def run(self, *words: str, at: tuple[int, BaseException] | None = None) -> int:
        """Run a command; with `at`, that many passes in, something is raised: an interrupt like the one of Ctrl-C."""
        service = FakeService(states=self.states, gate=_gate(at))
        connection = nullcontext(FakeConnection(service))
        self._patch.setattr("cookhouse.service.connection.open_connection", lambda *_, **__: connection)
        code = call(*words)
        self.states = service.states
        return code


def _gate(at: tuple[int, BaseException] | None) -> Gate:
    async def gate(kind: str, number: int) -> None:
        if at is None or (kind, number) != ("forward_backward", at[0]):
            return
        if not isinstance(at[1], KeyboardInterrupt):
            raise at[1]
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0.01)

    return gate


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The ten runs, and the states that their service saved."""
    folder = tmp_path_factory.mktemp("kitchen")
    (folder / "own.py").write_text(OWN)
    rows = {
        "sl": [{"prompt": f"say {n}", "completion": f"{n}"} for n in range(12)],
        "rl": [{"question": f"Compute {n} + 1.", "answer": str(n + 1)} for n in range(8)],
    }
    for name, some in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("TINKER_API_KEY", "TINKER_BASE_URL"):
            patch.delenv(name, raising=False)
        kitchen = Kitchen(patch)
        ends: dict[str, tuple[int, tuple[int, BaseException]]] = {
            "broken": (1, (2, ServiceError("the accelerator\nis on fire"))),
            "halted": (130, (2, KeyboardInterrupt())),
        }
        for name, words in RUNS.items():
            code, at = ends.get(name, (0, None))
            recipe, *settings = words
            done = kitchen.run("run", recipe, *settings, f"log_path=runs/{name}", "save_every=2", at=at)
            assert done == code, name
    return folder, kitchen.states


@pytest.fixture
def kitchen(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kitchen:
    """The ten runs, in a folder of the test's own, in which one works."""
    folder, states = made
    shutil.copytree(folder, tmp_path / "here", dirs_exist_ok=True)
    for run in (tmp_path / "here" / "runs").iterdir():
        file = run / "run.json"
        file.write_text(file.read_text().replace(str(folder), str(tmp_path / "here")))
    monkeypatch.chdir(tmp_path / "here")
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    ready = Kitchen(monkeypatch)
    ready.states = dict(states)
    return ready


def table(text: str) -> list[list[str]]:
    """Cells of a table, whose columns stand two spaces apart."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def test_the_list_has_every_run_the_newest_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("runs") == 0
    header, *rows = table(capsys.readouterr().out)
    assert header == ["#", "name", "recipe", "model", "steps", "metric", "time", "started", "state"]
    rows = [row for row in rows if len(row) == len(header)]
    assert [(row[0], row[1]) for row in rows] == [
        (str(number), name) for number, name in reversed(list(enumerate(RUNS, start=1)))
    ]
    assert {row[1]: row[-1] for row in rows} == STATES
    by_name = {row[1]: dict(zip(header, row, strict=True)) for row in rows}
    assert [by_name[name]["steps"] for name in ("base", "long", "child")] == ["4/4", "6/6", "2/2"]
    assert by_name["broken"]["steps"].endswith("/4")
    assert by_name["own"]["recipe"] == "mine"
    assert by_name["tested"]["metric"].startswith("exact match ")
    assert by_name["base"]["metric"].startswith("training loss ")
    assert by_name["rl-1"]["metric"].startswith("reward in training ")
    assert {row["model"] for row in by_name.values()} == {"cookhouse/tiny"}


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--recipe", "rl_basic"), ["broken", "rl-2", "rl-1"]),
        (("--recipe", "own.py:MINE"), ["halted", "own"]),
        (("--state", "failed"), ["broken"]),
        (("--state", "interrupted"), ["halted"]),
        (("--limit", "2"), ["halted", "own"]),
        (("--recipe", "supervised", "--limit", "1"), ["child"]),
        (("--recipe", "dpo"), []),
    ],
)
def test_the_list_is_narrowed_down(
    options: tuple[str, ...], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("runs", *options, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == names
    assert [row["number"] for row in rows] == [str(1 + list(RUNS).index(name)) for name in names]
    assert call("runs", "list", *options) == 0
    told = capsys.readouterr()
    assert ("none of the 10 runs in runs/ matches; their recipes are mine, rl_basic, supervised" in told.err) == (
        not names
    )


@pytest.mark.parametrize("name", ["broken", "br", "8", "#8", "runs/broken"])
def test_a_run_is_shown_by_each_of_its_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("runs", "show", name) == 0
    out = capsys.readouterr().out
    assert "broken: rl_basic of cookhouse/tiny" in out
    assert "failed: the accelerator is on fire" in out
    settings = out[out.index("settings that are not the defaults") : out.index("so far, to step")]
    assert sorted(re.findall(r"^  (\w+) = ", settings, re.MULTILINE)) == sorted(
        ["dataset_path", "test_path", "num_eval", "batch_size", "group_size", "max_steps", "save_every"]
    )
    assert out.splitlines()[-1].endswith("runs resume broken")
    assert re.search(r"^machine +\S.* cores?, \d+ GiB", out, re.MULTILINE)


def test_a_finished_run_is_shown_with_what_came_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("runs", "show", "own") == 0
    out = capsys.readouterr().out
    assert "  spice = hot\n" in out
    assert "result after 2 of 2 steps" in out
    assert "  training loss of the last step: - → " in out
    assert re.search(r"  step 2 +sampler +\S+/final", out)
    assert "runs/own/report.html" in out
    assert "to continue" not in out


def test_what_the_metrics_show_to_be_wrong_is_shown_and_in_the_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "d" / "wrong", rows=rollouts(4, mixed=0), recipe="rl_basic", **GRPO)
    make_run(tmp_path / "d" / "right", number=1, rows=[{"step": 0, "optim/lr": 1.0, "train/loss": 2.0}])
    under = ("--under", str(tmp_path / "d"))
    assert call("runs", "list", "--json", *under) == 0
    found = {row["name"]: row["findings"] for row in json.loads(capsys.readouterr().out)}
    assert found["right"] == []
    [finding] = found["wrong"]
    assert finding["title"].startswith("0 of 64 groups had different rewards in the last 4 steps")
    assert call("runs", "show", "wrong", *under) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"diagnosis {finding['title']} try {finding['advice']}" in out
    assert call("runs", "list", *under) == 0
    shown = [line.strip() for line in capsys.readouterr().out.splitlines() if "diagnosis" in line]
    assert shown == [f"diagnosis: {finding['title']}"]


def test_compare_names_every_setting_that_differs_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("runs", "compare", "base", "#2", "lon", "runs/tested") == 0
    out = capsys.readouterr().out
    above, below, _ = out.split("\n\n")
    assert table(above) == [
        ["setting", "base", "fast", "long", "tested"],
        ["num_eval", "0", "0", "0", "2"],
        ["max_steps", "4", "4", "6", "4"],
        ["learning_rate", "0.005", "0.5", "0.005", "0.005"],
        ["seed", "0", "0", "3", "0"],
        ["test_path", "null", "null", "null", "sl.jsonl"],
        ["eval_max_tokens", "64", "64", "64", "4"],
    ]
    losses = [read_metrics(Path("runs", name, "metrics.jsonl")) for name in ("base", "fast", "long", "tested")]
    last = [[row["train/loss"] for row in rows if "train/loss" in row][-1] for rows in losses]
    (shown,) = [row for row in table(below) if row[0] == "train/loss"]
    assert [float(cell.removesuffix(" *")) for cell in shown[1:]] == pytest.approx(last, rel=1e-4)
    assert [cell.endswith(" *") for cell in shown[1:]] == [value == min(last) for value in last]
    page = Path("runs/compare-base-fast-long-tested.html").read_text()
    assert f"curves       {Path('runs/compare-base-fast-long-tested.html')}" in out
    assert page.count('class="swatch series-3"') >= 2


def test_metrics_that_are_equal_are_counted_and_not_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a table of zeros in which nobody finds what differs."""
    for name, reward in (("one", 0.25), ("two", 0.5)):
        row = {"step": 0, "env/all/reward/total": reward, "test/rollouts/dropped": 0.0, "test/rollouts/retried": 0.0}
        make_run(tmp_path / name, rows=[row])
    assert call("runs", "compare", str(tmp_path / "one"), str(tmp_path / "two"), "-o", str(tmp_path / "page.html")) == 0
    out = capsys.readouterr().out
    assert "env/all/reward/total" in out
    assert "dropped" not in out
    assert "(2 more metrics are equal in all of them)" in out


def test_runs_of_different_recipes_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("runs", "compare", "1", "6", "-o", "page.html") == 0
    out = capsys.readouterr().out
    names = [row[0] for row in table(out.split("\n\n")[0])[1:]]
    assert names[0] == "recipe"
    assert "group_size" not in names
    assert "more settings are of some of the recipes only" in out
    assert Path("page.html").exists()


@pytest.mark.parametrize(
    ("name", "more"), [("halted", ()), ("hal", ("save_every=1",)), ("10", ()), ("broken", ("num_samples=1",))]
)
def test_a_resumed_run_ends_as_one_that_was_never_stopped(
    name: str, more: tuple[str, ...], kitchen: Kitchen, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its own recipe, adapters and settings; catches one that begins anew, or without its sinks."""
    Path("records.txt").unlink()
    assert kitchen.run("runs", "resume", name, *more) == 0
    capsys.readouterr()
    whole = "broken" if name == "broken" else "halted"
    assert Path("records.txt").exists() == (whole == "halted")
    recipe, *settings = RUNS[whole]
    assert kitchen.run("run", recipe, *settings, "log_path=runs/whole", "save_every=2") == 0
    key = "train/loss" if whole == "halted" else "optim/policy_loss"
    resumed, straight = (
        [row[key] for row in read_metrics(Path("runs", each, "metrics.jsonl")) if key in row]
        for each in (whole, "whole")
    )
    assert resumed == straight
    history = read_history(Path("runs", whole))
    assert [launch.status for launch in history.launches] == [STATES[whole], "finished"]
    assert history.seconds == pytest.approx(sum(launch.seconds for launch in history.launches))
    assert history.launches[0].started_at < history.launches[1].started_at
    assert kitchen.run("runs", "resume", name) == 2
    assert "has finished, and nothing of it is left to do" in capsys.readouterr().err


def test_a_run_is_resumed_where_it_was_started(
    kitchen: Kitchen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its recipe and its data are named by relative paths."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(sys, "argv", ["cookhouse"])
    monkeypatch.chdir(elsewhere)
    assert kitchen.run("runs", "resume", "halted", "--under", "../here/runs") == 0
    told = capsys.readouterr()
    assert f"going on in {tmp_path / 'here'}, where it was started" in told.err
    assert read_history(tmp_path / "here" / "runs" / "halted").status == "finished"
    assert list(elsewhere.iterdir()) == []


def test_a_running_run_is_neither_resumed_nor_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    run = Path("runs/halted")
    (launch,) = json.loads((run / "run.json").read_text())["launches"]
    (run / "run.json").write_text(json.dumps({"launches": [launch | {"ended_at": None, "status": None}]}))
    with hold(run):
        assert call("runs", "--state", "running", "--json") == 0
        assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["halted"]
        assert call("runs", "resume", "halted") == 2
        assert f"runs/halted is running, in process {launch['process_id']}" in capsys.readouterr().err
        assert call("runs", "delete", "halted", "--yes") == 2
        assert "a run is going on in runs/halted; stop it first" in capsys.readouterr().err
        assert call("run", "supervised", "log_path=runs/halted", "behavior_if_log_dir_exists=delete") == 2
        assert "a run is going on in runs/halted; wait for it" in capsys.readouterr().err
    assert run.is_dir()


@pytest.mark.parametrize("name", ["own", "9", "#9", "ow", "runs/own"])
def test_a_run_is_deleted_by_each_of_its_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("runs", "delete", name, "--yes") == 0
    assert re.fullmatch(r"deleted runs/own \(\d+\.\d MB\)\n", capsys.readouterr().out)
    assert sorted(path.name for path in Path("runs").iterdir()) == sorted(set(RUNS) - {"own"})


def test_weights_that_others_were_started_from_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(Path("runs/child/config.json").read_text())["config"]["load_checkpoint_path"] == "runs/long"
    assert call("runs", "delete", "long", "--yes") == 2
    assert (
        "the weights of runs/long are what other runs were started from: child; delete these first, or pass --force"
        in (" ".join(capsys.readouterr().err.split()))
    )
    assert call("runs", "delete", "base", "long", "child", "--yes") == 0
    assert not {"base", "long", "child"} & {path.name for path in Path("runs").iterdir()}


def test_registered_weights_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    # Catches a deletion that leaves names of models behind with no weights.
    registry = open_registry("runs/registry.db", {})
    run = str(Path("runs/own").resolve())
    registry.register(
        NewModel(name="mine", base_model="cookhouse/tiny", artifact=Artifact(path="tinker://x"), run_folder=run)
    )
    config = Path("runs/child/config.json")
    record = json.loads(config.read_text())
    config.write_text(json.dumps(record | {"weights": ["mine@1"]}))
    assert call("runs", "delete", "own", "--yes") == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "the weights of runs/own are registered as mine@1; the weights of runs/own are what other" in told
    assert "were started from: child; delete these first, or pass --force" in told
    assert Path("runs/own").is_dir()
    assert call("runs", "delete", "own", "--yes", "--force") == 0
    assert not Path("runs/own").exists()


def test_deleting_asks_and_nothing_goes_unless_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("runs", "delete", "base") == 2
    assert "there is no terminal to ask on; pass --yes" in capsys.readouterr().err
    monkeypatch.setattr("cookhouse.cli.runs.deletion.has_user", lambda: True)
    for answer, code in ((False, 130), (True, 0)):
        monkeypatch.setattr("typer.confirm", lambda _, given=answer: given)
        assert Path("runs/base").is_dir()
        assert call("runs", "delete", "base") == code
    assert not Path("runs/base").exists()


def test_weights_and_reports_are_asked_for_by_the_same_names(
    kitchen: Kitchen, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a number that means another run once there are more: the folder is what is recorded."""
    assert call("report", "#1") == 0
    assert capsys.readouterr().out == "runs/base/report.html\n"
    assert call("checkpoints", "list", "bas") == 0
    assert "/final" in capsys.readouterr().out
    settings = ("max_steps=1", "load_checkpoint_path=2", "log_path=runs/next")
    assert kitchen.run("run", *SUPERVISED, *settings) == 0
    assert json.loads(Path("runs/next/config.json").read_text())["config"]["load_checkpoint_path"] == "runs/fast"
    capsys.readouterr()
    for words in (("sample", "nextt"), ("chat", "nextt"), ("eval", "nextt"), ("checkpoints", "export", "nextt", "out")):
        assert call(*words) == 2
        assert "unknown weights 'nextt'; did you mean next" in capsys.readouterr().err
    assert kitchen.run("run", "supervised", "load_checkpoint_path=rl", "log_path=runs/x") == 2
    assert "'rl' begins the names of several runs: rl-1 (#6), rl-2 (#7)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("list", "--under", "nowhere"),
            "there are no runs in nowhere/; start one (cookhouse run supervised), or name",
        ),
        (("show", "rl"), "'rl' begins the names of several runs: rl-1 (#6), rl-2 (#7); name one of them"),
        (("show", "bass"), "unknown run 'bass'; did you mean base or fast?"),
        (("show", "11"), "unknown run '11'"),
        (("show", "empty"), "empty is a folder without a run in it"),
        (("show", "base", "--under", "nowhere"), "there is no run 'base'"),
        (("compare", "base"), "name two different runs at least"),
        (("compare", "base", "#1"), "name two different runs at least"),
        (("resume", "base"), "runs/base has finished, and nothing of it is left to do"),
        (("resume", "halted", "max_steps=9"), "max_steps=9, but the run in runs/halted was started with 6"),
        (("resume", "halted", "seed"), "'seed' is not a setting; write key=value"),
        (("delete", "base", "nothing", "--yes"), "unknown run 'nothing'"),
        (("delete", "linked", "--yes"), "linked is a link, which is not followed"),
        (("lst",), "no such command 'lst'"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    Path("linked").symlink_to("runs/base")
    before = sorted(path.name for path in Path("runs").iterdir())
    assert call("runs", *words) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert sorted(path.name for path in Path("runs").iterdir()) == before


def test_a_torn_row_is_no_hindrance(capsys: pytest.CaptureFixture[str]) -> None:
    with Path("runs/base/metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "train/lo')
    with Path("runs/fast/metrics.jsonl").open("a") as file:
        file.write("nonsense\n")
    for words in (("list",), ("show", "base"), ("compare", "base", "fast")):
        assert call("runs", *words) == 0
    assert "note: fast: metrics.jsonl cannot be read: " in capsys.readouterr().out


def test_shells_are_offered_names() -> None:
    assert list(complete_run("rl")) == ["rl-2", "rl-1"]
    assert next(iter(complete_run(""))) == "halted"


def test_a_launch_knows_how_it_was_started() -> None:
    (launch,) = read_launches(Path("runs/halted"))
    assert (launch.recipe, launch.adapters) == ("own.py:MINE", "own.py:adapters")
    assert launch.total_steps == 6

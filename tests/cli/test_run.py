"""The run command over a made-up service: what it prints and how it ends; how it speaks of itself, and asks."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cookhouse.cli import main, run
from cookhouse.errors import ServiceError
from cookhouse.training import FakeService
from cookhouse.training.clients.fake import Gate


def test_the_program_is_named_as_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "my tools" / "cookhouse"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(script), "run"])
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.chdir(tmp_path)
    assert run.program() == "'my tools/cookhouse'"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert run.program() == f"'{script}'"
    monkeypatch.setenv("PATH", str(script.parent))
    assert run.program() == "cookhouse"


def test_a_module_is_named_with_the_python_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/x/cookhouse/__main__.py"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert run.program() == f"{sys.executable} -m cookhouse"
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert run.program() == (
        "python -m cookhouse" if Path(sys.executable).name == "python" else f"{sys.executable} -m cookhouse"
    )


def typed(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    left = list(answers)
    reply: Callable[[str], str] = lambda _: left.pop(0)  # noqa: E731
    monkeypatch.setattr("typer.prompt", reply)


@pytest.mark.parametrize(
    ("answers", "chosen"), [(["delete"], "delete"), (["RES "], "resume"), (["", "x", "r", "ra"], "raise")]
)
def test_asking_goes_on_until_the_answer_is_clear(
    answers: list[str], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(monkeypatch, *answers)
    assert run._ask("runs/x exists; what now?") == chosen


def test_an_interrupt_at_the_question_needs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's handler, which acts between callbacks, must not be the one that a blocking prompt meets."""
    handled = []

    def interrupted(_: str) -> str:
        signal.raise_signal(signal.SIGINT)
        return "delete"

    monkeypatch.setattr("typer.prompt", interrupted)
    before = signal.signal(signal.SIGINT, lambda *_: handled.append(True))
    try:
        with pytest.raises(KeyboardInterrupt):
            run._ask("runs/x exists; what now?")
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert handled == [True], "the handler of before is back, and saw only the second"


SETTINGS = ("max_steps=8", "batch_size=4", "save_every=2", "num_eval=4", "log_path=mine")


class FakeConnection:
    """Fits `cookhouse.service.connection.Connection`."""

    def __init__(self, service: FakeService) -> None:
        self.connect = service.connect

    async def guard(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await work


def run_supervised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gate: Gate | None = None, *more: str) -> int:
    """The exit code of a small run over a fake service, in a folder of its own."""
    service = FakeService() if gate is None else FakeService(gate=gate)

    monkeypatch.setattr(
        "cookhouse.service.connection.open_connection", lambda *_, **__: nullcontext(FakeConnection(service))
    )
    monkeypatch.chdir(tmp_path)
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as caught:
        main(["run", "supervised", *SETTINGS, *more])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def signalling(at: dict[tuple[str, int], signal.Signals]) -> Gate:
    """Sends this process a signal while an answer is awaited."""

    async def gate(kind: str, number: int) -> None:
        if (kind, number) in at:
            signal.raise_signal(at[kind, number])
            await asyncio.sleep(0.01)

    return gate


def test_a_whole_run_ends_with_its_summary(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_supervised(monkeypatch, tmp_path) == 0
    out = capsys.readouterr().out
    assert out.count("an example, trained on what is in ⟦⟧") == 2
    assert "supervised of cookhouse/tiny: done after 8 of 8 steps" in out
    assert "cookhouse sample mine" in out.splitlines()[-1]
    assert not (tmp_path / "mine" / "service").exists(), "a server was started that nobody asked for"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_prints_the_command_that_continues(
    sent: signal.Signals, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_supervised(monkeypatch, tmp_path, signalling({("forward_backward", 3): sent})) == 130
    out = capsys.readouterr().out
    assert "interrupted and saved after" in out
    assert out.endswith("run supervised log_path=mine behavior_if_log_dir_exists=resume\n")


def test_a_signal_to_the_process_and_to_its_group_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `timeout` sends it. Would catch a run that is stopped at once, and saves nothing."""
    monkeypatch.setattr("cookhouse.training.interrupt._ONE_SECONDS", 3600)
    gate = signalling({("forward_backward", 1): signal.SIGTERM, ("optim_step", 1): signal.SIGTERM})
    assert run_supervised(monkeypatch, tmp_path, gate) == 130
    assert "interrupted and saved after" in capsys.readouterr().out
    assert (tmp_path / "mine" / "checkpoints.jsonl").read_text()


def test_a_second_signal_stops_and_names_the_last_checkpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cookhouse.training.interrupt._ONE_SECONDS", 0)
    gate = signalling({("forward_backward", 3): signal.SIGINT, ("forward_backward", 4): signal.SIGINT})
    assert run_supervised(monkeypatch, tmp_path, gate) == 130
    err = capsys.readouterr().err
    assert err.startswith("stopped\nits last checkpoint is kept; continue with:\n")


def test_a_failing_service_is_exit_1_with_the_command_that_continues(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("forward_backward", 5):
            raise ServiceError("the accelerator is on fire")

    assert run_supervised(monkeypatch, tmp_path, gate) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: the accelerator is on fire\n")
    assert "run supervised log_path=mine behavior_if_log_dir_exists=resume" in err


OWN = """
from pathlib import Path
from cookhouse import Adapters

class Kept:
    def write(self, record):
        with Path("records.txt").open("a") as file:
            file.write(type(record).__name__ + " " + getattr(record, "name", "") + chr(10))
    def close(self):
        with Path("records.txt").open("a") as file:
            file.write("closed" + chr(10))

def make():
    return Adapters(sinks=[Kept()])

def breaks():
    raise OSError("nobody is there")

def needs(argument):
    return Adapters()

adapters = make()
nothing = Adapters()
typed = Adapters(program="mine go")
one_sink = Adapters(sinks=Kept())
sink_class = Adapters(sinks=[Kept])
no_service = Adapters(service="http://localhost")
wrong = dict
text = "adapters"
"""


@pytest.mark.parametrize("name", ["make", "adapters"])
def test_own_sinks_take_the_place_of_the_terminal(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    assert run_supervised(monkeypatch, tmp_path, None, "--adapters", "own.py:" + name) == 0
    records = (tmp_path / "records.txt").read_text().splitlines()
    assert {"Event run.start", "Event run.end"} <= set(records)
    assert sum(record.startswith("MetricsRow") for record in records) >= 8
    out = capsys.readouterr().out
    assert "an example, trained on" not in out, "the command line's own sinks are there too"
    assert "done after 8 of 8 steps" in out, "the summary is no sink"


def test_an_own_service_is_asked_and_none_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from cookhouse import Adapters\n"
        "from cookhouse.training import FakeService\n"
        "adapters = Adapters(service=FakeService().connect)\n"
    )

    async def gate(kind: str, number: int) -> None:
        raise AssertionError(f"the other service was asked: {kind} {number}")

    assert run_supervised(monkeypatch, tmp_path, gate, "--adapters", "own.py:adapters") == 0


def test_sigusr1_ends_with_the_code_of_a_job_to_be_put_into_its_queue_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches the code of Ctrl-C, after which a batch queue does not start a job again."""
    gate = signalling({("forward_backward", 3): signal.SIGUSR1})
    assert run_supervised(monkeypatch, tmp_path, gate) == 75
    out = capsys.readouterr().out
    assert "\nSIGUSR1 came" in out
    assert out.splitlines()[-1].endswith("log_path=mine behavior_if_log_dir_exists=resume")


def test_a_port_that_is_not_filled_stays_the_command_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.setattr(run, "program", lambda: "./cookhouse")
    assert run_supervised(monkeypatch, tmp_path, None, "--adapters", "own.py:nothing") == 0
    out = capsys.readouterr().out
    assert out.count("an example, trained on what is in ⟦⟧") == 2
    assert "./cookhouse sample mine" in out.splitlines()[-1]


def test_the_command_that_continues_names_the_adapters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a run that goes on without its sinks, or at another service."""
    (tmp_path / "own.py").write_text(OWN)
    again = "mine go run supervised --adapters own.py:typed log_path=mine behavior_if_log_dir_exists=resume\n"
    gate = signalling({("forward_backward", 3): signal.SIGINT})
    assert run_supervised(monkeypatch, tmp_path, gate, "--adapters", "own.py:typed") == 130
    assert capsys.readouterr().out.endswith(again)
    monkeypatch.setattr("cookhouse.training.interrupt._ONE_SECONDS", 0)
    gate = signalling({("forward_backward", 3): signal.SIGINT, ("forward_backward", 4): signal.SIGINT})
    words = ("behavior_if_log_dir_exists=delete", "--adapters", "own.py:typed")
    assert run_supervised(monkeypatch, tmp_path, gate, *words) == 130
    assert again in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own", "unknown bundle of adapters 'own'"),
        ("other.py:make", "there is no file other.py"),
        ("own.py:mak", "unknown name in own.py 'mak'; did you mean make"),
        ("own.py:text", "own.py:text is of type str, not a bundle of adapters; adapters are an object of"),
        ("own.py:wrong", "own.py:wrong made a dict; adapters are an object of cookhouse.Adapters, or a function"),
        ("own.py:breaks", "bundle of adapters own.py:breaks cannot be made: OSError: nobody is there"),
        ("own.py:needs", "bundle of adapters own.py:needs cannot be made: TypeError: needs() missing 1 required"),
        ("own.py:one_sink", "for sinks; that must be a list, of objects with write and close"),
        ("own.py:sink_class", "for sinks; that must be a list, of objects with write and close"),
        ("own.py:no_service", "has 'http://localhost' for service; that must be a function that opens a connection"),
    ],
)
def test_what_are_no_adapters_is_refused_before_anything_is_made(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    assert run_supervised(monkeypatch, tmp_path, None, "--adapters", name) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert err.startswith("error: ")
    assert message in err
    assert not (tmp_path / "mine").exists()


def test_a_dry_run_refuses_a_wrong_name_and_makes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    assert run_supervised(monkeypatch, tmp_path, None, "--dry-run", "--adapters", "own.py:mak") == 2
    assert "did you mean make" in capsys.readouterr().err
    assert run_supervised(monkeypatch, tmp_path, None, "--dry-run", "--adapters", "own.py:breaks") == 2
    assert "own.py:breaks cannot be made: OSError: nobody is there" in capsys.readouterr().err
    assert run_supervised(monkeypatch, tmp_path, None, "--dry-run", "--adapters", "own.py:make") == 0
    assert "nothing was trained" in capsys.readouterr().out
    assert (tmp_path / "records.txt").read_text() == "closed\n", "its sinks are told nothing, and closed"
    assert not (tmp_path / "mine").exists()

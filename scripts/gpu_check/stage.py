"""One stage: commands with a limit of time, and how they end."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MARK = "COOKHOUSE_GPU_CHECK_STAGE"
"""In the environment of a stage's processes, so that all are found at its end, also in sessions of their own."""
_GRACE_SHARE = 0.1
_MOST_GRACE_SECONDS = 5.0
_IMPORT_ERRORS = ("ModuleNotFoundError: ", "ImportError: ")
_TAIL_BYTES = 20_000


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Commands, one after another, within one limit; a later one runs though an earlier one failed."""

    number: int
    name: str
    about: str
    seconds: float
    commands: Sequence[Sequence[str]]
    """Arguments after `python`; those before the first option are variables of the environment, as NAME=VALUE."""
    needs: frozenset[str] = frozenset()
    """Modules without which it is left out."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a stage ended."""

    status: str
    """passed, failed, timed out, crashed, cannot import, skipped."""
    seconds: float
    why: str = ""


def run(stage: Stage, python: str, environment: Mapping[str, str], log: Path, limit_seconds: float) -> Outcome:
    """Run it in processes of its own, with all that they say in `log`; none is left when this returns."""
    mark = f"{os.getpid()}-{stage.number}-{time.monotonic_ns()}"
    start = time.monotonic()
    worst = Outcome(status="passed", seconds=0.0)
    with log.open("ab") as file:
        for command in stage.commands:
            file.write(f"\n$ python {' '.join(command)}\n".encode())
            file.flush()
            left = limit_seconds - (time.monotonic() - start)
            if left <= 0:
                worst = Outcome(status="timed out", seconds=0.0, why=f"no time for: {' '.join(command)}")
                break
            began_at = file.tell()
            number = next(i for i, each in enumerate(command) if each.startswith("-"))
            variables = dict(each.split("=", 1) for each in command[:number])
            try:
                code = _wait([python, *command[number:]], {**environment, **variables, MARK: mark}, file.fileno(), left)
            finally:
                _kill_marked(mark)
            outcome = _outcome(code, log, began_at)
            if worst.status == "passed":
                worst = outcome
            if code is None:
                worst = outcome
                break
    return Outcome(status=worst.status, seconds=time.monotonic() - start, why=worst.why)


def _wait(command: Sequence[str], environment: Mapping[str, str], output: int, limit_seconds: float) -> int | None:
    """Its exit code; None where it was ended at the limit. Just before, it is interrupted: pytest says what it has."""
    grace = min(_MOST_GRACE_SECONDS, _GRACE_SHARE * limit_seconds)
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        return process.wait(limit_seconds - grace)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    process.kill()
    # What hangs in the driver may not end even then: nobody waits for it.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
    return None


def _kill_marked(mark: str) -> None:
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        # A process that ends meanwhile, or of another user.
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


def _outcome(code: int | None, log: Path, began_at: int) -> Outcome:
    if code == 0:
        return Outcome(status="passed", seconds=0.0)
    last = _last_line(log, began_at)
    if code is None:
        return Outcome(status="timed out", seconds=0.0, why=last)
    if code < 0:
        return Outcome(status="crashed", seconds=0.0, why=f"{signal.Signals(-code).name}; {last}")
    status = "cannot import" if last.startswith(_IMPORT_ERRORS) else "failed"
    return Outcome(status=status, seconds=0.0, why=last)


def _last_line(log: Path, began_at: int) -> str:
    with log.open("rb") as file:
        file.seek(max(began_at, log.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")

"""The command as a user starts it: real processes, the embedded model, a folder of its own."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_SECONDS, next_line, wait_until

STEPS = 24
# Small enough to take seconds, with checkpoints often enough to be interrupted between two of them.
SETTINGS = (
    "batch_size=4",
    f"max_steps={STEPS}",
    "save_every=5",
    "num_eval=3",
    "num_samples=1",
    "eval_max_tokens=8",
    "lora_rank=4",
    "seed=7",
)


class Cookhouse:
    """Starts `cookhouse` in one folder, and knows which processes it has left there."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        """`python`: that of the environment whose cookhouse is started."""
        self.folder = folder
        self._python = python
        self._started: list[subprocess.Popen[str]] = []

    def run(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, its output captured, with nobody at the terminal."""
        return subprocess.run(
            self._command(arguments),
            cwd=self.folder,
            env=self._environment(env),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None, under: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Start a command, as an argument of another one if it is `under` that; both its outputs go to one pipe."""
        process = subprocess.Popen(
            [*under, *self._command(arguments)],
            cwd=self.folder,
            env=self._environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self._started.append(process)
        return process

    def python(
        self, code: str, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program that imports cookhouse to its end, its output captured."""
        return subprocess.run(
            [self._python, "-c", code, *arguments],
            cwd=self.folder,
            env=self._environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def run_in_terminal(
        self, *arguments: str, typed: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Run a command to its end on a terminal of its own; the exit code, and all that was drawn.

        A line of `typed` is typed each time that it asks, which it does with `> `.
        """
        leader, follower = os.openpty()
        process = subprocess.Popen(
            self._command(arguments),
            cwd=self.folder,
            env=self._environment({"TERM": "xterm-256color", "COLUMNS": "120", **(env or {})}),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
        )
        os.close(follower)
        drawn, lines = bytearray(), iter(typed)
        with contextlib.suppress(OSError):  # what a terminal gives when its last program has gone
            while part := os.read(leader, 65536):
                drawn += part
                if drawn.endswith(b"> ") and (line := next(lines, None)) is not None:
                    os.write(leader, f"{line}\n".encode())
        os.close(leader)
        return process.wait(timeout=PATIENCE_SECONDS), drawn.decode()

    def supervised(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """A small supervised run that has to succeed."""
        done = self.run("run", "supervised", *SETTINGS, *arguments, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def interrupt(
        self,
        name: str,
        sent: signal.Signals,
        *,
        after_steps: int,
        under: Sequence[str] = (),
        to_group: bool = False,
    ) -> str:
        """Start a small run in the folder `name`, send a signal to it, to what it is `under`, or to its process group,
        after some steps, and return what it printed.
        """
        process = self.start("run", "supervised", *SETTINGS, f"log_path={name}", under=under)
        wait_until(lambda: len(losses(self.folder / name)) >= after_steps or process.poll() is not None)
        assert self.servers(), "it runs on no server of its own"
        if to_group:
            os.killpg(process.pid, sent)
        else:
            process.send_signal(sent)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        return output

    def servers(self) -> list[int]:
        """Ids of the servers that were started from this folder."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"cookhouse.server" in words and (entry / "cwd").resolve() == self.folder.resolve():
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def _command(self, arguments: Sequence[str]) -> list[str]:
        return [self._python, "-m", "cookhouse", *arguments]

    def _environment(self, env: Mapping[str, str] | None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TINKER_", "COOKHOUSE_"))}
        # Batches this small gain nothing from a second thread, and lose much on a busy machine.
        return {**kept, "TINKER_TELEMETRY": "0", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **(env or {})}


def losses(run_folder: Path) -> dict[int, float]:
    """Training loss by step, from metrics.jsonl; a line still being written is left out."""
    file = run_folder / "metrics.jsonl"
    found = {}
    for line in file.read_text().splitlines(keepends=True) if file.exists() else ():
        if line.endswith("\n"):
            row = json.loads(line)
            if "train/loss" in row:
                found[row["step"]] = row["train/loss"]
    return found


def exported_by(server: subprocess.Popen[str]) -> dict[str, str]:
    """The two variables that a starting `cookhouse serve` tells one to export."""
    found: dict[str, str] = {}
    printed = []
    while line := next_line(server):
        printed.append(line)
        if match := re.match(r"  export (TINKER_\w+)=(\S+)$", line):
            found[match[1]] = match[2]
        if len(found) == 2:
            return found
    raise AssertionError("".join(printed))


@pytest.fixture
def cookhouse(tmp_path: Path) -> Iterator[Cookhouse]:
    command = Cookhouse(tmp_path)
    yield command
    command.close()
    wait_until(lambda: not command.servers())


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Reference"]:
    """One uninterrupted small run on the local engine: what it printed, and its folder."""
    command = Cookhouse(tmp_path_factory.mktemp("reference"))
    # Behind a proxy, where nobody answers: what goes to the local engine must not go there.
    done = command.supervised("log_path=reference", env={"HTTP_PROXY": "http://127.0.0.1:9"})
    yield Reference(command.folder / "reference", done.stdout, done.stderr)
    command.close()


class Reference:
    def __init__(self, folder: Path, stdout: str, stderr: str) -> None:
        self.folder = folder
        self.stdout = stdout
        self.stderr = stderr
        self.losses = losses(folder)

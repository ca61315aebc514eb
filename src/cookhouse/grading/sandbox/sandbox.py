"""The interface of a sandbox: it runs a Python program and reports how it ended."""

import dataclasses
import enum
import inspect
import json
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from cookhouse.errors import InputError
from cookhouse.grading.sandbox.worker.modules import load_modules


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one execution; none can be switched off."""

    wall_seconds: float = 6.0
    cpu_seconds: int = 60  # of each process; an execution has wall_seconds in any case
    memory_bytes: int = 1 << 30  # address space of each process, and resident memory of all together
    disk_bytes: int = 64 << 20  # of each file; of the scratch folder where it is a file system of its own
    processes: int = 64  # threads included
    open_files: int = 128
    output_bytes: int = 1 << 20  # of each of the two streams

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) <= 0:
                raise InputError(f"Limits.{field.name} is {getattr(self, field.name)}; it must be positive")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """Python source that runs as `__main__`.

    `modules` maps names to sources that the program may import. They are the caller's own code, not a model's: a
    warm worker may run them once for many programs.
    """

    source: str
    stdin: bytes = b""
    modules: Mapping[str, str] = dataclasses.field(default_factory=dict)
    limits: Limits = dataclasses.field(default_factory=Limits)


class ExecutionOutcome(enum.StrEnum):
    """End of an execution."""

    OK = "ok"  # status 0
    NONZERO_EXIT = "nonzero exit"  # an uncaught exception, sys.exit with an error
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output limit"
    KILLED = "killed"  # by a signal
    STOPPED = "stopped"  # by its caller


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """Result of a program. `status` is negative for a signal, None where the program was ended from outside."""

    outcome: ExecutionOutcome
    status: int | None
    stdout: bytes
    stderr: bytes
    seconds: float
    is_truncated: bool = False  # a stream was longer than its limit

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")


@runtime_checkable
class Sandbox(Protocol):
    """Runs programs that nobody trusts. A program's own failure is an outcome; only a broken sandbox raises."""

    async def run(self, program: Program) -> Execution:
        """Run to the end; cancellation kills the run. Raises ServiceError if the sandbox itself fails."""
        ...

    async def aclose(self) -> None: ...


@runtime_checkable
class PairingSandbox(Sandbox, Protocol):
    """A sandbox that can also let two programs talk while neither can reach the other otherwise."""

    async def run_pair(self, program: Program, judge: Program) -> tuple[Execution, Execution]:
        """Run both, joined by a stream socket that each has as descriptor 3; when the judge ends, so does the other."""
        ...


def standalone_source(program: Program) -> str:
    """The program and its modules as one source, for sandboxes that take a single text."""
    if not program.modules:
        return program.source
    loader = inspect.getsource(load_modules)
    modules = json.dumps(dict(program.modules))
    return (
        f"import json, sys, types\n{loader}load_modules(json.loads({modules!r}))\n"
        f"exec(compile({program.source!r}, 'main.py', 'exec'))\n"
    )

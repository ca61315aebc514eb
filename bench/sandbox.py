"""Executions per second of the local sandbox against `subprocess.run([python, file])` with the same limits.

python -m bench.sandbox [--seconds 10] [--workers 2]

Both sides run the same programs, as many at a time, in turns of one second so that a busy machine slows both. The
plain side has the sandbox's resource limits and an empty environment, and none of its walls.
"""

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.harness import save_record

from cookhouse.grading.sandbox import ExecutionOutcome, Limits, LocalSandbox, Program

_TURN_SECONDS = 1.0
_PROGRAMS = {
    "print": ("print(1)\n", b"", b"1\n"),
    "solution": (
        "import collections, heapq, itertools, math, sys\nfrom typing import List\n\n"
        "def solve(a: List[int]) -> int:\n"
        "    return sum(heapq.nlargest(3, a)) + max(collections.Counter(a).values())\n\n"
        "print(solve(list(map(int, sys.stdin.read().split()))))\n",
        b"5 1 4 4 2\n",
        b"15\n",
    ),
}


def limit(limits: Limits) -> None:
    """The limits that the sandbox sets for a program, in a process that is about to run one."""
    for kind, value in (
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.disk_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))


class Plain:
    """One interpreter for each program."""

    def __init__(self, source: str, folder: Path, num_workers: int) -> None:
        self._file = folder / "main.py"
        self._file.write_text(source, encoding="utf-8")
        self._limits = Limits()
        self._threads = ThreadPoolExecutor(num_workers)

    async def run(self, stdin: bytes) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, stdin)

    def _run(self, stdin: bytes) -> bytes:
        command = [sys.executable, "-B", str(self._file)]
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            check=True,
            env={},
            cwd=self._file.parent,
            timeout=self._limits.wall_seconds,
            preexec_fn=lambda: limit(self._limits),
            start_new_session=True,
        ).stdout


class Warm:
    """The sandbox."""

    def __init__(self, source: str, sandbox: LocalSandbox) -> None:
        self._source = source
        self._sandbox = sandbox

    async def run(self, stdin: bytes) -> bytes:
        execution = await self._sandbox.run(Program(source=self._source, stdin=stdin))
        assert execution.outcome is ExecutionOutcome.OK, execution
        return execution.stdout


async def turn(run: Callable[[bytes], Awaitable[bytes]], stdin: bytes, expected: bytes, num_workers: int) -> float:
    """Executions per second over one turn, `num_workers` at a time."""
    start = time.perf_counter()

    async def work() -> int:
        count = 0
        while time.perf_counter() - start < _TURN_SECONDS:
            assert await run(stdin) == expected
            count += 1
        return count

    counts = await asyncio.gather(*(work() for _ in range(num_workers)))
    return sum(counts) / (time.perf_counter() - start)


async def measure(name: str, num_turns: int, num_workers: int) -> dict[str, float]:
    """Mean executions per second of each side over its turns."""
    source, stdin, expected = _PROGRAMS[name]
    sandbox = LocalSandbox(num_workers=num_workers)
    with tempfile.TemporaryDirectory() as folder:
        sides = {"sandbox": Warm(source, sandbox).run, "plain": Plain(source, Path(folder), num_workers).run}
        rates: dict[str, list[float]] = {side: [] for side in sides}
        for run in sides.values():
            await run(stdin)
        for _ in range(num_turns):
            for side, run in sides.items():
                rates[side].append(await turn(run, stdin, expected, num_workers))
    await sandbox.aclose()
    means = {side: sum(values) / num_turns for side, values in rates.items()}
    return {f"{name}/{side}_per_second": mean for side, mean in means.items()} | {
        f"{name}/ratio": means["sandbox"] / means["plain"]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="for each side and program")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--save", action="store_true", help="write a record under results/")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    for name in _PROGRAMS:
        found = asyncio.run(measure(name, options.seconds, options.workers))
        figures |= found
        print(
            f"{name}: sandbox {found[f'{name}/sandbox_per_second']:.0f} executions/s, "
            f"plain subprocess {found[f'{name}/plain_per_second']:.0f}, ratio {found[f'{name}/ratio']:.1f}"
        )
    if options.save:
        save_record("sandbox", vars(options), figures)


if __name__ == "__main__":
    main()

"""Seconds from the command to the end of the first step, and to the answer of `cookhouse sample`; against another tree.

python -m bench.start --against ../before --rounds 5

Both trees take turns. Each has its own `.venv/bin/cookhouse`. The first round is not counted: it may build kernels.
Processor seconds are of the command and its engine together, to the end of the command.
"""

import argparse
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RUN = ("run", "supervised", "max_steps=1", "log_path=mine")
SAMPLE = ("sample", "cookhouse/tiny", "What is 2+2?", "--max-tokens", "1")


@dataclass(frozen=True, kw_only=True)
class Start:
    """One command."""

    first_seconds: float
    """To the first line that tells of the outcome."""
    seconds: float
    processor_seconds: float


def measured(tree: Path, arguments: Sequence[str], outcome: str) -> Start:
    """Run a command in a folder of its own; `outcome` begins the line that is waited for, empty: any."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TINKER_")}
    before = _children_seconds()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        command = [str(tree.resolve() / ".venv/bin/cookhouse"), *arguments]
        first = None
        with subprocess.Popen(
            command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if first is None and line.startswith(outcome):
                    first = time.perf_counter() - start
        seconds = time.perf_counter() - start
        assert process.returncode == 0, command
        assert first is not None, f"no line begins with {outcome!r}"
    return Start(first_seconds=first, seconds=seconds, processor_seconds=_children_seconds() - before)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="a tree of another version, with its .venv")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    trees = {"here": Path(__file__).parents[1]} | ({} if options.against is None else {"before": options.against})
    for arguments, outcome in ((RUN, "step 1"), (SAMPLE, "")):
        found: dict[str, list[Start]] = {name: [] for name in trees}
        for _ in range(options.rounds + 1):
            for name, tree in trees.items():
                found[name].append(measured(tree, arguments, outcome))
        print(f"cookhouse {' '.join(arguments)}; load {os.getloadavg()[0]:.1f}")
        for name, starts in found.items():
            counted = starts[1:]
            print(
                f"  {name:<8} first {statistics.median(each.first_seconds for each in counted):5.2f} s, "
                f"end {statistics.median(each.seconds for each in counted):5.2f} s, "
                f"processor {statistics.median(each.processor_seconds for each in counted):5.2f} s"
            )


if __name__ == "__main__":
    main()

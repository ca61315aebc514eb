"""Successive halving against the full sweep: 64 settings of supervised training on the embedded model.

    python -m bench.halving [--max-steps 128] [--min-steps 2 3 4] [--save]

Both sides are `cookhouse sweep` with one run at a time, in a process of its own, from the command to its end; neither
measures the weights before training. Halving runs once for each first rung. Runs are compared by the held-out loss. Of
the winner of each it prints that loss and how many of the held-out questions it answers exactly, with their standard
errors, and the rank of the winner of halving in the full sweep.
"""

import argparse
import csv
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness import parse_options, save_record

METRIC = "test/nll"
SCORE = "test/exact_match"
GRID = (
    "learning_rate=2e-4,5e-4,1e-3,2e-3,4e-3,8e-3,1.6e-2,3.2e-2",
    "lora_rank=4,8,16,32",
    "batch_size=16,32",
)
SETTINGS = (
    "num_epochs=5",
    "n_train_samples=1000",
    "num_samples=0",
    "num_shown_examples=0",
    "save_every=0",
    "eval_max_tokens=16",
    "eval_at_start=false",
)


@dataclass(frozen=True, kw_only=True)
class Side:
    """A sweep that is over."""

    seconds: float
    processor_seconds: float
    """Of the command and its engine together."""
    steps: int
    """Of all runs together."""
    launches: int
    """Starts and resumes of runs."""
    values: dict[str, float]
    """The metric of each run that took all its steps, by name."""
    best: str
    loss: float
    """Of the best; by it they are compared."""
    loss_error: float
    score: float
    score_error: float


def swept(folder: Path, grid: Sequence[str], max_steps: int, *options: str) -> Side:
    """Run a sweep, and read what it left."""
    command = [sys.executable, "-m", "cookhouse", "sweep", "supervised", *grid, *SETTINGS, f"max_steps={max_steps}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TINKER_")}
    start, before = time.perf_counter(), _children_seconds()
    subprocess.run(
        [*command, f"log_path={folder}", "--metric", METRIC, *options],
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    seconds, processor_seconds = time.perf_counter() - start, _children_seconds() - before
    with (folder / "sweep.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    finished = {row["run"]: float(row[METRIC]) for row in rows if row["state"] == "finished" and row[METRIC]}
    best = next(row["run"] for row in rows if row["best"] == "1")
    lines = (folder / best / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    last = next(row for line in reversed(lines) if SCORE in (row := json.loads(line)))
    return Side(
        seconds=seconds,
        processor_seconds=processor_seconds,
        steps=num_steps(rows, max_steps),
        launches=sum(len(json.loads((folder / row["run"] / "run.json").read_text())["launches"]) for row in rows),
        values={name: value for name, value in finished.items() if math.isfinite(value)},
        best=best,
        loss=last[METRIC],
        loss_error=last[f"{METRIC}_stderr"],
        score=last[SCORE],
        score_error=last[f"{SCORE}_stderr"],
    )


def num_steps(rows: Sequence[Mapping[str, str]], max_steps: int) -> int:
    """Of all runs of a table together. A full sweep has no column of steps; a run without any was never measured."""
    return sum(int(row["steps"] or 0) if "steps" in row else max_steps for row in rows)


def is_within_error(halved: Side, full: Side) -> bool:
    """Whether the loss of halving's best is at most one standard error above that of the full sweep's."""
    return halved.loss - full.loss <= full.loss_error


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print both sides, and save them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", nargs="+", default=list(GRID), metavar="KEY=A,B", help="what is swept")
    parser.add_argument("--max-steps", type=int, default=128)
    parser.add_argument("--min-steps", type=int, nargs="+", default=[2], metavar="N", help="first rungs, one by one")
    parser.add_argument("--reduction-factor", type=int, default=3)
    options = parse_options(parser)
    halved = {}
    with tempfile.TemporaryDirectory() as folder:
        for steps in options.min_steps:
            halving = ("--min-steps", str(steps), "--reduction-factor", str(options.reduction_factor))
            halved[steps] = swept(Path(folder) / f"from-{steps}", options.grid, options.max_steps, *halving)
            report(f"halving from step {steps}", halved[steps])
        full = swept(Path(folder) / "full", options.grid, options.max_steps)
        report("full sweep", full)
    figures = {
        "full_seconds": full.seconds,
        "full_steps": float(full.steps),
        "full_loss": full.loss,
        "full_loss_error": full.loss_error,
        "full_score": full.score,
        "full_score_error": full.score_error,
    }
    for steps, side in halved.items():
        found = compared(side, full)
        figures |= {f"{name}_from_{steps}": value for name, value in found.items()}
        print(f"from step {steps}: time {found['time_ratio']:.3f} x, of processor time ", end="")
        print(f"{found['processor_time_ratio']:.3f} x, of steps {side.steps / full.steps:.3f} x")
        print(f"  its best has rank {found['rank']:.0f} of {len(full.values)} in the full sweep, by {METRIC}")
        within = "within" if is_within_error(side, full) else "NOT within"
        print(f"  its loss is {within} one standard error of the full sweep's best")
    if options.save:
        save_record("halving", vars(options), figures)


def compared(halved: Side, full: Side) -> dict[str, float]:
    """What halving took of the full sweep's time, and how good its best is."""
    return {
        "halved_seconds": halved.seconds,
        "time_ratio": halved.seconds / full.seconds,
        "processor_time_ratio": halved.processor_seconds / full.processor_seconds,
        "halved_steps": float(halved.steps),
        "halved_loss": halved.loss,
        "halved_score": halved.score,
        "rank": float(sorted(full.values.values()).index(full.values[halved.best]) + 1),
    }


def report(name: str, side: Side) -> None:
    """Print a side."""
    loss = f"{METRIC} {side.loss:.4f} ± {side.loss_error:.4f}"
    score = f"{SCORE} {side.score:.3f} ± {side.score_error:.3f}"
    took = f"{side.seconds:.0f} s, {side.processor_seconds:.0f} s of processor time"
    print(f"{name}: {took}, {side.steps:,} steps in {side.launches} launches", flush=True)
    print(f"  {side.best}: {loss}, {score}", flush=True)


if __name__ == "__main__":
    main()

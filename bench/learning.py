"""Whether a precision learns as fp32 does: `rl_basic` on the embedded model, some seeds in each.

    python -m bench.learning [--seeds 5] [--precisions float32 bfloat16]

Of each run: the share of held-out problems solved before and after, the mean reward of its last ten steps, and the mean
of `optim/kl_sample_train_v2`, how far the sampler is from the trainer. Each as mean ± standard error over the seeds.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from bench.harness import parse_options, save_record

LAST = 10


def learn(precision: str, seed: int, settings: Sequence[str]) -> dict[str, float]:
    """Train once, in processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        log_path = Path(folder) / "run"
        subprocess.run(
            [sys.executable, "-m", "cookhouse", "run", "rl_basic", f"seed={seed}", f"log_path={log_path}", *settings],
            env=os.environ | {"COOKHOUSE_PRECISION": precision},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        lines = (log_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return summary([json.loads(line) for line in lines])


def summary(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The figures of one run, by its rows of metrics."""
    solved = [row["test/env/all/correct"] for row in rows if "test/env/all/correct" in row]
    rewards = [row["env/all/reward/total"] for row in rows if "env/all/reward/total" in row]
    distances = [row["optim/kl_sample_train_v2"] for row in rows if "optim/kl_sample_train_v2" in row]
    return {
        "solved_before": solved[0],
        "solved_after": solved[-1],
        "last_reward": fmean(rewards[-LAST:]),
        "kl_v2": fmean(distances),
    }


def standard_error(values: Sequence[float]) -> float:
    """Of their mean."""
    return stdev(values) / math.sqrt(len(values))


def main() -> None:
    """Print each precision's figures, and save them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of the recipe")
    options = parse_options(parser)
    if options.seeds < 2:
        parser.error("--seeds must be at least 2, for a standard error")
    figures: dict[str, float] = {}
    found: dict[str, list[dict[str, float]]] = {precision: [] for precision in options.precisions}
    for seed in range(options.seeds):
        for precision, runs in found.items():
            runs.append(learn(precision, seed, options.set))
            print(f"seed {seed} {precision:9}", {name: round(value, 6) for name, value in runs[-1].items()}, flush=True)
    for precision, runs in found.items():
        for name in runs[0]:
            values = [run[name] for run in runs]
            figures |= {f"{precision}_{name}": fmean(values), f"{precision}_{name}_error": standard_error(values)}
            print(f"{precision:9} {name:14} {fmean(values):.3g} ± {standard_error(values):.2g}")
    if options.save:
        save_record("learning", vars(options), figures)


if __name__ == "__main__":
    main()

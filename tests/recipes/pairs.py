"""Rows of preferences that tests of the recipe dpo train on, and small settings for it."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cookhouse.recipes.dpo import Config

MakeConfig = Callable[..., Config]
Rows = Sequence[Mapping[str, Any]]


def write(path: Path, rows: Rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def some(start: int, count: int) -> Rows:
    numbers = range(start, start + count)
    return [{"prompt": f"say {n}", "chosen": f"{n} is said", "rejected": f"no, not {n}"} for n in numbers]


def config_maker(folder: Path, train: Rows, test: Rows, **usual: Any) -> MakeConfig:
    """What makes settings of runs in a folder, over these rows; `usual` holds unless a test says otherwise."""
    small: dict[str, Any] = {
        "dataset_path": write(folder / "train.jsonl", train),
        "test_path": write(folder / "test.jsonl", test),
        "log_path": str(folder / "run"),
        "batch_size": 4,
        "num_epochs": 2,
        "save_every": 2,
        "learning_rate": 0.1,
    }

    def make(**settings: Any) -> Config:
        asked = usual | settings
        answers = {"eval_max_tokens": 8} if asked.get("num_eval", 1) else {}
        return Config(**(small | answers | asked))

    return make

"""Small supervised runs over the fake service, with the embedded tokenizer and conversations of two words."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cookhouse.recipes.supervised import SupervisedConfig


@pytest.fixture
def conversations(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str = "train.jsonl", count: int = 12) -> Path:
        rows = [
            {"messages": [{"role": "user", "content": f"say {n}"}, {"role": "assistant", "content": f"{n} is said"}]}
            for n in range(count)
        ]
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def make_config(tmp_path: Path, conversations: Callable[..., Path]) -> Callable[..., SupervisedConfig]:
    train, test = conversations(), conversations("test.jsonl", 4)

    def make(**settings: Any) -> SupervisedConfig:
        small: dict[str, Any] = {
            "dataset_path": str(train),
            "test_path": str(test),
            "log_path": str(tmp_path / "run"),
            "batch_size": 4,
            "num_epochs": 2,
            "save_every": 2,
            "num_samples": 2,
        }
        answers = {"eval_max_tokens": 8} if settings.get("num_eval", 1) else {}
        return SupervisedConfig(**(small | answers | settings))

    return make


@pytest.fixture(autouse=True)
def _loggers_are_put_back() -> Any:
    yield
    assert not logging.getLogger("cookhouse").handlers, "a run left its log file open"

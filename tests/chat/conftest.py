"""Real tokenizers, and conversations that people wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from cookhouse.chat import Message
from cookhouse.models.tokenizers import get_tokenizer


@pytest.fixture(scope="session")
def qwen3(shared: Path) -> Any:
    """Qwen3's own tokenizer, with its chat template."""
    return get_tokenizer(str(shared / "tokenizers/qwen3"))


@pytest.fixture(scope="session")
def tiny() -> Any:
    """The embedded model's tokenizer."""
    return get_tokenizer("cookhouse/tiny")


@pytest.fixture(params=["qwen3", "tiny"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def dialogs(shared: Path) -> list[list[Message]]:
    """Multi-turn dialogs (those that end with the assistant) and single instructions, as written by people."""
    found: list[list[Message]] = []
    for line in (shared / "data/taskmaster4/dialogs_600.jsonl").read_text().strip().split("\n"):
        messages: list[Message] = [{"role": u["speaker"], "content": u["text"]} for u in json.loads(line)["utterances"]]
        if messages and messages[-1]["role"] == "assistant":
            found.append(messages)
    found = found[:60]
    for line in (shared / "data/self_instruct/seed_tasks.jsonl").read_text().strip().split("\n"):
        task = json.loads(line)
        asked = "\n\n".join(filter(None, [task["instruction"], task["instances"][0]["input"]]))
        answer = task["instances"][0]["output"]
        found.append([{"role": "user", "content": asked}, {"role": "assistant", "content": answer}])
    return found

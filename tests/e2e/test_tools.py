"""A tool of one's own, as the page about environments has it: a warm start, then steps by reward."""

from itertools import chain
from pathlib import Path

import pytest
from tests.docs.blocks import blocks_of, commands_of
from tests.e2e.conftest import Cookhouse

from cookhouse.telemetry import read_metrics

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 600.0
ENOUGH = 0.7
"""Of the reward at the end. The base model, which calls no tool, earns none; the warm start does most of it."""


def test_calls_are_learned_by_the_settings_of_the_page(cookhouse: Cookhouse) -> None:
    """Catches a warm start from which nothing is learned, and settings by which calls become worse."""
    shell = [block.text for block in blocks_of(ROOT / "docs/how-to/own-environment.md") if block.language == "sh"]
    warm_start, learning = [
        command.words[1:]
        for command in chain.from_iterable(map(commands_of, shell))
        if "shop.py:" in " ".join(command.words)
    ]
    written = cookhouse.run("new", "tools", "shop")
    assert written.returncode == 0, written.stdout + written.stderr
    for words in (warm_start, (*learning, "log_path=learned")):
        done = cookhouse.run(*words, patience=PATIENCE_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
    rewards = [
        row["env/all/reward/total"]
        for row in read_metrics(cookhouse.folder / "learned" / "metrics.jsonl")
        if "env/all/reward/total" in row
    ]
    assert rewards
    assert sum(rewards[-3:]) / 3 > ENOUGH, rewards

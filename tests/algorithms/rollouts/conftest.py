"""Rollouts and a loop over the fake service."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.algorithms.rollouts.rl_kit import RLKit


@pytest.fixture
def new_rl_kit(tmp_path: Path) -> Iterator[Callable[[str], RLKit]]:
    kits: list[RLKit] = []

    def make(name: str) -> RLKit:
        kits.append(RLKit(tmp_path / name))
        return kits[-1]

    yield make
    for rl_kit in kits:
        rl_kit.telemetry.close()


@pytest.fixture
def rl_kit(new_rl_kit: Callable[[str], RLKit]) -> RLKit:
    return new_rl_kit("run")

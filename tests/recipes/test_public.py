"""What the client half's packages export is there, sorted, and nothing else."""

from importlib import import_module

import pytest


@pytest.mark.parametrize("package", ["recipes", "telemetry", "training", "workflows"])
def test_public_names_are_sorted_and_there(package: str) -> None:
    module = import_module(f"cookhouse.{package}")
    assert module.__all__ == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)

"""What the client half's packages say they export is there; the linter keeps it sorted."""

from importlib import import_module

import pytest


@pytest.mark.parametrize("package", ["recipes", "telemetry", "training", "workflows"])
def test_public_names_are_there(package: str) -> None:
    module = import_module(f"cookhouse.{package}")
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)

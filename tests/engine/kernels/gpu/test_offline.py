"""Catches what Triton's interpreter lets pass and its compiler does not, and kernels that a GPU would run slowly."""

import pytest

from tests.engine.kernels.gpu.programs import compiled_by


@pytest.mark.slow
def test_kernels_of_training_compile() -> None:
    """Compiling needs no GPU, and a process in which Triton was imported without its interpreter."""
    pytest.importorskip("triton")
    found = compiled_by("offline.py")
    assert len(found) == 60
    for label, usage in found.items():
        # The smallest GPU has 99 KiB for all programs on a processor: at least one fits.
        assert usage["shared"] <= 99 * 1024, label
        assert usage.get("STACK", 0) == 0, f"{label} spills registers"
        # The normalizer of a row, and where its targets are: numbers by themselves.
        if "of one" not in label:
            assert usage["narrow"] <= (5 if "softmax" in label or "log_sum_exp" in label else 0), label

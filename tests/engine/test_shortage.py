"""Shortages of memory, by whatever library tells them, and what is said of them."""

import pytest
import torch

from cookhouse.engine import shortage
from cookhouse.engine.shortage import ShortageError, explained, is_shortage
from cookhouse.errors import InputError

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (ShortageError("a pass takes more"), True),
        (RuntimeError("could not create a primitive"), True),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory"),
            True,
        ),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (RuntimeError("a launch failed"), False),
        (InputError("the prompt says: out of memory"), False),
    ],
)
def test_a_shortage_is_known_and_told_with_figures(
    error: Exception, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a library's words handed to a client, and another error that is taken for a shortage."""
    monkeypatch.setattr(shortage, "free_bytes", lambda _: 3 * 2**20)
    assert is_shortage(error) == expected
    found = explained(error, "a step of samples", CPU, "sample fewer")
    if expected and not isinstance(error, InputError):
        assert isinstance(found, ShortageError)
        assert str(found).startswith("memory ran out in a step of samples, and 3.00 MiB are free now; sample fewer (")
    else:
        assert found is error

"""Launch of a kernel."""

from typing import Any

import torch
from torch import Tensor


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, num_warps: int, **constants: Any) -> None:
    """Start a kernel on the device that its first argument lies on; nothing if its grid is empty."""
    if 0 in grid:
        return
    assert isinstance(arguments[0], Tensor)
    # Triton launches on the current device, which need not be that of the tensors.
    with torch.cuda.device_of(arguments[0]):  # type: ignore[no-untyped-call]
        # Fused multiply-add rounds once, not twice; unless told, Triton warns that its default will change.
        kernel[grid](*arguments, **constants, num_warps=num_warps, enable_fp_fusion=True)

"""Small arrays of the host, sent to where the model computes."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def upload(array: NDArray[Any], device: torch.device) -> Tensor:
    """The array as a tensor; a GPU gets it in the order of its stream, and the host does not wait for that.

    On a CPU it shares the array's memory.
    """
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)

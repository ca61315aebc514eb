"""What training costs, by counting, and what a device could do.

Legend: S sequences.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.harness import now

_PEAKS = (
    ("B200", 2250, "https://www.nvidia.com/en-us/data-center/dgx-b200/"),
    ("H200 NVL", 835, "https://www.nvidia.com/en-us/data-center/h200/"),
    ("H200", 989, "https://www.nvidia.com/en-us/data-center/h200/"),
    ("H100 NVL", 835, "https://www.nvidia.com/en-us/data-center/h100/"),
    ("H100 PCIe", 756, "https://www.nvidia.com/en-us/data-center/h100/"),
    ("H100", 989, "https://www.nvidia.com/en-us/data-center/h100/"),
    ("A100", 312, "https://www.nvidia.com/en-us/data-center/a100/"),
    ("L40S", 362, "https://www.nvidia.com/en-us/data-center/l40s/"),
    ("RTX 4090", 165, "NVIDIA Ada GPU architecture, appendix A"),
)
"""Part of a GPU's name, dense bf16 TFLOP/s with sums in fp32, the vendor's datasheet (which may show twice as much, for
sparse matrices). The first that matches counts."""


@dataclass(frozen=True, kw_only=True)
class TrainingWork:
    """Floating-point operations of a forward and a backward that train an adapter, two for a multiplication with its
    addition. What is computed a second time to save memory does not count.
    """

    num_frozen: int
    """Weights of the matrices that an adapter sits beside. Each token multiplies by them twice: forward, and for the
    gradient of its activations."""
    num_adapter: int
    """Weights that are trained, three times: their own gradient, too."""
    attention_features: int
    """Query heads times features of a head, summed over the layers."""

    def flops(self, lengths_S: Sequence[int]) -> int:
        """Of sequences of some lengths, in which a position attends to itself and those before it."""
        num_pairs = sum(length * (length + 1) // 2 for length in lengths_S)
        return self.of_tokens(sum(lengths_S)) + self.of_pairs(num_pairs)

    def of_tokens(self, num_tokens: int) -> int:
        """Of the products with weights."""
        return num_tokens * (4 * self.num_frozen + 6 * self.num_adapter)

    def of_pairs(self, num_pairs: int) -> int:
        """Of attention between so many queries and keys: scores and sums of values, once forward and twice backward."""
        return 12 * num_pairs * self.attention_features


def training_work(base: Any, layout: Any) -> TrainingWork:
    """Of an adapter of some layout over a `BaseModel` that has no experts: all weights serve every token."""
    sites = base.sites
    assert not any(site.num_experts for site in sites), "experts serve some tokens each"
    shape, config = base.cache_shape, base.config
    return TrainingWork(
        num_frozen=sum(site.in_features * site.out_features for site in sites),
        num_adapter=layout.num_parameters,
        attention_features=config.num_attention_heads * sum(layer.key_dim for layer in shape.layers if layer),
    )


def peak_flops(device: str, precision: str, given_tflops: float | None) -> tuple[float, str]:
    """FLOP/s that the device can reach, and where the figure comes from."""
    import torch

    if given_tflops is not None:
        return given_tflops * 1e12, "as given"
    if device == "cuda" and precision == "bfloat16":
        name = torch.cuda.get_device_name()
        for part, tflops, source in _PEAKS:
            if part in name:
                return tflops * 1e12, f"{name}, dense bf16, {source}"
    size = 2048 if device == "cpu" else 16_384
    source = f"measured: the best product of two {precision} matrices of {size} × {size}"
    return measured_flops(device, precision, size), source


def measured_flops(device: str, precision: str, size: int) -> float:
    """FLOP/s of the best product of two square matrices of `size`."""
    import torch

    a, b = (torch.randn(size, size, device=device, dtype=getattr(torch, precision)) for _ in range(2))
    best = float("inf")
    deadline = time.perf_counter() + 3
    while time.perf_counter() < deadline:
        start = now(device)
        torch.mm(a, b)
        best = min(best, now(device) - start)
    return 2 * size**3 / best

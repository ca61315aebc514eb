"""Kernels of training on a CPU, compiled for the machine at first use; without a compiler torch takes their place."""

from cookhouse.engine.native.attention import CausalAttention
from cookhouse.engine.native.build import build
from cookhouse.engine.native.kernels import LANES, TILE, CpuKernels, LoraSegment, cpu_kernels

__all__ = ["LANES", "TILE", "CausalAttention", "CpuKernels", "LoraSegment", "build", "cpu_kernels"]

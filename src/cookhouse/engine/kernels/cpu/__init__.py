"""Kernels of training on a CPU, compiled for the machine at first use; without a compiler torch takes their place."""

from cookhouse.engine.kernels.cpu.attention import CausalAttention
from cookhouse.engine.kernels.cpu.build import build
from cookhouse.engine.kernels.cpu.functions import LANES, TILE, CpuKernels, LoraSegment, cpu_kernels

__all__ = ["LANES", "TILE", "CausalAttention", "CpuKernels", "LoraSegment", "build", "cpu_kernels"]

"""Kernels of training on a CPU, of the wheel or compiled at first use; torch takes their place where there are none."""

from cookhouse.engine.kernels.cpu.attention import CausalAttention
from cookhouse.engine.kernels.cpu.build import build
from cookhouse.engine.kernels.cpu.functions import LANES, TILE, CpuKernels, LoraSegment, cpu_kernels

__all__ = ["LANES", "TILE", "CausalAttention", "CpuKernels", "LoraSegment", "build", "cpu_kernels"]

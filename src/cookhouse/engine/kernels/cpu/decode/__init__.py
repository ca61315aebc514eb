"""The fused pass of dense models on a CPU, and the forward of training in bf16."""

from cookhouse.engine.kernels.cpu.decode.build import library

__all__ = ["library"]

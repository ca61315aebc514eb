"""The fused pass of dense models on a CPU, compiled at first use."""

from cookhouse.engine.sampler.native.kernel import DecodeKernel

__all__ = ["DecodeKernel"]

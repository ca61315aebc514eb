"""The fused decoding step for small models on a CPU, compiled at first use."""

from cookhouse.engine.sampler.native.kernel import DecodeKernel

__all__ = ["DecodeKernel"]

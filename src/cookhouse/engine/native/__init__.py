"""Kernels of training on a CPU, compiled for the machine at first use; without a compiler torch takes their place."""

from cookhouse.engine.native.build import build
from cookhouse.engine.native.functions import CausalAttention, RmsNorm, RotateHeads, SiluGate
from cookhouse.engine.native.kernels import LANES, Kernels, LoraSegment, kernels_for

__all__ = [
    "LANES",
    "CausalAttention",
    "Kernels",
    "LoraSegment",
    "RmsNorm",
    "RotateHeads",
    "SiluGate",
    "build",
    "kernels_for",
]

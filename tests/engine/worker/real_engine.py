"""The real engine, made without arguments: apart from the others, which need no torch."""

import torch

from cookhouse.assets import TINY_MODEL
from cookhouse.engine import TorchEngine


class TinyEngine(TorchEngine):
    """Over the embedded model, in fp32 on a CPU, by the thread that makes it alone: sums are the same in each."""

    precision = "float32"
    num_threads = 1

    def __init__(self) -> None:
        super().__init__(base_models=[TINY_MODEL], device="cpu", precision=self.precision)
        torch.set_num_threads(self.num_threads)


class TwoThreads(TinyEngine):
    """Sums are parted, as on any machine with cores."""

    num_threads = 2


class TwoThreadsBf16(TwoThreads):
    precision = "bfloat16"

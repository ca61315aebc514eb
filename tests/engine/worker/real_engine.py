"""The real engine, made without arguments: apart from the others, which need no torch."""

import torch

from cookhouse.assets import TINY_MODEL
from cookhouse.engine import TorchEngine


class TinyEngine(TorchEngine):
    """Over the embedded model, in fp32 on a CPU, by the thread that makes it alone: sums are the same in each."""

    def __init__(self) -> None:
        super().__init__(base_models=[TINY_MODEL], device="cpu", precision="float32")
        torch.set_num_threads(1)

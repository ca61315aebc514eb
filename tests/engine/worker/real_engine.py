"""The real engine, made without arguments: apart from the others, which need no torch."""

from cookhouse.assets import TINY_MODEL
from cookhouse.engine import TorchEngine


class TinyEngine(TorchEngine):
    """Over the embedded model, in fp32 on a CPU."""

    def __init__(self) -> None:
        super().__init__(base_models=[TINY_MODEL], device="cpu", precision="float32")

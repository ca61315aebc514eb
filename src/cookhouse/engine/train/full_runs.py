"""Makes and fills runs that train all weights, and snapshots of them, within the memory that there is."""

import gc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import torch

from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.files.manifest import holds_gradient
from cookhouse.engine.model.base_models import BaseModels
from cookhouse.engine.model.pretrained import num_parameters
from cookhouse.engine.train.full import FullModel, FullWeights
from cookhouse.engine.train.full_checkpoint import read_full
from cookhouse.errors import InputError

_T = TypeVar("_T")
_STATE_BYTES = 20
"""Per parameter, fp32: weights, gradient, two moments, and the gradient of the request that is running."""


class FullRuns:
    """`admit` makes room for a number of bytes, or refuses: what takes them, how many, how many at the most while it is
    made, the way out.
    """

    def __init__(
        self, bases: BaseModels, admit: Callable[[str, int, int, str], None], device: torch.device, dtype: torch.dtype
    ) -> None:
        self._bases = bases
        self._admit = admit
        self._device = device
        self._dtype = dtype

    def create(self, model_id: str, base_model: str, spec: LoraSpec, running: Iterable[FullModel]) -> FullModel:
        """A run over the base model as it was published.

        Raises:
            InputError: memory does not suffice, a running one is over the same base model, or only some parts of the
                model are to be trained.
        """
        if not (spec.train_attn and spec.train_mlp and spec.train_unembed):
            raise InputError(
                "rank 0 trains all weights, and train_attn, train_mlp or train_unembed is false; leave them true, or "
                "train an adapter, with a rank of at least 1"
            )
        if any(other.base.name == base_model for other in running):
            raise InputError(
                f"another run trains all weights of {base_model!r}, one at a time can; wait until its session has "
                "ended, or train an adapter, with a rank of at least 1"
            )
        rounded = 0 if self._dtype == torch.float32 else self._dtype.itemsize
        self._reserve(model_id, base_model, "training all weights", _STATE_BYTES + rounded)
        model = self._kept(model_id, lambda: FullModel.load(base_model, self._device, self._dtype))
        self._bases.bound(model.base)
        return model

    @staticmethod
    def fill(model: FullModel, folder: Path, *, with_optimizer: bool, with_gradient: bool) -> None:
        """Go on from a checkpoint; without its optimizer, with a fresh one; without a gradient, from zero.

        Raises:
            InputError: the folder holds no such checkpoint; nothing has changed.
        """
        into = model.tensors(with_optimizer=with_optimizer)
        has_gradient = with_gradient and holds_gradient(folder)
        if has_gradient:
            into["gradient"] = model.gradient
        num_steps = read_full(folder, model.layout, into, takes_infinite=with_gradient)
        if not has_gradient:
            model.gradient.zero_()
        model.has_gradient = has_gradient
        if not with_optimizer:
            model.adam_m.zero_()
            model.adam_v.zero_()
        model.num_steps = num_steps if with_optimizer else 0
        model.refresh()

    def snapshot(self, snapshot_id: str, model: FullModel) -> FullWeights:
        """A copy of a run's weights, to sample from.

        Raises:
            InputError: memory does not suffice.
        """
        self._reserve(snapshot_id, model.base.name, "a snapshot of all weights", self._dtype.itemsize)
        return self._kept(snapshot_id, model.frozen_weights)

    def load_snapshot(self, snapshot_id: str, base_model: str, folder: Path) -> FullWeights:
        """The weights of a checkpoint, to sample from.

        Raises:
            InputError: memory does not suffice, or the folder holds no such checkpoint.
        """

        def load() -> FullWeights:
            weights = FullWeights.load(base_model, self._device, self._dtype)
            read_full(folder, weights.layout, {"params": weights.flat})
            return weights

        size = self._dtype.itemsize
        # They are read, and then copied to where they lie side by side.
        self._reserve(snapshot_id, base_model, "a snapshot of all weights", size, at_most=2 * size)
        return self._kept(snapshot_id, load)

    def free(self, key: str) -> None:
        """Count a run or snapshot no more, which the caller has let go of; any other key is ignored."""
        if self._bases.release(key):
            gc.collect()  # modules refer to each other in circles

    def _reserve(self, key: str, base_model: str, what: str, size: int, *, at_most: int = 0) -> None:
        """Count `size` bytes per parameter; `at_most` so many are there while they are made, if that is more."""
        self._bases.describe(base_model)
        number = num_parameters(base_model)
        way_out = "train an adapter (rank 1 or more), use a smaller base model, or end other sessions"
        self._admit(f"{what} of {base_model!r}", number * size, number * max(size, at_most), way_out)
        self._bases.reserve(key, number * size)

    def _kept(self, key: str, make: Callable[[], _T]) -> _T:
        """Result of `make`; the memory that is counted under the key is free again if it cannot."""
        try:
            return make()
        except BaseException:
            self.free(key)
            raise

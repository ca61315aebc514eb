"""Admission of what a caller asks an engine to keep, by the memory that it takes now and later."""

from collections.abc import Callable, Collection, Iterable

import torch

from cookhouse.engine.budget import Budget, Purpose
from cookhouse.engine.lora.adapter import Adapter
from cookhouse.engine.lora.lora import AdapterLayout
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.model.base_models import BaseModels
from cookhouse.engine.sampler import Samplers
from cookhouse.engine.train.full import FullModel
from cookhouse.errors import InputError

_STATE_BYTES = 16
"""Per parameter of a run, fp32: weights, gradient and two moments."""
_REQUEST_BYTES = 4
"""Per parameter, fp32: the gradient of a request while it runs."""
_PROMISED_SNAPSHOTS = 2
"""Of each adapter, one in use and the next: a run that has been admitted can publish."""


class Admission:
    """Asks the budget of a device for base models, runs and snapshots. What nobody uses makes way for them."""

    def __init__(
        self,
        budget: Budget,
        bases: BaseModels,
        samplers: Samplers,
        full_samplers: Samplers,
        users: Callable[[str], str],
        dtype: torch.dtype,
    ) -> None:
        """`users` says in words what uses a base model, or nothing; `samplers` are those of base models."""
        self._budget = budget
        self._bases = bases
        self._samplers = samplers
        self._full_samplers = full_samplers
        self._users = users
        self._request_bytes = _REQUEST_BYTES + (0 if dtype == torch.float32 else dtype.itemsize)
        """Per parameter of an adapter: a request computes with a rounded copy of the weights."""
        self._weight_bytes = dtype.itemsize
        """Per parameter of a snapshot."""

    def check(
        self, what: str, num_bytes: int, way_out: str, *, keep: Collection[str] = (), but_for: Collection[Purpose] = ()
    ) -> None:
        """Let `num_bytes` fit into memory. What nobody uses makes way: caches and packed weights, then base models that
        are not in `keep`, if they suffice. `but_for` names the promises for whom they were made.

        Raises:
            InputError: they do not fit; the message says what is asked for, what is spare, and the way out.
        """

        def is_short(by: int = 0) -> bool:
            return self._budget.spare_bytes(num_bytes, but_for=but_for) + by < num_bytes

        self._samplers.make_way(is_short)
        self._full_samplers.make_way(is_short)
        idle = [name for name in self._bases if name not in keep and not self._users(name)]
        if not is_short(by=sum(map(self._bases.num_bytes, idle))):
            for name in idle:
                if is_short():
                    self.drop([name])
        self._budget.check(num_bytes, what, way_out, but_for=but_for)

    def room_bytes(self) -> int:
        """Bytes that a new model may take, with those that would make way for it."""
        idle = sum(self._bases.num_bytes(name) for name in self._bases if not self._users(name))
        return self._budget.spare_bytes(0) + self._samplers.idle_bytes + self._full_samplers.idle_bytes + idle

    def check_adapter(self, base_model: str, layout: AdapterLayout) -> None:
        """Let an adapter fit, and what it will take later.

        Raises:
            InputError: see `check`.
        """
        num_bytes = layout.num_parameters * (_STATE_BYTES + self._request_bytes + self._snapshot_bytes)
        way_out = "use a lower rank or a smaller base model, or end other sessions"
        what = f"an adapter of rank {layout.spec.rank} over {base_model!r}"
        self.check(what, num_bytes, way_out, keep={base_model})

    def check_snapshot(self, base_model: str, layout: AdapterLayout) -> None:
        """Let a snapshot of an adapter fit, which was promised to it.

        Raises:
            InputError: see `check`.
        """
        what = f"a snapshot of an adapter of rank {layout.spec.rank} over {base_model!r}"
        num_bytes = layout.num_parameters * self._weight_bytes
        way_out = "end other sessions, or use a lower rank"
        self.check(what, num_bytes, way_out, keep={base_model}, but_for={"snapshot"})

    def check_full(self, what: str, num_bytes: int, peak_bytes: int, way_out: str) -> None:
        """Let what trains or samples from all weights fit, in addition to the base models; `peak_bytes` are there at
        once while it is made.

        Raises:
            InputError: see `check`.
        """
        self.drop(self._bases.room_for(what, num_bytes, self._users))
        self.check(what, peak_bytes, way_out)

    def promise_unpacked(self, base: BaseModel, way_out: str, keep: Collection[str]) -> None:
        """Keep memory for an output projection without its original, which is unpacked to score prompts.

        Raises:
            InputError: see `check`; the base model is dropped.
        """
        weight = base.head.projection.weight
        if not base.packed.is_dropped(weight):
            return
        num_bytes = weight.numel() * weight.itemsize
        what = f"the output projection of base model {base.name!r}, unpacked to score prompts,"
        try:
            self.check(what, num_bytes, way_out, keep={*keep, base.name})
        except InputError:
            self.drop([base.name])
            raise
        self._budget.promise("pass", _base_key(base.name), num_bytes)

    def drop(self, base_models: Iterable[str]) -> None:
        """Free base models that nobody uses, with what samples from them."""
        for name in base_models:
            self._samplers.pop(name, None)
            self._bases.drop(name)
            self._budget.release(_base_key(name))

    def promise(self, model_id: str, model: Adapter | FullModel) -> None:
        """Count what a model will need besides its state: the gradient of a request while it runs, since those of all
        models may be in one pass, and snapshots of an adapter.
        """
        num_parameters = model.params.numel()
        if isinstance(model, FullModel):
            self._budget.promise("request", _model_key(model_id), num_parameters * _REQUEST_BYTES)
        else:
            self._budget.promise("request", _model_key(model_id), num_parameters * self._request_bytes)
            self._budget.promise("snapshot", _model_key(model_id), num_parameters * self._snapshot_bytes)

    def release(self, model_id: str) -> None:
        """Count a model no more; one that was never admitted is ignored."""
        self._budget.release(_model_key(model_id))

    @property
    def _snapshot_bytes(self) -> int:
        return _PROMISED_SNAPSHOTS * self._weight_bytes


def _model_key(model_id: str) -> str:
    return f"model {model_id}"


def _base_key(name: str) -> str:
    return f"base model {name}"

"""The engine in this process: runs over base models of `transformers`, on one device."""

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from cookhouse.engine.budget import Budget, Purpose
from cookhouse.engine.contract import (
    AdamStep,
    BaseModelInfo,
    ForwardBackward,
    ForwardBackwardOutput,
    LoraSpec,
    MemoryUse,
    SampleOutput,
    SampleRequest,
)
from cookhouse.engine.cores import use_cores
from cookhouse.engine.device import choose_device, choose_dtype
from cookhouse.engine.engine import SampleFailure
from cookhouse.engine.files import checkpoint
from cookhouse.engine.files.external_folder import write_external
from cookhouse.engine.lora.adapter import Adapter
from cookhouse.engine.lora.lora import AdapterLayout, Weights
from cookhouse.engine.memory import cache_bytes, free_bytes, held_bytes, show_bytes, total_bytes
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.model.base_models import BaseModels
from cookhouse.engine.sampler import Sampler
from cookhouse.engine.sampler.native import DecodeKernel
from cookhouse.engine.sampler.self_check import check_cached
from cookhouse.engine.train.full import FullModel, FullWeights
from cookhouse.engine.train.full_checkpoint import write_full
from cookhouse.engine.train.full_runs import FullRuns
from cookhouse.engine.train.losses import check_request
from cookhouse.engine.train.passes import run_alone, run_together
from cookhouse.errors import InputError

_COPY_SHARE = 0.5
"""Of the host's free memory, the most that a copy for a save may take."""
_STATE_BYTES = 16
"""Per parameter of a run, fp32: weights, gradient and two moments."""
_REQUEST_BYTES = 4
"""Per parameter, fp32: the gradient of a request while it runs."""
_PROMISED_SNAPSHOTS = 2
"""Of each adapter, one in use and the next: a run that has been admitted can publish."""
_PACKED_SHARE = 0.5
"""Of the memory that is spare, the most that packed weights may take beside their originals."""
_log = logging.getLogger(__name__)


class TorchEngine:
    """Implements `Engine`. Models, snapshots and samplers are looked up here and nowhere else."""

    def __init__(
        self,
        *,
        base_models: Sequence[str] = (),
        device: str | None = None,
        precision: str | None = None,
        budget_tokens: int | None = None,
        max_base_bytes: int | None = None,
        max_activation_bytes: int | None = None,
        max_cache_bytes: int | None = None,
        samplers_only: bool = False,
    ) -> None:
        """`max_base_bytes` bounds the weights of base models; those named here are loaded at once while they fit.

        `max_cache_bytes` bounds the key-value cache of each; None: by the memory that is free as it grows.

        `budget_tokens` bounds the positions of a training pass; None: by base model and device.
        `max_activation_bytes` bounds what a training pass keeps for its backward, the rest is computed again (0: all of
        it); None: half of the memory that is free when the pass begins.

        `samplers_only` refuses to train, and keeps one copy of the weights: that which sampling reads.
        """
        use_cores()
        self._device = choose_device(device)
        self._dtype = choose_dtype(precision, self._device)
        self._device_total_bytes = None if self._device.type == "cpu" else total_bytes(self._device)
        self._budget_tokens = budget_tokens
        self._samplers_only = samplers_only
        self._budget = Budget(self._device)
        self._bases = BaseModels(
            self._device,
            self._dtype,
            max_base_bytes,
            max_activation_bytes=max_activation_bytes,
            pass_bytes=self._budget.pass_bytes,
            check=check_cached,
        )
        self._samplers: dict[str, Sampler] = {}
        self._models: dict[str, Adapter | FullModel] = {}
        self._snapshots: dict[str, tuple[str, Weights]] = {}
        self._full_snapshots: dict[str, FullWeights] = {}
        self._full_samplers: dict[str, Sampler] = {}
        """By snapshot."""
        self._max_cache_bytes = max_cache_bytes
        self._full_runs = FullRuns(self._bases, self._admit_full, self._device, self._dtype)
        for name in base_models:
            self._bases.describe(name)
            if not self._bases.must_evict(name):
                self._load(name, keep=base_models)

    def describe(self) -> str:
        """See `Engine`."""
        cores = f", {torch.get_num_threads()} threads" if self._device.type == "cpu" else ""
        return f"{self._device}{cores}, {self._dtype}".replace("torch.", "")

    def memory_use(self) -> MemoryUse:
        """See `Engine`."""
        caches = tuple(sampler.cache_use for sampler in self._all_samplers())
        if self._device_total_bytes is None:
            return MemoryUse(caches=caches)
        return MemoryUse(
            caches=caches, device_bytes=held_bytes(self._device), device_total_bytes=self._device_total_bytes
        )

    def base_models(self) -> Sequence[BaseModelInfo]:
        """See `Engine`."""
        return self._bases.infos

    def load_base_model(self, name: str) -> BaseModelInfo:
        """See `Engine`."""
        if name not in self._bases:
            self._drop(self._bases.victims(name, self._users))
        self._load(name)
        return self._bases[name].info

    def drop_base_model(self, name: str) -> None:
        """See `Engine`."""
        if users := self._users(name):
            raise InputError(f"base model {name!r} is in use ({users}); end the sessions that use it first")
        if name in self._bases:
            self._drop([name])

    def create_model(self, model_id: str, base_model: str, lora: LoraSpec) -> None:
        """See `Engine`."""
        self._check_trains()
        if lora.rank == 0:
            self._models[model_id] = self._full_runs.create(model_id, base_model, lora, self._full_models())
            self._promise(model_id)
            return
        self.load_base_model(base_model)
        self._models[model_id] = self._new_adapter(base_model, lora)
        self._promise(model_id)

    def delete_model(self, model_id: str) -> None:
        """See `Engine`."""
        self._models.pop(model_id, None)
        self._full_runs.free(model_id)
        self._budget.release(_key(model_id))

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | Exception]:
        """See `Engine`."""
        outputs: dict[int, ForwardBackwardOutput | Exception] = {}
        shared: dict[int, tuple[ForwardBackward, Adapter]] = {}
        for index, request in enumerate(requests):
            try:
                model = self._checked(request)
            except InputError as error:
                outputs[index] = error
                continue
            if isinstance(model, FullModel):
                outputs[index] = run_alone(model, request, self._budget_tokens)
            else:
                shared[index] = request, model
        results = run_together(self._bases, list(shared.values()), self._budget_tokens)
        outputs.update(zip(shared, results, strict=True))
        return [outputs[index] for index in range(len(requests))]

    def optim_step(self, model_id: str, step: AdamStep) -> Mapping[str, float]:
        """See `Engine`."""
        return self._model(model_id).step(step)

    def save_state(self, model_id: str, folder: Path, *, with_optimizer: bool, with_gradient: bool = False) -> None:
        """See `Engine`."""
        model = self._model(model_id)
        tensors = model.tensors(with_optimizer=with_optimizer, with_gradient=with_gradient)
        self._writer(model, tensors)(folder)

    def copy_state(
        self, model_id: str, *, with_optimizer: bool, with_gradient: bool = False
    ) -> Callable[[Path], None] | None:
        """See `Engine`. The copy lies in the memory of the host."""
        model = self._model(model_id)
        tensors = model.tensors(with_optimizer=with_optimizer, with_gradient=with_gradient)
        host = torch.device("cpu")
        wanted = sum(tensor.nbytes for tensor in tensors.values()) / _COPY_SHARE
        if wanted > (self._budget.spare_bytes(wanted) if self._device == host else free_bytes(host)):
            return None
        return self._writer(model, {name: tensor.to(host, copy=True) for name, tensor in tensors.items()})

    def save_external(self, model_id: str, folder: Path, *, base_name: str) -> None:
        """See `Engine`."""
        model = self._model(model_id)
        if isinstance(model, FullModel):
            raise InputError(
                "a run that trains all weights (rank 0) has no adapter for other libraries; save its state and "
                "export that checkpoint merged"
            )
        with checkpoint.new_folder(folder) as temporary:
            write_external(temporary, base_name, model.layout, model.params)

    def load_state(
        self,
        model_id: str,
        base_model: str,
        lora: LoraSpec,
        folder: Path,
        *,
        with_optimizer: bool,
        with_gradient: bool = False,
    ) -> None:
        """See `Engine`."""
        self._check_trains()
        parts = {"with_optimizer": with_optimizer, "with_gradient": with_gradient}
        if lora.rank == 0:
            self._load_full(model_id, base_model, lora, folder, parts)
            return
        self.load_base_model(base_model)
        adapter = self._new_adapter(base_model, lora)
        tensors, num_steps = checkpoint.read(folder, adapter.layout, **parts)
        adapter.has_gradient = "gradient" in tensors
        for name, own in adapter.tensors(**parts).items():
            own.copy_(tensors[name])
        adapter.num_steps = num_steps if with_optimizer else 0
        self._models[model_id] = adapter
        self._promise(model_id)

    def snapshot(self, model_id: str, snapshot_id: str) -> None:
        """See `Engine`."""
        model = self._model(model_id)
        if isinstance(model, FullModel):
            self._put_full_snapshot(snapshot_id, self._full_runs.snapshot(snapshot_id, model))
        else:
            self._admit_snapshot(model.base_model, model.layout)
            self._put_snapshot(snapshot_id, model.base_model, model.frozen_weights(self._dtype))

    def copy_snapshot(self, snapshot_id: str, *, is_durable: bool) -> Callable[[Path], None]:
        """See `Engine`. The file holds the weights as sampling uses them, rounded if that is in bf16."""
        full = self._full_snapshots.get(snapshot_id)
        if full is not None:
            name, layout, flat = full.base.name, full.layout, full.flat
            return lambda folder: write_full(folder, name, layout, {"params": flat}, 0, is_durable=is_durable)
        base_model, weights = self._snapshot(snapshot_id)
        tensors = {"params": weights.flat}
        return lambda folder: checkpoint.write(folder, base_model, weights.layout, tensors, 0, is_durable=is_durable)

    def load_snapshot(self, snapshot_id: str, base_model: str, lora: LoraSpec, folder: Path) -> None:
        """See `Engine`."""
        if lora.rank == 0:
            self._put_full_snapshot(snapshot_id, self._full_runs.load_snapshot(snapshot_id, base_model, folder))
            return
        self.load_base_model(base_model)
        layout = self._bases[base_model].adapter_layout(lora)
        self._admit_snapshot(base_model, layout)
        tensors, _ = checkpoint.read(folder, layout, with_optimizer=False)
        # A copy, even of the same precision: as aligned as what was published, so that libraries round alike.
        flat = tensors["params"].to(self._device, self._dtype, copy=True)
        self._put_snapshot(snapshot_id, base_model, Weights(layout, flat))

    def snapshot_bytes(self, snapshot_id: str) -> int:
        """See `Engine`."""
        full = self._full_snapshots.get(snapshot_id)
        return full.flat.nbytes if full else self._snapshot(snapshot_id)[1].flat.nbytes

    def delete_snapshot(self, snapshot_id: str) -> None:
        """See `Engine`."""
        self._snapshots.pop(snapshot_id, None)
        self._full_snapshots.pop(snapshot_id, None)
        self._drop_idle_full_samplers()
        self._full_runs.free(snapshot_id)

    def submit_sample(self, request: SampleRequest) -> None:
        """See `Engine`."""
        if request.snapshot_id in self._full_snapshots:
            base = self._full_snapshots[request.snapshot_id].base
            self._sampler(self._full_samplers, request.snapshot_id, base).submit(request, None)
            return
        self.load_base_model(request.base_model)
        weights = None
        if request.snapshot_id is not None:
            base_model, weights = self._snapshot(request.snapshot_id)
            assert base_model == request.base_model
        self._sampler(self._samplers, request.base_model, self._bases[request.base_model]).submit(request, weights)

    def cancel_sample(self, request_id: str) -> None:
        """See `Engine`."""
        for sampler in self._all_samplers():
            sampler.cancel(request_id)

    def has_samples(self) -> bool:
        """See `Engine`."""
        return any(sampler.has_work for sampler in self._all_samplers())

    def step_samples(self) -> Sequence[SampleOutput | SampleFailure]:
        """See `Engine`."""
        outputs: list[SampleOutput | SampleFailure] = []
        for sampler in self._all_samplers():
            if sampler.has_work:
                try:
                    outputs += sampler.step()
                except Exception as error:  # requests of other base models are not to blame
                    outputs += sampler.fail_all(error)
        self._drop_idle_full_samplers()
        return outputs

    def _load(self, name: str, *, keep: Collection[str] = ()) -> None:
        """Load a base model that is not; there is room among the base models. For `keep` see `_admit`."""
        if name in self._bases:
            self._bases.load(name)
            return
        way_out = "use a smaller model, end other sessions, or use a machine with more memory"
        self._admit(f"base model {name!r}", self._bases.num_bytes(name), way_out, keep=keep)
        self._bases.load(name)
        base = self._bases[name]
        if self._samplers_only and DecodeKernel.gains_from_packing(base):
            base.packed.make(drops_originals=True)
            self._promise_unpacked(base, way_out, keep)

    def _promise_unpacked(self, base: BaseModel, way_out: str, keep: Collection[str]) -> None:
        """Keep memory for an output projection without its original, which is unpacked to score prompts."""
        weight = base.head.projection.weight
        if not base.packed.is_dropped(weight):
            return
        num_bytes = weight.numel() * weight.itemsize
        what = f"the output projection of base model {base.name!r}, unpacked to score prompts,"
        try:
            self._admit(what, num_bytes, way_out, keep={*keep, base.name})
        except InputError:
            self._drop([base.name])
            raise
        self._budget.promise("pass", _base_key(base.name), num_bytes)

    def _sampler(self, samplers: dict[str, Sampler], key: str, base: BaseModel) -> Sampler:
        if key not in samplers:
            self._pack(base)
            limit = partial(self._cache_bytes, base)
            sampler = Sampler(base, limit(0), limit=limit if self._device.type == "cpu" else None)
            samplers[key] = sampler
            self._budget.watch("cache", _sampler_key(key), lambda: sampler.unused_bytes)
        return samplers[key]

    def _drop_sampler(self, samplers: dict[str, Sampler], key: str) -> None:
        samplers.pop(key, None)
        self._budget.release(_sampler_key(key))

    def _pack(self, base: BaseModel) -> None:
        """Pack a base model's weights beside their originals, if that is faster and there is memory for it."""
        if base.packed.are_made or not DecodeKernel.gains_from_packing(base):
            return
        num_bytes, spare = base.packed.num_bytes, self._budget.spare_bytes()
        if num_bytes <= spare * _PACKED_SHARE:
            base.packed.make()
        else:
            _log.warning(
                "sampling from %s goes at about half its speed: packed weights take %s, and may take half of the %s "
                "that are spare",
                base.name,
                show_bytes(num_bytes),
                show_bytes(spare),
            )

    def _cache_bytes(self, base: BaseModel, held: int) -> int:
        """How many bytes the cache of a base model may take by now, so many of which it holds."""
        bytes_per_token = base.cache_shape.num_features * base.dtype.itemsize
        bytes_per_sequence = bytes_per_token * base.info.max_context_tokens + 2 * base.state_bytes
        # Asked for every request: what the heap keeps must not go back each time.
        spare = self._budget.spare_bytes(2 * bytes_per_sequence if held else math.inf)
        return cache_bytes(self._device, spare + held, bytes_per_sequence, self._max_cache_bytes)

    def _promise(self, model_id: str) -> None:
        """Count what a model will need beside its state: the gradient of a request while it runs, since those of all
        models may be in one pass, and snapshots of an adapter.
        """
        model = self._models[model_id]
        num_parameters = model.params.numel()
        if isinstance(model, FullModel):
            self._budget.promise("request", _key(model_id), num_parameters * _REQUEST_BYTES)
        else:
            self._budget.promise("request", _key(model_id), num_parameters * self._request_bytes)
            self._budget.promise("snapshot", _key(model_id), num_parameters * self._snapshot_bytes)

    @property
    def _request_bytes(self) -> int:
        """Per parameter of an adapter: a request computes with a rounded copy of the weights."""
        return _REQUEST_BYTES + (0 if self._dtype == torch.float32 else self._dtype.itemsize)

    @property
    def _snapshot_bytes(self) -> int:
        return _PROMISED_SNAPSHOTS * self._dtype.itemsize

    def _all_samplers(self) -> Sequence[Sampler]:
        return (*self._samplers.values(), *self._full_samplers.values())

    def _drop_idle_full_samplers(self) -> None:
        """Free the samplers of snapshots that have been deleted, once they have no work."""
        for key in [key for key in self._full_samplers if key not in self._full_snapshots]:
            if not self._full_samplers[key].has_work:
                self._drop_sampler(self._full_samplers, key)

    def _load_full(
        self, model_id: str, base_model: str, lora: LoraSpec, folder: Path, parts: Mapping[str, bool]
    ) -> None:
        own = self._models.get(model_id)
        if isinstance(own, FullModel) and own.base.name == base_model:
            self._full_runs.fill(own, folder, **parts)
            return
        model = self._full_runs.create(model_id, base_model, lora, self._full_models())
        try:
            self._full_runs.fill(model, folder, **parts)
        except BaseException:
            self._full_runs.free(model_id)
            raise
        self._models[model_id] = model
        self._promise(model_id)

    def _writer(self, model: Adapter | FullModel, tensors: Mapping[str, Tensor]) -> Callable[[Path], None]:
        """Writes tensors of a model, as they are when it is called, with the model's present number of steps."""
        num_steps = model.num_steps if "adam_m" in tensors else 0
        if isinstance(model, FullModel):
            base_model, full_layout = model.base.name, model.layout
            return lambda folder: write_full(folder, base_model, full_layout, tensors, num_steps)
        name, layout = model.base_model, model.layout
        return lambda folder: checkpoint.write(folder, name, layout, tensors, num_steps)

    def _users(self, base_model: str) -> str:
        """What keeps a base model in memory, in words; empty if nothing does."""
        snapshots = [name for name, _ in self._snapshots.values()]
        adapters = [model.base_model for model in self._models.values() if isinstance(model, Adapter)]
        sampler = self._samplers.get(base_model)
        counts = {"models": adapters.count(base_model), "snapshots": snapshots.count(base_model)}
        parts = [f"{count} {kind}" for kind, count in counts.items() if count]
        return ", ".join(parts + (["samples running"] if sampler and sampler.has_work else []))

    def _new_adapter(self, base_model: str, lora: LoraSpec) -> Adapter:
        layout = self._bases[base_model].adapter_layout(lora)
        num_bytes = layout.num_parameters * (_STATE_BYTES + self._request_bytes + self._snapshot_bytes)
        way_out = "use a lower rank or a smaller base model, or end other sessions"
        self._admit(f"an adapter of rank {lora.rank} over {base_model!r}", num_bytes, way_out, keep={base_model})
        return Adapter.create(base_model, layout, self._device)

    def _admit_snapshot(self, base_model: str, layout: AdapterLayout) -> None:
        what = f"a snapshot of an adapter of rank {layout.spec.rank} over {base_model!r}"
        num_bytes = layout.num_parameters * self._dtype.itemsize
        way_out = "end other sessions, or use a lower rank"
        self._admit(what, num_bytes, way_out, keep={base_model}, but_for={"snapshot"})

    def _admit_full(self, what: str, num_bytes: int, peak_bytes: int, way_out: str) -> None:
        """As `_admit`, and beside the base models as well; `peak_bytes` are there at once while it is made."""
        self._drop(self._bases.room_for(what, num_bytes, self._users))
        self._admit(what, peak_bytes, way_out)

    def _admit(
        self, what: str, num_bytes: int, way_out: str, *, keep: Collection[str] = (), but_for: Collection[Purpose] = ()
    ) -> None:
        """Let `num_bytes` fit into memory, or raise InputError. What nobody uses makes way: caches and packed weights,
        then base models that are not in `keep`, if they suffice.
        """

        def is_short(by: int = 0) -> bool:
            return self._budget.spare_bytes(num_bytes, but_for=but_for) + by < num_bytes

        for samplers in (self._samplers, self._full_samplers):
            for key in [key for key, sampler in samplers.items() if not sampler.has_work]:
                if is_short():
                    base = samplers[key].base
                    self._drop_sampler(samplers, key)
                    base.packed.drop()
        idle = [name for name in self._bases if name not in keep and not self._users(name)]
        if not is_short(by=sum(map(self._bases.num_bytes, idle))):
            for name in idle:
                if is_short():
                    self._drop([name])
        self._budget.check(num_bytes, what, way_out, but_for=but_for)

    def _drop(self, base_models: Sequence[str]) -> None:
        for name in base_models:
            self._drop_sampler(self._samplers, name)
            self._bases.drop(name)
            self._budget.release(_base_key(name))

    def _check_trains(self) -> None:
        if self._samplers_only:
            raise InputError(
                "this service only samples (samplers_only): it keeps no weights that could be trained; start one "
                "without --samplers-only"
            )

    def _checked(self, request: ForwardBackward) -> Adapter | FullModel:
        """The model of a request that can be computed; raises InputError for any other."""
        model = self._model(request.model_id)
        base = model.base if isinstance(model, FullModel) else self._bases[model.base_model]
        check_request(request, base.info.vocab_size, base.info.max_context_tokens)
        return model

    def _full_models(self) -> list[FullModel]:
        return [model for model in self._models.values() if isinstance(model, FullModel)]

    def _model(self, model_id: str) -> Adapter | FullModel:
        if model_id not in self._models:
            raise InputError(f"unknown model {model_id!r}; create it first")
        return self._models[model_id]

    def _snapshot(self, snapshot_id: str) -> tuple[str, Weights]:
        if snapshot_id not in self._snapshots:
            raise InputError(f"unknown snapshot {snapshot_id!r}; publish it first")
        return self._snapshots[snapshot_id]

    def _put_snapshot(self, snapshot_id: str, base_model: str, weights: Weights) -> None:
        self._snapshots[snapshot_id] = (base_model, weights)

    def _put_full_snapshot(self, snapshot_id: str, weights: FullWeights) -> None:
        self._full_snapshots[snapshot_id] = weights


def _key(model_id: str) -> str:
    return f"model {model_id}"


def _base_key(name: str) -> str:
    return f"base model {name}"


def _sampler_key(key: str) -> str:
    return f"sampler {key}"

"""The engine in this process: runs over base models of `transformers`, on one device."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from cookhouse.engine import memory
from cookhouse.engine.admission import Admission
from cookhouse.engine.budget import Budget
from cookhouse.engine.contract import (
    AdamStep,
    BaseModelInfo,
    ForwardBackward,
    ForwardBackwardOutput,
    LoraSpec,
    MemoryUse,
    Room,
    SampleOutput,
    SampleRequest,
)
from cookhouse.engine.device import choose_device, choose_dtype
from cookhouse.engine.engine import SampleFailure
from cookhouse.engine.files import checkpoint
from cookhouse.engine.files.external_folder import write_external
from cookhouse.engine.files.new_folder import new_folder
from cookhouse.engine.heap import give_back
from cookhouse.engine.host_memory import show_bytes
from cookhouse.engine.lora.adapter import Adapter
from cookhouse.engine.lora.lora import Weights
from cookhouse.engine.memory import held_bytes, most_bytes, total_bytes
from cookhouse.engine.model.base_models import BaseModels
from cookhouse.engine.sampler import Samplers
from cookhouse.engine.sampler.native import DecodeKernel
from cookhouse.engine.sampler.self_check import check_cached
from cookhouse.engine.share import use_cores
from cookhouse.engine.train.full import FullModel, FullWeights
from cookhouse.engine.train.full_checkpoint import write_full
from cookhouse.engine.train.full_runs import FullRuns
from cookhouse.engine.train.losses import check_request
from cookhouse.engine.train.passes import run_alone, run_together
from cookhouse.errors import InputError

_COPY_SHARE = 0.5
"""Of the host's free memory, the most that a copy for a save may take."""


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
        share_bytes: int | None = None,
        free_bytes: Callable[[], int] | None = None,
    ) -> None:
        """`max_base_bytes` bounds the weights of base models; those named here are loaded at once while they fit.

        `max_cache_bytes` bounds the key-value cache of each; None: by the memory that is free as it grows.

        `budget_tokens` bounds the positions of a training pass; None: by base model and device.
        `max_activation_bytes` bounds what a training pass keeps for its backward, the rest is computed again (0: all of
        it); None: half of the memory that is free when the pass begins.

        `samplers_only` refuses to train, and keeps one copy of the weights: that which sampling reads.
        `free_bytes` says how much memory of the device may still be taken, out of `share_bytes`; None: all that is
        free.
        """
        use_cores()
        self._device = choose_device(device)
        self._dtype = choose_dtype(precision, self._device)
        self._device_total_bytes = None if self._device.type == "cpu" else total_bytes(self._device)
        self._budget_tokens = budget_tokens
        self._samplers_only = samplers_only
        self._share_bytes = share_bytes
        self._budget = Budget(self._device, free_bytes)
        self._bases = BaseModels(
            self._device,
            self._dtype,
            max_base_bytes,
            max_activation_bytes=max_activation_bytes,
            pass_bytes=self._budget.pass_bytes,
            check=check_cached,
        )
        self._samplers = Samplers(self._budget, max_cache_bytes)
        """By base model."""
        self._full_samplers = Samplers(self._budget, max_cache_bytes)
        """By snapshot of all weights."""
        self._admission = Admission(
            self._budget, self._bases, self._samplers, self._full_samplers, self._users, self._dtype
        )
        self._models: dict[str, Adapter | FullModel] = {}
        self._snapshots: dict[str, tuple[str, Weights]] = {}
        self._full_snapshots: dict[str, FullWeights] = {}
        self._full_runs = FullRuns(self._bases, self._admission.check_full, self._device, self._dtype)
        for name in base_models:
            self._bases.describe(name)
            if not self._bases.must_evict(name):
                self._load(name, keep=base_models)

    def describe(self) -> str:
        """See `Engine`."""
        number = torch.get_num_threads()
        cores = f", {number} thread{'s' * (number > 1)}" if self._device.type == "cpu" else ""
        share = self._share_bytes  # not what is free of it, which differs between workers with the same
        memory_share = "" if share is None else f", {show_bytes(share)} of memory"
        return f"{self._device}{cores}, {self._dtype}{memory_share}".replace("torch.", "")

    def memory_use(self) -> MemoryUse:
        """See `Engine`."""
        caches = self._samplers.cache_uses + self._full_samplers.cache_uses
        if self._device_total_bytes is None:
            return MemoryUse(caches=caches)
        return MemoryUse(
            caches=caches,
            device_bytes=held_bytes(self._device),
            device_peak_bytes=most_bytes(self._device),
            device_total_bytes=self._device_total_bytes,
        )

    def room(self) -> Room:
        """See `Engine`."""
        return Room(free_bytes=self._admission.room_bytes(), base_models=tuple(self._bases))

    def base_models(self) -> Sequence[BaseModelInfo]:
        """See `Engine`."""
        return self._bases.infos

    def load_base_model(self, name: str) -> BaseModelInfo:
        """Load a folder, hub id or embedded name; cheap when it is loaded already."""
        if name not in self._bases:
            self._admission.drop(self._bases.victims(name, self._users))
        self._load(name)
        return self._bases[name].info

    def create_model(self, model_id: str, base_model: str, lora: LoraSpec) -> None:
        """See `Engine`."""
        self._check_trains()
        if lora.rank == 0:
            self._put_model(model_id, self._full_runs.create(model_id, base_model, lora, self._full_models()))
            return
        self.load_base_model(base_model)
        self._put_model(model_id, self._new_adapter(base_model, lora))

    def delete_model(self, model_id: str) -> None:
        """See `Engine`."""
        self._models.pop(model_id, None)
        self._full_runs.free(model_id)
        self._admission.release(model_id)
        if self._device.type == "cpu":
            give_back()  # takes a millisecond, and the heap would keep all of it

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
        for index, request in enumerate(requests):
            failed, output = self._models.get(request.model_id), outputs[index]
            if failed is not None and isinstance(output, Exception) and not request.forward_only:
                failed.note_failure(f"of {len(request.data_D)} datums with {request.loss_fn}: {output}")
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
        if wanted > (self._budget.spare_bytes(wanted) if self._device == host else memory.free_bytes(host)):
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
        with new_folder(folder) as temporary:
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
        adapter = self._new_adapter(base_model, lora, folder)
        tensors, num_steps = checkpoint.read(folder, adapter.layout, **parts)
        adapter.has_gradient = "gradient" in tensors
        for name, own in adapter.tensors(**parts).items():
            own.copy_(tensors[name])
        adapter.num_steps = num_steps if with_optimizer else 0
        self._put_model(model_id, adapter)

    def snapshot(self, model_id: str, snapshot_id: str) -> None:
        """See `Engine`."""
        model = self._model(model_id)
        if isinstance(model, FullModel):
            self._full_snapshots[snapshot_id] = self._full_runs.snapshot(snapshot_id, model)
        else:
            self._admission.check_snapshot(model.base_model, model.layout)
            self._snapshots[snapshot_id] = model.base_model, model.frozen_weights(self._dtype)

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
            self._full_snapshots[snapshot_id] = self._full_runs.load_snapshot(snapshot_id, base_model, folder)
            return
        self.load_base_model(base_model)
        layout = checkpoint.layout_of(folder, self._bases[base_model].adapter_layout(lora))
        self._admission.check_snapshot(base_model, layout)
        tensors, _ = checkpoint.read(folder, layout, with_optimizer=False)
        # A copy, even of the same precision: as aligned as what was published, so that libraries round alike.
        flat = tensors["params"].to(self._device, self._dtype, copy=True)
        self._snapshots[snapshot_id] = base_model, Weights(layout, flat)

    def snapshot_bytes(self, snapshot_id: str) -> int:
        """See `Engine`."""
        full = self._full_snapshots.get(snapshot_id)
        return full.flat.nbytes if full else self._snapshot(snapshot_id)[1].flat.nbytes

    def delete_snapshot(self, snapshot_id: str) -> None:
        """See `Engine`."""
        self._snapshots.pop(snapshot_id, None)
        self._full_snapshots.pop(snapshot_id, None)
        self._full_samplers.drop_idle(self._full_snapshots)
        self._full_runs.free(snapshot_id)

    def submit_sample(self, request: SampleRequest) -> None:
        """See `Engine`."""
        if request.snapshot_id in self._full_snapshots:
            base = self._full_snapshots[request.snapshot_id].base
            self._full_samplers.of(request.snapshot_id, base).submit(request, None)
            return
        self.load_base_model(request.base_model)
        weights = None
        if request.snapshot_id is not None:
            base_model, weights = self._snapshot(request.snapshot_id)
            assert base_model == request.base_model
        self._samplers.of(request.base_model, self._bases[request.base_model]).submit(request, weights)

    def cancel_sample(self, request_id: str) -> None:
        """See `Engine`."""
        self._samplers.cancel(request_id)
        self._full_samplers.cancel(request_id)

    def has_samples(self) -> bool:
        """See `Engine`."""
        return self._samplers.has_work or self._full_samplers.has_work

    def step_samples(self) -> Sequence[SampleOutput | SampleFailure]:
        """See `Engine`."""
        outputs = self._samplers.step() + self._full_samplers.step()
        self._full_samplers.drop_idle(self._full_snapshots)
        return outputs

    def _load(self, name: str, *, keep: Collection[str] = ()) -> None:
        """Load a base model that is not; there is room among the base models. For `keep` see `Admission`."""
        if name in self._bases:
            self._bases.load(name)
            return
        way_out = "use a smaller model, end other sessions, or use a machine with more memory"
        self._admission.check(f"base model {name!r}", self._bases.num_bytes(name), way_out, keep=keep)
        self._bases.load(name)
        base = self._bases[name]
        if self._samplers_only and DecodeKernel.gains_from_packing(base):
            base.packed.make(drops_originals=True)
            self._admission.promise_unpacked(base, way_out, keep)

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
        self._put_model(model_id, model)

    def _writer(self, model: Adapter | FullModel, tensors: Mapping[str, Tensor]) -> Callable[[Path], None]:
        """Writes tensors of a model, as they are when it is called, with the model's present number of steps."""
        num_steps = model.num_steps if "adam_m" in tensors else 0
        if isinstance(model, FullModel):
            base_model, full_layout = model.base.name, model.layout
            return lambda folder: write_full(folder, base_model, full_layout, tensors, num_steps)
        name, layout = model.base_model, model.layout
        return lambda folder: checkpoint.write(folder, name, layout, tensors, num_steps)

    def _users(self, base_model: str) -> str:
        """Users of a base model that keep it in memory, in words; empty if nothing does."""
        snapshots = [name for name, _ in self._snapshots.values()]
        adapters = [model.base_model for model in self._models.values() if isinstance(model, Adapter)]
        sampler = self._samplers.get(base_model)
        counts = {"models": adapters.count(base_model), "snapshots": snapshots.count(base_model)}
        parts = [f"{count} {kind}" for kind, count in counts.items() if count]
        return ", ".join(parts + (["samples running"] if sampler and sampler.has_work else []))

    def _new_adapter(self, base_model: str, lora: LoraSpec, folder: Path | None = None) -> Adapter:
        """One in the form that the checkpoint in a folder has, if there is one."""
        layout = self._bases[base_model].adapter_layout(lora)
        if folder is not None:
            layout = checkpoint.layout_of(folder, layout)
        self._admission.check_adapter(base_model, layout)
        return Adapter.create(base_model, layout, self._device)

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

    def _put_model(self, model_id: str, model: Adapter | FullModel) -> None:
        self._models[model_id] = model
        self._admission.promise(model_id, model)

    def _snapshot(self, snapshot_id: str) -> tuple[str, Weights]:
        if snapshot_id not in self._snapshots:
            raise InputError(f"unknown snapshot {snapshot_id!r}; publish it first")
        return self._snapshots[snapshot_id]

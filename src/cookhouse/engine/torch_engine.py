"""The engine in this process: adapters over base models of `transformers`, on one device."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from cookhouse.engine import checkpoint
from cookhouse.engine.adapter import Adapter
from cookhouse.engine.base_model import BaseModel
from cookhouse.engine.base_models import BaseModels
from cookhouse.engine.contract import (
    AdamStep,
    BaseModelInfo,
    ForwardBackward,
    ForwardBackwardOutput,
    LoraSpec,
    SampleOutput,
    SampleRequest,
)
from cookhouse.engine.device import choose_device, choose_dtype, use_cores
from cookhouse.engine.lora import Weights
from cookhouse.engine.losses import check_request
from cookhouse.engine.memory import cache_bytes
from cookhouse.engine.peft_folder import write_peft
from cookhouse.engine.sampler import Sampler
from cookhouse.engine.trainer import forward_backward
from cookhouse.errors import InputError

_BUDGET_TOKENS = 4096
"""Positions of a training pass; beyond, cost grows faster than tokens on a CPU."""


class TorchEngine:
    """Implements `Engine`. Models, snapshots and samplers are looked up here and nowhere else."""

    def __init__(
        self,
        *,
        base_models: Sequence[str] = (),
        device: str | None = None,
        precision: str | None = None,
        budget_tokens: int = _BUDGET_TOKENS,
        max_base_bytes: int | None = None,
    ) -> None:
        """`max_base_bytes` bounds the weights of base models; those named here are loaded at once while they fit."""
        use_cores()
        self._device = choose_device(device)
        self._dtype = choose_dtype(precision, self._device)
        self._budget_tokens = budget_tokens
        self._bases = BaseModels(self._device, self._dtype, max_base_bytes)
        self._samplers: dict[str, Sampler] = {}
        self._adapters: dict[str, Adapter] = {}
        self._snapshots: dict[str, tuple[str, Weights]] = {}
        self._snapshots_lock = threading.Lock()
        for name in base_models:
            self._bases.describe(name)
            if not self._bases.must_evict(name):
                self._bases.load(name)

    def base_models(self) -> Sequence[BaseModelInfo]:
        """See `Engine`."""
        return self._bases.infos

    def load_base_model(self, name: str) -> BaseModelInfo:
        """See `Engine`."""
        if name not in self._bases:
            for other in self._bases.victims(name, self._users):
                self._samplers.pop(other, None)
                self._bases.drop(other)
        self._bases.load(name)
        return self._bases[name].info

    def create_model(self, model_id: str, base_model: str, lora: LoraSpec) -> None:
        """See `Engine`."""
        self.load_base_model(base_model)
        layout = self._bases[base_model].adapter_layout(lora)
        self._adapters[model_id] = Adapter.create(base_model, layout, self._device)

    def delete_model(self, model_id: str) -> None:
        """See `Engine`."""
        self._adapters.pop(model_id, None)

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | InputError]:
        """See `Engine`."""
        outputs: dict[int, ForwardBackwardOutput | InputError] = {}
        waves: list[dict[str, list[int]]] = []
        for index, request in enumerate(requests):
            try:
                base = self._base_of(request)
            except InputError as error:
                outputs[index] = error
                continue
            self._place(waves, base.name, index, requests)
        for wave in waves:
            for name, members in wave.items():
                jobs = [(requests[i], self._adapter(requests[i].model_id)) for i in members]
                results = forward_backward(self._bases[name], jobs, self._budget_tokens)
                outputs.update(zip(members, results, strict=True))
        return [outputs[index] for index in range(len(requests))]

    def optim_step(self, model_id: str, step: AdamStep) -> Mapping[str, float]:
        """See `Engine`."""
        return self._adapter(model_id).step(step)

    def save_state(self, model_id: str, folder: Path, *, with_optimizer: bool) -> None:
        """See `Engine`."""
        adapter = self._adapter(model_id)
        tensors = {"params": adapter.params}
        if with_optimizer:
            tensors |= {"adam_m": adapter.adam_m, "adam_v": adapter.adam_v}
        checkpoint.write(
            folder, adapter.base_model, adapter.layout, tensors, adapter.num_steps if with_optimizer else 0
        )

    def save_peft(self, model_id: str, folder: Path) -> None:
        """See `Engine`."""
        adapter = self._adapter(model_id)
        write_peft(folder, adapter.base_model, adapter.layout, adapter.params)

    def load_state(self, model_id: str, base_model: str, lora: LoraSpec, folder: Path, *, with_optimizer: bool) -> None:
        """See `Engine`."""
        self.load_base_model(base_model)
        layout = self._bases[base_model].adapter_layout(lora)
        tensors, num_steps = checkpoint.read(folder, layout, with_optimizer=with_optimizer)
        adapter = Adapter.create(base_model, layout, self._device)
        adapter.params.copy_(tensors["params"])
        if with_optimizer:
            adapter.adam_m.copy_(tensors["adam_m"])
            adapter.adam_v.copy_(tensors["adam_v"])
            adapter.num_steps = num_steps
        self._adapters[model_id] = adapter

    def snapshot(self, model_id: str, snapshot_id: str) -> None:
        """See `Engine`."""
        adapter = self._adapter(model_id)
        self._put_snapshot(snapshot_id, adapter.base_model, adapter.frozen_weights(self._dtype))

    def save_snapshot(self, snapshot_id: str, folder: Path) -> None:
        """See `Engine`. The file holds the weights as sampling uses them, rounded if that is in bf16."""
        with self._snapshots_lock:
            base_model, weights = self._snapshot(snapshot_id)
        checkpoint.write(folder, base_model, weights.layout, {"params": weights.flat}, 0)

    def load_snapshot(self, snapshot_id: str, base_model: str, lora: LoraSpec, folder: Path) -> None:
        """See `Engine`."""
        self.load_base_model(base_model)
        layout = self._bases[base_model].adapter_layout(lora)
        tensors, _ = checkpoint.read(folder, layout, with_optimizer=False)
        flat = tensors["params"].to(self._device, self._dtype)
        self._put_snapshot(snapshot_id, base_model, Weights(layout, flat))

    def delete_snapshot(self, snapshot_id: str) -> None:
        """See `Engine`."""
        with self._snapshots_lock:
            self._snapshots.pop(snapshot_id, None)

    def submit_sample(self, request: SampleRequest) -> None:
        """See `Engine`."""
        self.load_base_model(request.base_model)
        weights = None
        if request.snapshot_id is not None:
            base_model, weights = self._snapshot(request.snapshot_id)
            assert base_model == request.base_model
        if request.base_model not in self._samplers:
            self._samplers[request.base_model] = Sampler(self._bases[request.base_model], cache_bytes(self._device))
        self._samplers[request.base_model].submit(request, weights)

    def cancel_sample(self, request_id: str) -> None:
        """See `Engine`."""
        for sampler in self._samplers.values():
            sampler.cancel(request_id)

    def has_samples(self) -> bool:
        """See `Engine`."""
        return any(sampler.has_work for sampler in self._samplers.values())

    def step_samples(self) -> Sequence[SampleOutput]:
        """See `Engine`."""
        return [output for sampler in self._samplers.values() if sampler.has_work for output in sampler.step()]

    def _users(self, base_model: str) -> str:
        """What keeps a base model in memory, in words; empty if nothing does."""
        with self._snapshots_lock:
            num_snapshots = sum(name == base_model for name, _ in self._snapshots.values())
        num_adapters = sum(adapter.base_model == base_model for adapter in self._adapters.values())
        sampler = self._samplers.get(base_model)
        counts = {"models": num_adapters, "snapshots": num_snapshots}
        parts = [f"{count} {kind}" for kind, count in counts.items() if count]
        return ", ".join(parts + (["samples running"] if sampler and sampler.has_work else []))

    def _base_of(self, request: ForwardBackward) -> BaseModel:
        """The base model of a request that can be computed; raises InputError for any other."""
        base = self._bases[self._adapter(request.model_id).base_model]
        check_request(request, base.info.vocab_size, base.info.max_context_tokens)
        return base

    @staticmethod
    def _place(waves: list[dict[str, list[int]]], base: str, index: int, requests: Sequence[ForwardBackward]) -> None:
        """Put a request into the first wave that holds none of its model: one model's requests keep their order."""
        model_id = requests[index].model_id
        last = max(
            (w for w, wave in enumerate(waves) for i in wave.get(base, ()) if requests[i].model_id == model_id),
            default=-1,
        )
        if last + 1 == len(waves):
            waves.append({})
        waves[last + 1].setdefault(base, []).append(index)

    def _adapter(self, model_id: str) -> Adapter:
        if model_id not in self._adapters:
            raise InputError(f"unknown model {model_id!r}; create it first")
        return self._adapters[model_id]

    def _snapshot(self, snapshot_id: str) -> tuple[str, Weights]:
        if snapshot_id not in self._snapshots:
            raise InputError(f"unknown snapshot {snapshot_id!r}; publish it first")
        return self._snapshots[snapshot_id]

    def _put_snapshot(self, snapshot_id: str, base_model: str, weights: Weights) -> None:
        with self._snapshots_lock:
            self._snapshots[snapshot_id] = (base_model, weights)

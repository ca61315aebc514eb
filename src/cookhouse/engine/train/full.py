"""Full fine-tuning: a run's own copy of every weight of a base model.

The copy shares nothing with the frozen base model that adapters are trained over: neither memory nor passes. Each
parameter is a view of one flat tensor, so that a step, a save and a snapshot are those of an adapter.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from cookhouse.engine.contract import AdamStep, ForwardBackward, ForwardBackwardOutput, LoraSpec
from cookhouse.engine.lora.adapter import Adapter, Trained
from cookhouse.engine.lora.lora import AdapterLayout
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.model.pretrained import read_model, read_tokenizer
from cookhouse.engine.train.trainer import forward_backward
from cookhouse.errors import InputError

SPEC = LoraSpec(rank=0)


@dataclass(frozen=True)
class FullLayout:
    """Layout of each parameter of a base model in a flat tensor: one after the other, tied ones once."""

    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, model: nn.Module) -> "FullLayout":
        """Layout of a model's parameters."""
        return cls({name: tuple(parameter.shape) for name, parameter in model.named_parameters()})

    @cached_property
    def num_parameters(self) -> int:
        """Elements of the flat tensor."""
        return sum(prod(shape) for shape in self.shapes.values())

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Each parameter as a view of a flat tensor of `num_parameters` elements."""
        parts = flat.split_with_sizes([prod(shape) for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}


@dataclass(frozen=True, eq=False)
class FullWeights:
    """One immutable copy of all weights, in the precision of computation, as a base model to sample from."""

    layout: FullLayout
    flat: Tensor
    base: BaseModel

    @classmethod
    def load(cls, name: str, device: torch.device, dtype: torch.dtype) -> "FullWeights":
        """Weights of a base model as it was published, in memory of their own: for a checkpoint to be read into."""
        model, layout, flat = read_flat(name, device, dtype)
        return cls(layout, flat, BaseModel.checked(name, model, read_tokenizer(name), device))


class _Collector:
    """Adds what backward finds to the gradient of the request that is running, in fp32."""

    # Parameters hold it through their hooks, where Python's collector does not look: it must not refer to them.
    def __init__(self) -> None:
        self.views: Mapping[str, Tensor] = {}

    def add(self, name: str, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self.views[name].add_(parameter.grad)
        parameter.grad = None


class FullModel(Trained):
    """A run that trains every weight. `params` is fp32; passes compute in the precision of the engine."""

    def __init__(self, base: BaseModel, params: Tensor, layout: FullLayout) -> None:
        super().__init__(params=params)
        self.base = base
        self.layout = layout
        self._collector = _Collector()
        for name, parameter in base.parameters.items():
            parameter.requires_grad_(True)
            parameter.register_post_accumulate_grad_hook(partial(self._collector.add, name))  # type: ignore[no-untyped-call]

    @classmethod
    def load(cls, name: str, device: torch.device, dtype: torch.dtype) -> "FullModel":
        """A copy of a base model as it was published.

        Raises:
            InputError: there is no such model here, or it has a parameter that gets no gradient here.
        """
        model, layout, flat = read_flat(name, device, torch.float32)
        sinks = sorted(key for key in layout.shapes if key.endswith(".sinks"))
        if sinks:
            raise InputError(
                f"base model {name!r} cannot be trained in full: attention sinks ({sinks[0]}) get no gradient here; "
                "train an adapter, with a rank of at least 1"
            )
        if dtype != torch.float32:
            _point(model, layout.views(flat.to(dtype)))
        return cls(BaseModel.checked(name, model, read_tokenizer(name), device, is_frozen=False), flat, layout)

    def forward_backward(self, request: ForwardBackward, budget_tokens: int) -> ForwardBackwardOutput | InputError:
        """Run a checked request in passes of its own; one that is refused leaves no gradient behind."""
        # An adapter of no sites: the loss is that of the model, the gradient goes where `_collect` says.
        nothing = Adapter.create(self.base.name, AdapterLayout((), SPEC), self.base.device)
        with self._collect(request.forward_only) as gradient:
            (output,) = forward_backward(self.base, [(request, nothing)], budget_tokens)
        if gradient is not None and not isinstance(output, InputError):
            try:
                self.add(gradient)
            except InputError as error:
                return error
        return output

    def step(self, step: AdamStep) -> dict[str, float]:
        """See `Trained`."""
        metrics = super().step(step)
        self.refresh()
        return metrics

    @torch.no_grad()
    def refresh(self) -> None:
        """Compute with the present `params`, after they have changed."""
        if self.base.dtype != torch.float32:
            for name, view in self.layout.views(self.params).items():
                self.base.parameters[name].copy_(view)

    def frozen_weights(self) -> FullWeights:
        """A copy of the present weights that later steps do not reach."""
        flat = self.params.to(self.base.dtype, copy=True)
        return FullWeights(self.layout, flat, self.base.frozen_copy(self.layout.views(flat)))

    @contextmanager
    def _collect(self, forward_only: bool) -> Iterator[Tensor | None]:
        """A flat fp32 gradient that backward adds to, None if there is no backward."""
        gradient = None if forward_only else torch.zeros_like(self.gradient)
        self._collector.views = {} if gradient is None else self.layout.views(gradient)
        try:
            yield gradient
        finally:
            self._collector.views = {}


def read_flat(name: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, FullLayout, Tensor]:
    """A base model whose parameters are views of a flat tensor."""
    model = read_model(name, dtype, device=device, attn_implementation="eager")
    layout = FullLayout.of(model)
    flat = torch.empty(layout.num_parameters, dtype=dtype, device=device)
    views = layout.views(flat)
    for name, parameter in model.named_parameters():
        views[name].copy_(parameter.detach())
    _point(model, views)
    return model, layout, flat


def _point(model: nn.Module, views: Mapping[str, Tensor]) -> None:
    """Put the parameters where the views are; tied ones stay tied."""
    for name, parameter in model.named_parameters():
        parameter.data = views[name]

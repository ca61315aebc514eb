"""Adapter of a training run: weights, gradient and Adam state, each one flat tensor; and the AdamW step over them."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cookhouse.engine.contract import AdamStep
from cookhouse.engine.lora.lora import AdapterLayout, Weights
from cookhouse.errors import InputError

_SAFE = 1e37
"""Below the largest number of fp32, 3.4e38, by more than rounding adds."""


@dataclass(kw_only=True)
class Trained:
    """State of one training run: flat fp32 tensors of one size."""

    params: Tensor
    gradient: Tensor = field(init=False)
    adam_m: Tensor = field(init=False)
    adam_v: Tensor = field(init=False)
    num_steps: int = 0
    has_gradient: bool = field(default=False, init=False)
    """Whether any has been added since the last step: else it is zero."""
    failed_pass: str = field(default="", init=False)
    """The last pass since the last step, and why it failed, where all of them have failed; else empty."""

    def __post_init__(self) -> None:
        """An empty gradient and optimizer."""
        self.gradient, self.adam_m, self.adam_v = (torch.zeros_like(self.params) for _ in range(3))

    def tensors(self, *, with_optimizer: bool, with_gradient: bool = False) -> dict[str, Tensor]:
        """Tensors of a checkpoint, by name; the gradient only where it is not zero."""
        moments = {"adam_m": self.adam_m, "adam_v": self.adam_v} if with_optimizer else {}
        gradient = {"gradient": self.gradient} if with_gradient and self.has_gradient else {}
        return {"params": self.params, **moments, **gradient}

    def add(self, gradient: Tensor) -> None:
        """Add a request's gradient to those summed so far.

        Raises:
            InputError: it is not finite, as of a ratio too large for fp32 that the loss has clipped; nothing was added.
        """
        if not _is_finite(gradient):
            raise InputError(
                "the gradient is not finite; nothing was added to it. Check the inputs and the learning rate"
            )
        self.gradient.add_(gradient)
        self.has_gradient, self.failed_pass = True, ""

    def note_failure(self, what: str) -> None:
        """Take note that a pass failed, and of which and why."""
        if not self.has_gradient:
            self.failed_pass = what

    def clear_gradient(self) -> None:
        """Begin a new sum."""
        self.gradient.zero_()
        self.has_gradient = False

    def step(self, step: AdamStep) -> dict[str, float]:
        """Apply AdamW to the summed gradient and clear it; return `grad_norm` (L2, before clipping).

        Adam (https://arxiv.org/abs/1412.6980, algorithm 1, bias-corrected) with decoupled weight decay
        (https://arxiv.org/abs/1711.05101): p -= lr · (m̂ / (√v̂ + eps) + weight_decay · p).

        Raises:
            InputError: a hyperparameter is out of its bounds, every pass since the last step failed, the gradient is
                not finite, or what the step would leave is not; nothing changes, except that a gradient which is not
                finite is cleared.
        """
        step.check()
        if self.failed_pass:
            raise InputError(
                f"every pass since the last step failed, the last of them {self.failed_pass}; nothing was changed, "
                "since momentum alone would move the weights. Send a pass that succeeds, and then the step"
            )
        grad_norm = float(torch.linalg.vector_norm(self.gradient, dtype=torch.float64))
        if not math.isfinite(grad_norm):
            self.clear_gradient()
            raise InputError("the gradient is not finite and was discarded; lower the learning rate or check the data")
        scale = step.grad_clip_norm / grad_norm if 0 < step.grad_clip_norm < grad_norm else 1.0
        if not self._stays_finite(step, grad_norm * scale):
            tried = [tensor.clone() for tensor in self._changed]
            _adamw(step, self.num_steps + 1, self.gradient * scale, *tried)
            if not all(map(_is_finite, tried)):
                raise InputError(
                    f"weights or moments would not be finite after a step with learning_rate={step.learning_rate} and "
                    f"eps={step.eps} on a gradient with the norm {grad_norm:.3g}; nothing was changed. Lower the "
                    "learning rate, raise eps, or set grad_clip_norm"
                )
        if scale != 1.0:
            self.gradient.mul_(scale)
        self.num_steps += 1
        _adamw(step, self.num_steps, self.gradient, *self._changed)
        self.clear_gradient()
        return {"grad_norm": grad_norm}

    @property
    def _changed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Tensors that a step changes."""
        return self.params, self.adam_m, self.adam_v

    def _stays_finite(self, step: AdamStep, grad_norm: float) -> bool:
        """True if bounds of what the step leaves say that it is finite: an exact check takes a copy."""
        if step.eps < torch.finfo(torch.float32).tiny:
            return False
        quotient = max(_largest(self.adam_m), grad_norm) / step.eps
        move = step.learning_rate / (1 - step.beta1 ** (self.num_steps + 1)) * quotient
        return all(value < _SAFE for value in (grad_norm**2, quotient, _largest(self.params) + move))


@dataclass(kw_only=True)
class Adapter(Trained):
    """State of a run that trains an adapter. All tensors have `layout.num_parameters` elements."""

    base_model: str
    layout: AdapterLayout

    @classmethod
    def create(cls, base_model: str, layout: AdapterLayout, device: torch.device) -> "Adapter":
        """A fresh adapter with an empty gradient and optimizer."""
        return cls(base_model=base_model, layout=layout, params=layout.initial(device))

    def weights(self, dtype: torch.dtype) -> Weights:
        """The present weights for a pass. In fp32 they share memory with `params`: use before the next step."""
        return Weights(self.layout, self.params.to(dtype))

    def frozen_weights(self, dtype: torch.dtype) -> Weights:
        """A copy of the present weights that later steps do not reach."""
        return Weights(self.layout, self.params.to(dtype, copy=True))


def _adamw(step: AdamStep, number: int, gradient: Tensor, params: Tensor, adam_m: Tensor, adam_v: Tensor) -> None:
    """Step `number`, counted from 1, in place."""
    adam_m.lerp_(gradient, 1 - step.beta1)
    adam_v.mul_(step.beta2).addcmul_(gradient, gradient, value=1 - step.beta2)
    correction1 = 1 - step.beta1**number
    correction2 = 1 - step.beta2**number
    denominator = (adam_v / correction2).sqrt_().add_(step.eps)
    if step.weight_decay:
        params.mul_(1 - step.learning_rate * step.weight_decay)
    params.addcdiv_(adam_m, denominator, value=-step.learning_rate / correction1)


def _largest(values: Tensor) -> float:
    """The largest absolute value; 0 of none."""
    return max(map(abs, _extremes(values)))


def _is_finite(values: Tensor) -> bool:
    return all(map(math.isfinite, _extremes(values)))


def _extremes(values: Tensor) -> tuple[float, float]:
    if not values.numel():
        return 0.0, 0.0
    low, high = torch.stack(values.aminmax()).tolist()  # read from the device once
    return low, high

"""What a training run trains: weights, gradient and Adam state, each one flat tensor; and the AdamW step over them."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cookhouse.engine.contract import AdamStep
from cookhouse.engine.lora.lora import AdapterLayout, Weights
from cookhouse.errors import InputError


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

    def __post_init__(self) -> None:
        """An empty gradient and optimizer."""
        self.gradient, self.adam_m, self.adam_v = (torch.zeros_like(self.params) for _ in range(3))

    def tensors(self, *, with_optimizer: bool, with_gradient: bool = False) -> dict[str, Tensor]:
        """What a checkpoint holds, by name; the gradient only where it is not zero."""
        moments = {"adam_m": self.adam_m, "adam_v": self.adam_v} if with_optimizer else {}
        gradient = {"gradient": self.gradient} if with_gradient and self.has_gradient else {}
        return {"params": self.params, **moments, **gradient}

    def add(self, gradient: Tensor) -> None:
        """Add a request's gradient to those summed so far.

        Raises:
            InputError: it is not finite, as of a ratio too large for fp32 that the loss has clipped; nothing was added.
        """
        if gradient.numel() and not all(math.isfinite(float(extreme)) for extreme in gradient.aminmax()):
            raise InputError(
                "the gradient is not finite; nothing was added to it. Check the inputs and the learning rate"
            )
        self.gradient.add_(gradient)
        self.has_gradient = True

    def clear_gradient(self) -> None:
        """Begin a new sum."""
        self.gradient.zero_()
        self.has_gradient = False

    def step(self, step: AdamStep) -> dict[str, float]:
        """Apply AdamW to the summed gradient and clear it; return `grad_norm` (L2, before clipping).

        Adam (https://arxiv.org/abs/1412.6980, algorithm 1, bias-corrected) with decoupled weight decay
        (https://arxiv.org/abs/1711.05101): p -= lr · (m̂ / (√v̂ + eps) + weight_decay · p).

        Raises:
            InputError: a hyperparameter is out of its range, or the gradient is not finite; nothing changes, except
                that a gradient which is not finite is cleared.
        """
        _check_step(step)
        grad_norm = float(torch.linalg.vector_norm(self.gradient, dtype=torch.float64))
        if not math.isfinite(grad_norm):
            self.clear_gradient()
            raise InputError("the gradient is not finite and was discarded; lower the learning rate or check the data")
        if 0 < step.grad_clip_norm < grad_norm:
            self.gradient.mul_(step.grad_clip_norm / grad_norm)
        self.num_steps += 1
        self.adam_m.lerp_(self.gradient, 1 - step.beta1)
        self.adam_v.mul_(step.beta2).addcmul_(self.gradient, self.gradient, value=1 - step.beta2)
        correction1 = 1 - step.beta1**self.num_steps
        correction2 = 1 - step.beta2**self.num_steps
        denominator = (self.adam_v / correction2).sqrt_().add_(step.eps)
        if step.weight_decay:
            self.params.mul_(1 - step.learning_rate * step.weight_decay)
        self.params.addcdiv_(self.adam_m, denominator, value=-step.learning_rate / correction1)
        self.clear_gradient()
        return {"grad_norm": grad_norm}


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


def _check_step(step: AdamStep) -> None:
    bounds = {
        "learning_rate": (step.learning_rate, 0.0, math.inf),
        "beta1": (step.beta1, 0.0, 1.0),
        "beta2": (step.beta2, 0.0, 1.0),
        "eps": (step.eps, 0.0, math.inf),
        "weight_decay": (step.weight_decay, 0.0, math.inf),
        "grad_clip_norm": (step.grad_clip_norm, 0.0, math.inf),
    }
    for name, (value, low, high) in bounds.items():
        if not low <= value < high:
            raise InputError(f"{name} is {value}; it must be at least {low:g} and below {high:g}")

"""A trained adapter: weights, gradient and Adam state, each one flat tensor; and the AdamW step over them."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cookhouse.engine.contract import AdamStep
from cookhouse.engine.lora import AdapterLayout, Weights
from cookhouse.errors import InputError


@dataclass
class Adapter:
    """State of one training run. All tensors are flat fp32 of `layout.num_parameters` elements."""

    base_model: str
    layout: AdapterLayout
    params: Tensor
    gradient: Tensor
    adam_m: Tensor
    adam_v: Tensor
    num_steps: int = 0

    @classmethod
    def create(cls, base_model: str, layout: AdapterLayout, device: torch.device) -> "Adapter":
        """A fresh adapter with an empty gradient and optimizer."""
        params = layout.initial(device)
        return cls(
            base_model=base_model,
            layout=layout,
            params=params,
            gradient=torch.zeros_like(params),
            adam_m=torch.zeros_like(params),
            adam_v=torch.zeros_like(params),
        )

    def weights(self, dtype: torch.dtype) -> Weights:
        """The present weights for a pass. In fp32 they share memory with `params`: use before the next step."""
        return Weights(self.layout, self.params.to(dtype))

    def frozen_weights(self, dtype: torch.dtype) -> Weights:
        """A copy of the present weights that later steps do not reach."""
        return Weights(self.layout, self.params.to(dtype, copy=True))

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
            self.gradient.zero_()
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
        self.gradient.zero_()
        return {"grad_norm": grad_norm}


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

"""Numbers bounded smoothly: cap · tanh(x / cap), of scores (https://arxiv.org/abs/2408.00118, section 2) or logits."""

from torch import Tensor


def softcap_(x: Tensor, cap: float) -> Tensor:
    """The bounded numbers, in the place of those given."""
    return x.div_(cap).tanh_().mul_(cap)


def softcap_slope(y: Tensor, cap: float) -> Tensor:
    """Derivative by the number before, 1 - (y / cap)², from the bounded one."""
    return (y / cap).square_().neg_().add_(1.0)

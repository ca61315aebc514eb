"""Softmax over the vocabulary: its normalizer, and its gradient in place of the logits.

Legend: C positions, V vocabulary, M targets (several may share a position).
"""

import torch
from torch import Tensor

from cookhouse.engine.kernels.choice import kernels_for


def log_sum_exp(logits_CV: Tensor) -> Tensor:
    """Logarithm of the sum of the exponentials of each row (C,), fp64: less it, the logit of a likely token is near
    zero, and in fp32 would have the error of numbers of the logits' size.
    """
    kernels = kernels_for(logits_CV, "log_sum_exp")
    if kernels is None:
        return torch.logsumexp(logits_CV.double(), -1)
    sums_C = torch.empty(logits_CV.shape[0], dtype=torch.float64, device=logits_CV.device)
    kernels("log_sum_exp", logits_CV.dtype, logits_CV, *logits_CV.shape, sums_C)
    return sums_C


def logits_gradient(logits_CV: Tensor, rows_M: Tensor, tokens_M: Tensor, dlogprobs_M: Tensor) -> Tensor:
    """Gradient (C, V) given that of the targets' log-probabilities; takes the place of the logits, in their dtype.

    Targets are `tokens_M[i]` at row `rows_M[i]`; rows never decrease.
    """
    kernels = kernels_for(logits_CV, "softmax_backward")
    if kernels is not None:
        first_C = torch.searchsorted(rows_M, torch.arange(logits_CV.shape[0] + 1, device=rows_M.device))
        arguments = (first_C, tokens_M.contiguous(), dlogprobs_M.float().contiguous())
        kernels("softmax_backward", logits_CV.dtype, logits_CV, *logits_CV.shape, *arguments)
        return logits_CV
    total_C = torch.zeros(logits_CV.shape[0], device=dlogprobs_M.device).index_add_(0, rows_M, dlogprobs_M)
    gradient_CV = torch.softmax(logits_CV.float(), -1).mul_(-total_C.unsqueeze(1))
    gradient_CV.index_put_((rows_M, tokens_M), dlogprobs_M, accumulate=True)
    return gradient_CV.to(logits_CV.dtype)

"""Where the time of a step goes, by kind of kernel."""

import re
from collections.abc import Callable

from bench.harness import now

_KINDS = (
    ("attention", re.compile(r"flash|fmha|attention|attn|paged", re.IGNORECASE)),
    ("matmul", re.compile(r"gemm|nvjet|cutlass|cublas|splitk|xmma|grouped|aten::(add|b)?mm$", re.IGNORECASE)),
    ("copy", re.compile(r"memcpy|memset|aten::(copy_|_to_copy|fill_|zero_|cat)$", re.IGNORECASE)),
    (
        "elementwise",
        re.compile(
            r"elementwise|vectorized|reduce|softmax|sum_exp|norm|rotate|rotary|gate|index|triton", re.IGNORECASE
        ),
    ),
)
"""Names of CUDA kernels, and of torch's operations on a CPU; the first that matches counts."""


def kind_of(name: str) -> str:
    """What a kernel or operation of some name does: one of the kinds, or `other`."""
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), "other")


def time_by_kind(step: Callable[[], None], device: str) -> dict[str, float]:
    """Shares of the time of one step. `rest` is when no kernel ran; on a CPU it is Python and our own kernels."""
    from torch.profiler import ProfilerActivity, profile

    is_cuda = device == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if is_cuda else ProfilerActivity.CPU]) as profiler:
        start = now(device)
        step()
        seconds = now(device) - start
    shares = dict.fromkeys((*(kind for kind, _ in _KINDS), "other"), 0.0)
    for event in profiler.key_averages():
        if event.device_type.name == device.upper():
            microseconds = event.self_device_time_total if is_cuda else event.self_cpu_time_total
            shares[kind_of(event.key)] += microseconds / 1e6 / seconds
    return shares | {"rest": 1 - sum(shares.values())}

"""Requests put into passes: which run together, in which order, and what becomes of the others when a pass fails."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch

from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput
from cookhouse.engine.lora.adapter import Adapter
from cookhouse.engine.memory import let_go
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.shortage import explained, is_shortage
from cookhouse.engine.train.full import FullModel
from cookhouse.engine.train.trainer import forward_backward

_log = logging.getLogger(__name__)

_ALONE_TOKENS = {torch.float32: 1024, torch.bfloat16: 4096}
"""Requests of at least this many positions share no pass. Eight of them together gained, on two cores, 1.0 × in fp32 at
1,024 each (1.3 × at 256), and in bf16, whose products are cheaper, 1.1 × at 1,024 (1.4 × at 256) and 1.0 × at 4,096."""
_WAY_OUT = "shorten the longest sequence, end other sessions, or use a smaller base model"
_SHORTER = 4
"""Passes are this many times shorter when memory has run out."""

_T = TypeVar("_T")
Job = tuple[ForwardBackward, Adapter]


def run_alone(
    model: FullModel, request: ForwardBackward, budget_tokens: int | None
) -> ForwardBackwardOutput | Exception:
    """One checked request of a run that trains all weights, in passes as of `run_together`; a failure is returned."""
    output = _attempt_alone(model.base, budget_tokens, lambda tokens: model.forward_backward(request, tokens))
    return _let_go(output, model.base.device) if isinstance(output, Exception) else output


def run_together(
    bases: Mapping[str, BaseModel], jobs: Sequence[Job], budget_tokens: int | None
) -> list[ForwardBackwardOutput | Exception]:
    """Checked requests, in shared passes per base model; requests of one adapter one after another, in order.

    Passes have at most `budget_tokens` positions; None: what suits the base model and its device.
    """
    outputs: dict[int, ForwardBackwardOutput | Exception] = {}
    for wave in _waves(jobs):
        for name, members in wave.items():
            for share in _shares(members, jobs, _ALONE_TOKENS[bases[name].dtype]):
                results = _run(bases[name], [jobs[i] for i in share], budget_tokens)
                outputs.update(zip(share, results, strict=True))
    return [outputs[index] for index in range(len(jobs))]


def _run(
    base: BaseModel, jobs: Sequence[Job], budget_tokens: int | None
) -> Sequence[ForwardBackwardOutput | Exception]:
    """Requests of different adapters. When their passes fail, each is tried alone: only one may be to blame."""
    if len(jobs) == 1:
        output = _attempt_alone(base, budget_tokens, lambda tokens: forward_backward(base, jobs, tokens))
        if not isinstance(output, Exception):
            return output
        return [_let_go(output, base.device)]
    outputs = _attempt(lambda: forward_backward(base, jobs, budget_tokens or base.pass_tokens))
    if not isinstance(outputs, Exception):
        return outputs
    let_go(outputs)
    _log.warning("a pass of %d requests failed (%r); each is tried alone", len(jobs), outputs)
    return [output for job in jobs for output in _run(base, [job], budget_tokens)]


def _shares(members: Sequence[int], jobs: Sequence[Job], alone_tokens: int) -> list[list[int]]:
    """Groups of jobs that may share passes: all small ones, and each large one by itself."""
    small: list[int] = []
    large: list[list[int]] = []
    for index in members:
        num_tokens = sum(len(datum.tokens_T) for datum in jobs[index][0].data_D)
        if num_tokens < alone_tokens:
            small.append(index)
        else:
            large.append([index])
    return [small, *large] if small else large


def _attempt_alone(base: BaseModel, budget_tokens: int | None, run: Callable[[int], _T]) -> _T | Exception:
    """Result of a function of the longest pass, or its error.

    Where memory runs out it is called once more, for shorter passes that compute all activations again.
    """
    # Within the attempts: what a device has room for is found in a pass as well, when it is first asked for.
    output = _attempt(lambda: run(budget_tokens or base.pass_tokens))
    if not (isinstance(output, Exception) and is_shortage(output)):
        return output
    _log.warning("memory ran out in a pass (%s); shorter ones are tried", output)
    let_go(output)
    with base.activations.at_most(0):
        return _attempt(lambda: run(max((budget_tokens or base.pass_tokens) // _SHORTER, 1)))


def _attempt(run: Callable[[], _T]) -> _T | Exception:
    """Result of a function, or its error. No gradient is kept before all passes of a request are done."""
    try:
        return run()
    except Exception as error:
        return error


def _let_go(error: Exception, device: torch.device) -> Exception:
    """Free what a request held that failed for good, and say why it did."""
    let_go(error)
    return explained(error, "a pass, in shorter ones as well", device, _WAY_OUT)


def _waves(jobs: Sequence[Job]) -> list[dict[str, list[int]]]:
    """Indices of jobs by base model, in waves of which each holds an adapter once: its requests keep their order."""
    waves: list[dict[str, list[int]]] = []
    depth: dict[int, int] = {}
    for index, (_, adapter) in enumerate(jobs):
        wave = depth.get(id(adapter), 0)
        depth[id(adapter)] = wave + 1
        if wave == len(waves):
            waves.append({})
        waves[wave].setdefault(adapter.base_model, []).append(index)
    return waves

"""Chunks of logits: how large they are, and that finding them does not wait for the device."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from cookhouse.engine.model import head
from cookhouse.engine.model.head import ChunkLogits, Head, Targets
from cookhouse.engine.model.logits import LogitRule
from tests.engine.numerics import assert_same

GPU = torch.device("cuda", 0)
MIB = 2**20
RULES = [LogitRule(), LogitRule(factor=0.4), LogitRule(cap=1.5), LogitRule(factor=3.0, cap=0.8)]


def _logits(output: Head, hidden_NH: torch.Tensor) -> torch.Tensor:
    """By the definition, differentiably."""
    products_NV = hidden_NH @ output.projection.weight.T + output.projection.bias
    cap = output.rule.cap
    logits_NV = products_NV * output.rule.factor
    return logits_NV if cap is None else cap * torch.tanh(logits_NV / cap)


@pytest.mark.parametrize(
    ("device", "free", "expected"),
    [("cpu", 0, 32 - 2**-8), ("cuda", 2**37, 1024), ("cuda", 5 * 2**30, 512), ("cuda", 2**20, 64)],
)
def test_a_chunk_has_a_size_of_few(monkeypatch: pytest.MonkeyPatch, device: str, free: int, expected: float) -> None:
    """Would catch chunks that leave a GPU idle or run it out of memory, or of a size of their own in every pass."""
    monkeypatch.setattr(head, "free_bytes", lambda _: free)
    assert head._chunk_bytes(torch.device(device)) == expected * MIB


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("rows_per_chunk", [1, 2, 3, 100])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_chunks_of_any_size_give_the_same(
    monkeypatch: pytest.MonkeyPatch, rule: LogitRule, rows_per_chunk: int, is_kept: bool
) -> None:
    """Would catch targets that a chunk's bounds send to another row, or drop: some rows have several, others none. And
    logits that are kept for another chunk, or where they are computed again; and a factor or a cap that is left out, or
    whose slope is taken of what has become the gradient.
    """
    torch.manual_seed(0)
    output = Head(nn.Linear(6, 20).requires_grad_(False), "lm_head", rule)
    rows_M = torch.tensor([0, 0, 0, 3, 4, 4, 7])
    targets = Targets(rows_M, torch.tensor([1, 2, 3, 0, 19, 5, 7]))
    dlogprobs_M = torch.tensor([0.5, 0.0, -1.0, 0.0, 2.0, 1.0, 3.0])
    few_M = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 2.0, 0.0])
    hidden_NH = torch.randn(9, 6, requires_grad=True)
    logprobs_NV = torch.log_softmax(_logits(output, hidden_NH), -1)
    expected_M = logprobs_NV[rows_M, targets.tokens_M]
    monkeypatch.setattr(head, "_CPU_BYTES", 4 * 20 * rows_per_chunk)
    for gradient_M in (dlogprobs_M, few_M):
        (gradient_NH,) = torch.autograd.grad(expected_M, hidden_NH, gradient_M, retain_graph=True)
        kept: list[ChunkLogits] | None = [] if is_kept else None
        found_M = output.logprobs(hidden_NH.detach(), targets, (), kept)
        assert_same(found_M, expected_M, torch.float32)
        found_NH = output.backward(hidden_NH.detach(), targets, gradient_M, (), kept)
        assert_same(found_NH, gradient_NH, torch.float32)
        assert not kept  # what is left would be held until the pass is over


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_all_who_ask_for_logits_get_those_of_the_rule(rule: LogitRule) -> None:
    """Would catch a sampler, or the most likely tokens, of other logits than the loss; and weights that are trained
    by the gradient of products that were no logits yet.
    """
    torch.manual_seed(0)
    output = Head(nn.Linear(6, 20), "lm_head", rule)
    hidden_NH, rows = torch.randn(9, 6), torch.tensor([1, 4, 8])
    logits_NV = _logits(output, hidden_NH)
    with torch.no_grad():
        assert_same(output.logits(hidden_NH, ()), logits_NV, torch.float32)
        assert_same(output.rows(hidden_NH, rows, ()), logits_NV[rows], torch.float32)
        ranked, tokens = output.topk_logprobs(hidden_NH, rows, 5, ())
    wanted = torch.log_softmax(logits_NV[rows], -1).topk(5)
    assert_same(ranked, wanted.values, torch.float32)
    assert torch.equal(tokens, wanted.indices)
    targets = Targets(rows, torch.tensor([3, 0, 19]))
    weights = list(output.projection.parameters())
    chosen_M = torch.log_softmax(logits_NV, -1)[rows, targets.tokens_M]
    expected = torch.autograd.grad(chosen_M, weights, torch.ones(3))
    output.backward(hidden_NH, targets, torch.ones(3), ())
    for parameter, gradient in zip(weights, expected, strict=True):
        assert parameter.grad is not None
        assert_same(parameter.grad, gradient, torch.float32)


def test_logits_are_kept_while_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch rows with several targets that are counted for each, a CPU that is asked for a GPU's memory, and
    logits kept in the pass that is tried once more because memory ran out.
    """
    targets = Targets(torch.tensor([0, 0, 0, 3]), torch.zeros(4, dtype=torch.int64))
    output = Head(nn.Linear(6, 20), "lm_head")
    assert not output.can_keep(targets, None)
    monkeypatch.setattr(output, "_weight_VH", SimpleNamespace(shape=(20, 6), dtype=torch.float32, device=GPU))
    for total, expected in ((16 * 2 * 20 * 4, True), (16 * 2 * 20 * 4 - 1, False)):
        monkeypatch.setattr(head, "total_bytes", lambda _, n=total: n)
        assert output.can_keep(targets, None) == expected
    monkeypatch.setattr(head, "total_bytes", lambda _: 2**40)
    for max_bytes, expected in ((0, False), (2 * 20 * 4 - 1, False), (2 * 20 * 4, True)):
        assert output.can_keep(targets, max_bytes) == expected


def test_chunks_are_found_without_the_device() -> None:
    """Would catch a host read for each chunk: what has no memory cannot be read at all."""
    meta = torch.device("meta")
    output = Head(nn.Linear(8, 2**20, device=meta), "lm_head")  # sixteen rows to a chunk
    rows = torch.arange(100)
    targets = Targets(rows, torch.empty(100, dtype=torch.int64, device=meta))
    hidden_NH = torch.empty(100, 8, device=meta)
    assert output.logprobs(hidden_NH, targets, ()).shape == (100,)
    ranked, tokens = output.topk_logprobs(hidden_NH, rows, 3, ())
    assert ranked.shape == tokens.shape == (100, 3)

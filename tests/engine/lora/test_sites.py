"""Adapters of experts, with matrices that all of a layer share, against a plain computation in float64."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.files import checkpoint
from cookhouse.engine.lora.grouped import arrange
from cookhouse.engine.lora.lora import AdapterLayout, Adapters, Routing, Segment, Segments, Weights
from cookhouse.engine.lora.sites import LoraExperts, _is_interleaved
from cookhouse.errors import InputError

CPU = torch.device("cpu")
NUM_EXPERTS, HIDDEN, INNER, ROWS = 4, 8, 16, 9


class Experts(nn.Module):
    """The least that `LoraExperts` replaces."""

    is_transposed = False
    is_concatenated = True

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(NUM_EXPERTS, 2 * INNER, HIDDEN) / 3, requires_grad=False)
        self.down_proj = nn.Parameter(torch.randn(NUM_EXPERTS, HIDDEN, INNER) / 4, requires_grad=False)

    def _apply_gate(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        out: Tensor = nn.functional.silu(gate) * up
        return out


def _plain(base: Any, x_NH: Tensor, chosen_NK: Tensor, weights_NK: Tensor, spans: Sequence[Any]) -> Tensor:
    """Row by row, choice by choice; `spans` are (start, stop, scaling, {child: (A, B)}), A or B may be one."""
    rows = []
    for n, (x_H, chosen_K, weights_K) in enumerate(zip(x_NH, chosen_NK.tolist(), weights_NK, strict=True)):
        found = next((span for span in spans if span[0] <= n < span[1]), None)

        def adapted(x: Tensor, child: str, expert: int, found: Any = found) -> Tensor:
            if found is None:
                return torch.zeros(())
            a, b = (m[min(expert, len(m) - 1)] for m in found[3][f"e.{child}"])
            found_y: Tensor = found[2] * (b @ (a @ x))
            return found_y

        total = torch.zeros_like(x_H)
        for expert, weight in zip(chosen_K, weights_K, strict=True):
            gate, up = (base.gate_up_proj[expert].double() @ x_H).chunk(2)
            gate, up = gate + adapted(x_H, "gate_proj", expert), up + adapted(x_H, "up_proj", expert)
            inner = nn.functional.silu(gate) * up
            down = base.down_proj[expert].double() @ inner + adapted(inner, "down_proj", expert)
            total = total + weight * down
        rows.append(total)
    return torch.stack(rows)


@pytest.mark.parametrize("is_grouped", [False, True])
@pytest.mark.parametrize(
    "spans", [[(0, ROWS, 3, True)], [(0, ROWS, 3, False)], [(0, 4, 3, True), (5, 8, 2, True), (8, ROWS, 3, False)]]
)
def test_experts_and_their_gradients_equal_a_plain_computation(
    spans: list[tuple[int, int, int, bool]], is_grouped: bool
) -> None:
    """Would catch a shared matrix that gets one expert's gradient, or another adapter's, and forms mixed up in a
    pass. The tolerance is some rounding of fp32.
    """
    torch.manual_seed(0)
    base, routing = Experts(), Routing(is_grouped=is_grouped)
    experts = LoraExperts(base, "e", routing)
    x_NH, dy_NH = torch.randn(ROWS, HIDDEN), torch.randn(ROWS, HIDDEN)
    chosen_NK = torch.stack([torch.randperm(NUM_EXPERTS)[:2] for _ in range(ROWS)])
    chosen_NK[chosen_NK == 3] = 2  # an expert without rows
    weights_NK = torch.rand(ROWS, 2)
    segments, plain = [], []
    for start, stop, rank, is_shared in spans:
        layout = AdapterLayout(experts.sites, LoraSpec(rank=rank))
        layout = layout if is_shared else layout.sharing([""] * 3)
        flat = torch.randn(layout.num_parameters)
        gradient = torch.zeros_like(flat)
        segments.append(Segment(start=start, stop=stop, weights=Weights(layout, flat), gradient=layout.views(gradient)))
        exact = flat.double().requires_grad_()
        plain.append((gradient, exact, (start, stop, layout.scaling, layout.views(exact))))
    adapters: Adapters = arrange(segments, ROWS, experts.sites, CPU) if is_grouped else Segments(segments)
    x = x_NH.clone().requires_grad_()
    with routing.use(adapters):
        y = experts(x, chosen_NK, weights_NK)
        torch.autograd.backward(y, dy_NH)
    x64 = x_NH.double().requires_grad_()
    y64 = _plain(base, x64, chosen_NK, weights_NK.double(), [span for _, _, span in plain])
    torch.autograd.backward(y64, dy_NH.double())
    pairs = [(y, y64), (x.grad, x64.grad), *((gradient, exact.grad) for gradient, exact, _ in plain)]
    for got, want in pairs:
        assert got is not None
        assert want is not None
        torch.testing.assert_close(got.double(), want, rtol=0, atol=3e-6 * float(want.detach().abs().max()))


def test_an_older_checkpoint_keeps_its_form(tmp_path: Path) -> None:
    """Would catch a checkpoint in which experts share nothing that is refused, or read as one of the new form; and one
    that says of itself what no adapter here has.
    """
    hosted = AdapterLayout(LoraExperts(Experts(), "e", Routing()).sites, LoraSpec(rank=2))
    assert hosted.num_parameters == 2 * 3 * (HIDDEN + NUM_EXPERTS * INNER)
    own = hosted.sharing([""] * 3)
    for name, layout in (("new", hosted), ("old", own)):
        params = layout.initial(CPU)
        checkpoint.write(tmp_path / name, "m", layout, {"params": params}, 0)
        assert checkpoint.layout_of(tmp_path / name, hosted) == layout
        assert torch.equal(checkpoint.read(tmp_path / name, layout, with_optimizer=False)[0]["params"], params)
    manifest = json.loads((tmp_path / "old" / "adapter.json").read_text())
    assert [len(site) for site in manifest["sites"]] == [3, 3, 3], "as checkpoints of before have it"
    manifest["sites"][2].append("A")
    (tmp_path / "old" / "adapter.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="another base model or adapter shape"):
        checkpoint.layout_of(tmp_path / "old", hosted)


def test_a_fresh_adapter_changes_nothing() -> None:
    """Would catch a shared B of down that starts otherwise than at zero."""
    layout = AdapterLayout(LoraExperts(Experts(), "e", Routing()).sites, LoraSpec(rank=2))
    shapes = {name: (len(a), len(b)) for name, (a, b) in layout.views(layout.initial(CPU)).items()}
    assert shapes == {"e.gate_proj": (1, 4), "e.up_proj": (1, 4), "e.down_proj": (4, 1)}
    assert not any(b.any() for _, b in layout.views(layout.initial(CPU)).values())
    assert replace(layout.sites[0], shared="").num_features == NUM_EXPERTS * (HIDDEN + INNER)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"is_transposed": False}, False),
        ({"is_transposed": True}, True),
        ({"is_transposed": True, "is_concatenated": True}, False),
        ({"is_transposed": False, "is_concatenated": False}, True),
    ],
)
def test_gate_and_up_alternate_as_the_version_of_transformers_says(flags: dict[str, bool], expected: bool) -> None:
    """Would catch gpt-oss whose gates are taken for up projections under a version without the flag."""
    assert _is_interleaved(SimpleNamespace(**flags)) is expected

"""Catches paged attention that looks past a piece or its window, reads slots of no one, or joins chunks wrongly.

Without a GPU the kernels run through Triton's interpreter (`tests/engine/interpreter.py`).
"""

import pytest
import torch

pytest.importorskip("triton")

from cookhouse.engine.kernels.gpu import paged_attention as module
from tests.engine.kernels.gpu.paged_cases import TOLERANCES, Case, Inputs, make_inputs, reference, run

CASES = [
    Case(heads=(4, 4), dims=(24, 16)),
    Case(heads=(4, 2), window=40),
    Case(heads=(8, 2), has_sinks=True, dims=(16, 24)),
    Case(heads=(5, 1), window=100, dtype=torch.float16),
    Case(heads=(8, 1), window=1, has_sinks=True, dtype=torch.bfloat16),
    Case(heads=(4, 1), pieces=[(65, 70), (2, 40)], dtype=torch.bfloat16),
    Case(heads=(2, 2), pieces=[(1, 64), (1, 65), (1, 1)], dtype=torch.float16),
    Case(heads=(4, 2), softcap=0.5, has_sinks=True),
    Case(heads=(4, 2), softcap=20.0, window=40),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_output_equals_plain_attention(case: Case, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 64)
    inputs = make_inputs(case, device)
    out = run(case, inputs)
    assert out.dtype == case.dtype
    tolerance = TOLERANCES[case.dtype]
    torch.testing.assert_close(out.double(), reference(case, inputs), rtol=tolerance, atol=tolerance)


def test_what_a_decoding_sequence_gets_depends_on_itself_alone(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches chunks whose bounds, or whose joining, depend on the table's width, the pieces beside or the workers."""
    monkeypatch.setattr(module, "_CHUNK", 64)
    inputs = make_inputs(Case(), device)
    together = run(Case(), inputs)
    monkeypatch.setattr(module, "_MIN_WORKERS", 1)
    monkeypatch.setattr(module, "_PROGRAMS", 1)
    for piece, row in ((0, 0), (2, 71), (4, 105)):
        (queries, context), width = Case().pieces[piece], -(-Case().pieces[piece][1] // Case().block_size)
        alone = Inputs(
            inputs.q_NHD[row : row + 1],
            inputs.keys,
            inputs.values,
            inputs.tables_SM[piece : piece + 1, :width],
            inputs.starts_S1[:2],
            inputs.contexts_S[piece : piece + 1],
            None,
        )
        assert torch.equal(run(Case(pieces=[(queries, context)]), alone), together[row : row + 1])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("heads", "dims", "window", "has_sinks", "softcap"),
    [
        ((32, 8), (128, 128), None, False, None),
        ((64, 8), (64, 64), None, True, None),
        ((64, 8), (64, 64), 128, True, None),
        ((128, 128), (192, 128), None, False, None),
        ((28, 4), (128, 128), None, False, None),
        ((8, 4), (256, 256), 128, False, 50.0),
        ((8, 4), (256, 256), None, False, 1.0),
    ],
)
def test_shapes_of_models_equal_plain_attention_on_a_gpu(
    heads: tuple[int, int],
    dims: tuple[int, int],
    window: int | None,
    has_sinks: bool,
    softcap: float | None,
    dtype: torch.dtype,
) -> None:
    pieces = [(1, 5000), (1, 17), (700, 900), (1, 1), (33, 1400), (1, 512)]
    case = Case(pieces=pieces, heads=heads, dims=dims, window=window, has_sinks=has_sinks, softcap=softcap, dtype=dtype)
    inputs = make_inputs(case, "cuda")
    inputs.q_NHD.mul_(0.2)  # Random scores of many features would leave one key alone to count.
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(run(case, inputs).double(), reference(case, inputs), rtol=tolerance, atol=tolerance)

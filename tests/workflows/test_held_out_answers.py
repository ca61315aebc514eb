"""Which of the two answers of a held-out pair a model gives, where the data write their reasoning into the text."""

from typing import Any

import numpy as np
import pytest
import tinker

from cookhouse.chat import get_renderer
from cookhouse.data.rows.pairs import preference_from_row
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.workflows.preference.evaluation import PairAnswerEvaluation, askable

pytestmark = pytest.mark.anyio

RENDERER = get_renderer("qwen3", get_tokenizer("cookhouse/tiny"))
ROWS = [
    preference_from_row({"prompt": prompt, "chosen": chosen, "rejected": rejected}, f"x:{number}")
    for number, (prompt, chosen, rejected) in enumerate(
        [
            ("2 + 3?", "<think>a</think>\n5", "<think>b</think>\n6"),
            ("3 + 3?", "<think>c</think>\n6", "7"),
            ("9 + 9?", "<think>nothing is said</think>", "<think>d</think>\n6"),
        ]
    )
]


async def _says_six(prompt: Any, num_samples: int, params: Any) -> tinker.SampleResponse:
    del prompt, num_samples, params
    tokens = RENDERER.encoder.encode_with_specials("<think>\nof its own\n</think>\n\n6<|im_end|>")
    sequence = tinker.types.SampledSequence(
        stop_reason="stop", sequence_id="0", tokens_np=np.array(tokens, dtype=np.int32)
    )
    return tinker.SampleResponse(sequences=[sequence])


async def test_both_answers_are_read_as_the_model_s_are() -> None:
    """Catches a share of rejected answers that is always 0, since only the model's answer lost its reasoning."""
    client: Any = type("Client", (), {"sample": staticmethod(_says_six)})()
    rows = askable(ROWS, RENDERER)
    assert [row.source for row in rows] == ["x:0", "x:1"]
    metrics, _ = await PairAnswerEvaluation(rows, RENDERER, max_tokens=8, context_tokens=None)(client)
    found = [metrics[name] for name in ("answered_chosen", "answered_rejected", "answer_win_rate")]
    assert found == [0.5, 0.5, 0.5]

"""Catches types of `transformers` that end in a bare error here or are computed otherwise, and a page that is wrong."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput, LoraSpec, SampleRequest
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.errors import InputError
from tests.engine.causal_types import save_type
from tests.engine.conftest import VOCAB_SIZE, random_datums
from tests.engine.families import load_reference
from tests.engine.numerics import assert_logprobs_near
from tests.engine.stepping import advance

PAGE = Path(__file__).parents[2] / "docs/reference/architectures.md"
PROMPT_T = np.random.default_rng(5).integers(0, VOCAB_SIZE, 13)


def _listed(heading: str) -> list[str]:
    """Types in backquotes at the beginnings of the rows of a table."""
    _, _, text = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    rows = re.findall(r"^\| ([^|]+) \|", text.partition("\n## ")[0], re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([\w-]+)`", row)]


RUN, REFUSED = _listed("Types that are run"), _listed("Types that are refused")


def test_the_page_has_many_types_and_each_once() -> None:
    assert len(RUN) + len(REFUSED) > 90
    assert len({*RUN, *REFUSED}) == len(RUN) + len(REFUSED)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", REFUSED)
def test_a_type_that_the_page_calls_refused_is_refused_in_words(model_type: str, tmp_path: Path) -> None:
    folder = save_type(tmp_path, model_type)
    with pytest.raises(InputError, match=re.escape(folder)):
        TorchEngine(base_models=[folder], precision="float32")


@pytest.mark.slow
def test_granite_with_recurrent_layers_is_refused_in_words(tmp_path: Path) -> None:
    """The page has it among those that run, without such layers."""
    folder = save_type(tmp_path, "granitemoehybrid", layer_types=["linear_attention", "full_attention"])
    with pytest.raises(InputError, match="it has layers of kind linear_attention"):
        TorchEngine(base_models=[folder], precision="float32")


@pytest.mark.slow
@pytest.mark.parametrize("model_type", RUN)
def test_a_type_that_the_page_calls_run_equals_transformers(model_type: str, tmp_path: Path) -> None:
    """Packed, and sampled through the cache; a dry run says nothing against it."""
    folder = save_type(tmp_path, model_type)
    BaseModel.check_config(folder)
    engine = TorchEngine(base_models=[folder], precision="float32")
    model = load_reference(folder, attn_implementation="eager").eval()

    def wanted(tokens_T: np.ndarray, targets_T: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            logits_TV = model(input_ids=torch.from_numpy(tokens_T)[None], use_cache=False).logits[0].float()
        return torch.log_softmax(logits_TV, -1).gather(1, torch.from_numpy(targets_T)[:, None])[:, 0].numpy()

    engine.create_model("m", folder, LoraSpec(rank=2))
    data_D = random_datums([7, 19])
    request = ForwardBackward(model_id="m", data_D=data_D, loss_fn="cross_entropy")
    (output,) = engine.forward_backward([request])
    assert isinstance(output, ForwardBackwardOutput)
    for datum, logprobs_T in zip(data_D, output.logprobs_D, strict=True):
        assert_logprobs_near(logprobs_T, wanted(datum.tokens_T, datum.loss_fn_inputs["target_tokens"]))
    sampled = SampleRequest(
        request_id="r",
        base_model=folder,
        snapshot_id=None,
        prompt_T=PROMPT_T,
        max_tokens=12,
        temperature=0.0,
        seed=0,
        stop=[],
    )
    engine.submit_sample(sampled)
    (answer,) = [done for _ in range(14) if engine.has_samples() for done in advance(engine)]
    tokens_T = np.concatenate([PROMPT_T, answer.sequences[0].tokens_T]).astype(np.int64)
    expected_T = wanted(tokens_T[:-1], tokens_T[1:])[len(PROMPT_T) - 1 :]
    assert_logprobs_near(answer.sequences[0].logprobs_T, expected_T)

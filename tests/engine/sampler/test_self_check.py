"""Catches models that would be computed or sampled wrongly in silence: what is loaded is tried on a few tokens."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DiffLlamaConfig, LlamaConfig, StableLmConfig

from cookhouse.engine import TorchEngine
from cookhouse.engine.model.attention.packed import PackedLayout
from cookhouse.engine.model.attention.shapes import AttentionShapes
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.model.pretrained import read_model
from cookhouse.engine.sampler.cache import PagedLayout
from cookhouse.engine.sampler.self_check import check_cached
from cookhouse.errors import InputError
from tests.engine.conftest import VOCAB_SIZE, save_model
from tests.engine.families import save_family, skip_first_transformers

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def _checked(folder: Path, change: Callable[[Any], None]) -> BaseModel:
    """A model of `transformers` with a change that this engine is not told of."""
    model = read_model(save_model(folder, LlamaConfig(**SMALL), seed=1), torch.float32, attn_implementation="eager")
    change(model)
    return BaseModel.checked("m", model, None, CPU)


def _nothing(_: Any) -> None:
    pass


def test_a_model_as_it_is_passes(tmp_path: Path) -> None:
    check_cached(_checked(tmp_path, _nothing))


def _mix_neighbours(model: Any) -> None:
    def shifted(_: Any, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        return output + torch.cat([torch.zeros_like(output[:, :1]), inputs[0][:, :-1]], 1)

    model.model.layers[0].mlp.register_forward_hook(shifted)


def test_a_layer_that_mixes_the_sequences_of_a_pass_is_refused(tmp_path: Path) -> None:
    """As a convolution over tokens does, which knows nothing of where a sequence begins."""
    with pytest.raises(InputError, match=r"behind another sequence in a pass, are not what transformers computes"):
        _checked(tmp_path, _mix_neighbours)


def _scale_logits(model: Any) -> None:
    def scaled(_: Any, __: Any, output: Any) -> Any:
        output.logits = output.logits * 0.5
        return output

    model.register_forward_hook(scaled)


def test_logits_that_are_changed_after_the_output_projection_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="its logits are not what transformers computes"):
        _checked(tmp_path, _scale_logits)


def _cap_logits(model: Any) -> None:
    def capped(_: Any, __: Any, output: Any) -> Any:
        output.logits = 30 * torch.tanh(output.logits / 30)
        return output

    model.register_forward_hook(capped)


def test_a_cap_of_logits_is_noticed_where_logits_are_small(tmp_path: Path) -> None:
    """Those of random weights are: a cap of 30 changes them by less than rounding does."""
    with pytest.raises(InputError, match="its logits are not what transformers computes"):
        _checked(tmp_path, _cap_logits)


def test_logits_that_are_all_zero_are_no_difference(tmp_path: Path) -> None:
    """Some models begin with an output projection of zeros. Would catch a division by the length of nothing."""

    def zero(model: Any) -> None:
        model.get_output_embeddings().weight.data.zero_()

    check_cached(_checked(tmp_path, zero))


def test_wider_logits_are_no_difference(tmp_path: Path) -> None:
    """Some models give their logits of bf16 in fp32. Would catch rounding that is taken for a difference."""
    folder = save_model(tmp_path, LlamaConfig(**SMALL), seed=1)
    model = read_model(folder, torch.bfloat16, attn_implementation="eager")

    def widened(_: Any, __: Any, output: Any) -> Any:
        output.logits = output.logits.float()
        return output

    model.register_forward_hook(widened)
    BaseModel.checked("m", model, None, CPU)


def test_another_attention_than_the_published_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that ignores what a layer asks of it."""
    attend = PackedLayout.attend

    def sharper(*args: Any, scaling: float, **kwargs: Any) -> Tensor:
        return attend(*args, scaling=2 * scaling, **kwargs)

    monkeypatch.setattr(PackedLayout, "attend", sharper)
    with pytest.raises(InputError, match="are not what transformers computes"):
        BaseModel.load(save_family(tmp_path, "gpt_oss"), CPU, torch.float32)


def _doubled(folder: Path) -> str:
    skip_first_transformers("its DiffLlama attends in another way")
    return save_model(folder, DiffLlamaConfig(**SMALL, eos_token_id=256, bos_token_id=None), seed=1)


def test_layers_that_attend_twice_are_refused(tmp_path: Path) -> None:
    folder = _doubled(tmp_path)
    with pytest.raises(InputError, match=rf"base model '{folder}': layers \[0, 1\] attend more than once"):
        TorchEngine(base_models=[folder], precision="float32")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_cache_that_keeps_less_than_a_layer_reads_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """The values of a layer's first attention are gone when the next token comes."""
    attend = AttentionShapes.attend

    def forgetful(self: AttentionShapes, *args: Any, **kwargs: Any) -> Tensor:
        out = attend(self, *args, **kwargs)
        self.repeated.clear()
        return out

    monkeypatch.setattr(AttentionShapes, "attend", forgetful)
    with pytest.raises(InputError, match="hidden states from its cache are not what transformers computes"):
        TorchEngine(base_models=[_doubled(tmp_path)], precision=precision)


def test_a_cache_that_is_read_one_position_late_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attend = PagedLayout.attend

    def late(self: PagedLayout, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, **kwargs: Any) -> Tensor:
        return attend(self, layer, q_NHD, k_NKD, v_NKD.roll(1, 0), **kwargs)

    monkeypatch.setattr(PagedLayout, "attend", late)
    with pytest.raises(InputError, match="hidden states from its cache"):
        TorchEngine(base_models=[save_family(tmp_path, "llama")], precision="float32")


def test_layers_that_are_not_told_of_sequences_are_refused_in_words(tmp_path: Path) -> None:
    skip_first_transformers("it makes no StableLM from a config")
    folder = save_model(tmp_path, StableLmConfig(**SMALL, eos_token_id=256, bos_token_id=None), seed=1)
    with pytest.raises(InputError, match="StableLmAttention is not told which sequences a pass consists of"):
        TorchEngine(base_models=[folder], precision="float32")

"""Catches weights that are silently made up, skipped or misread, and models that would be computed wrongly."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    GPT2Config,
    GptOssForCausalLM,
    ModernBertDecoderConfig,
    PhimoeConfig,
)

from cookhouse.engine.model import pretrained, text_part
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.model.logits import LogitRule, logit_rule
from cookhouse.engine.model.pretrained import is_packed, num_weight_bytes, read_config, read_model
from cookhouse.engine.model.text_part import _ignore
from cookhouse.errors import InputError
from tests.engine.conftest import VOCAB_SIZE, save_model
from tests.engine.families import COMPOSITES, CONFIGS, FAMILIES, save_family, skip_first_transformers

CPU = torch.device("cpu")


def _load(folder: Path | str) -> BaseModel:
    return BaseModel.load(str(folder), CPU, torch.float32)


@pytest.mark.parametrize("family", ["qwen2", "qwen3_moe"])
def test_shards_hold_the_same_model_as_one_file(family: str, tmp_path: Path) -> None:
    whole = read_model(save_family(tmp_path / "whole", family), torch.float32)
    shards = read_model(save_family(tmp_path / "shards", family, max_shard_size="40KB"), torch.float32)
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    wanted = dict(whole.named_parameters())
    assert wanted.keys() == dict(shards.named_parameters()).keys()
    assert all(torch.equal(parameter, wanted[name]) for name, parameter in shards.named_parameters())


@pytest.mark.parametrize(("has_accelerate", "expected"), [(True, {"": torch.device("meta")}), (False, None)])
def test_weights_go_straight_to_another_device(
    has_accelerate: bool, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a model that is read into the host's memory first; the meta device stands for a GPU."""
    folder = save_family(tmp_path, "qwen3_moe")
    asked: list[Any] = []
    loaded: list[tuple[str, torch.Tensor]] = []
    whole = read_model(folder, torch.float32)
    cls = text_part.model_class(whole.config)

    class Watched:
        @staticmethod
        def from_pretrained(source: str, *, device_map: Any = None, **options: Any) -> Any:
            asked.append(device_map)
            model, report = cls.from_pretrained(source, device_map=device_map and {"": CPU}, **options)
            loaded.extend((name, parameter.detach()) for name, parameter in model.named_parameters())
            return model, report

    monkeypatch.setattr(text_part, "model_class", lambda *_, **__: Watched)
    monkeypatch.setattr(pretrained, "is_accelerate_available", lambda: has_accelerate)
    model = read_model(folder, torch.float32, device=torch.device("meta"))
    assert asked == [expected]
    assert model.device.type == "meta"
    assert all(torch.equal(weight, whole.get_parameter(name)) for name, weight in loaded)


@pytest.mark.parametrize("family", [*FAMILIES, *COMPOSITES])
def test_the_size_of_a_model_is_known_before_it_is_loaded(family: str, tmp_path: Path) -> None:
    """And that it can be run. Would catch a dry run that refuses what is loaded then."""
    folder = save_family(tmp_path, family)
    BaseModel.check_config(folder)
    model = read_model(folder, torch.bfloat16)
    wanted = sum(parameter.numel() * 2 for parameter in model.parameters())
    assert num_weight_bytes(folder, torch.bfloat16) == wanted


@pytest.mark.parametrize("family", COMPOSITES)
def test_of_a_model_that_takes_images_only_the_text_part_is_read(family: str, tmp_path: Path) -> None:
    path = Path(save_family(tmp_path, family)) / "model.safetensors"
    whole = read_model(str(tmp_path), torch.float32, whole=True)
    tensors = load_file(path)
    text = {name: tensor for name, tensor in tensors.items() if re.search(r"language_model|lm_head", name)}
    assert len(text) < len(tensors)
    save_file(text, path, metadata={"format": "pt"})
    base = _load(tmp_path)
    assert all(re.search(r"language_model|lm_head", name) for name in base.parameters)
    assert all(torch.equal(parameter, whole.get_parameter(name)) for name, parameter in base.parameters.items())
    assert base.info.vocab_size == VOCAB_SIZE
    with pytest.raises(InputError, match="hold no model"):
        read_model(str(tmp_path), torch.float32, whole=True)


def _drop(tensors: dict[str, torch.Tensor], name: str) -> None:
    del tensors[name]


def _narrow(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors[name] = tensors[name][:, :-1].contiguous()


@pytest.mark.parametrize("damage", [_drop, _narrow])
def test_a_weight_that_is_not_there_is_named(
    tmp_path: Path, damage: Callable[[dict[str, torch.Tensor], str], None]
) -> None:
    folder, name = Path(save_family(tmp_path, "qwen3")), "model.layers.1.mlp.up_proj.weight"
    tensors = load_file(folder / "model.safetensors")
    damage(tensors, name)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=f"hold no {name}"):
        _load(folder)


def _truncate(folder: Path) -> None:
    path = sorted(folder.glob("*.safetensors"))[1]
    path.write_bytes(path.read_bytes()[:100])


def _lose(folder: Path) -> None:
    sorted(folder.glob("*.safetensors"))[1].unlink()


def _pickle(folder: Path) -> None:
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    torch.save({}, folder / "pytorch_model.bin")


@pytest.mark.parametrize("damage", [_truncate, _lose, _pickle])
def test_files_that_cannot_be_read_are_refused(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    folder = Path(save_family(tmp_path, "qwen3", max_shard_size="40KB"))
    damage(folder)
    with pytest.raises(InputError, match="cannot load base model"):
        _load(folder)


def _index(**content: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "model.safetensors.index.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | content))

    return change


def _write(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(text)

    return write


def _spoil(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        tensors = {name: torch.full_like(tensor, torch.nan) for name, tensor in load_file(path).items()}
        save_file(tensors, path, metadata={"format": "pt"})


def _neighbor(folder: Path) -> None:
    """Shards that are all there, in another folder."""
    (folder.parent / "other").mkdir()
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    for file in set(index["weight_map"].values()):
        (folder / file).rename(folder.parent / "other" / file)
    index["weight_map"] = {name: f"../other/{file}" for name, file in index["weight_map"].items()}
    path.write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_neighbor, r"names '\.\./other/model-0.*'; weights are read from files beside it alone"),
        (_index(weight_map={"model.norm.weight": 5}), "index.json cannot be read"),
        (_index(weight_map=None), "index.json cannot be read"),
        (_write("model.safetensors.index.json", "{"), "index.json cannot be read"),
        (_write("tokenizer.json", '{"version": 1}'), "cannot load base model"),
        (_write("tokenizer.json", "[]"), "cannot load base model"),
        (_write("tokenizer_config.json", '{"tokenizer_class": 7}'), "cannot load base model"),
        (_write("config.json", "[]"), "cannot load base model"),
        (_write("config.json", "5"), "cannot load base model"),
        (_write("generation_config.json", '{"eos_token_id": "end"}'), "it says of no token that it ends a text"),
        (_write("generation_config.json", "[]"), "cannot load base model"),
        (_write("adapter_config.json", '{"peft_type": "LORA"}'), "has an adapter beside it"),
        (_spoil, "transformers computes NaN or infinity with its weights"),
    ],
)
def test_files_of_strangers_are_refused_in_words(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    """Would catch whatever the libraries that read them raise, and files that are read from elsewhere."""
    folder = Path(save_family(tmp_path / "model", "qwen3", max_shard_size="40KB"))
    damage(folder)
    with pytest.raises(InputError, match=message) as refused:
        _load(folder)
    assert str(folder) in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": "two"},
        {"num_hidden_layers": 0},
        {"hidden_size": -32},
        {"hidden_size": 2.5},
        {"vocab_size": 10**30},
        {"max_position_embeddings": 10**12},
        {"max_position_embeddings": True},
        {"num_attention_heads": 0},
        {"num_key_value_heads": "all"},
        {"layer_types": 5},
        {"layer_types": ["full_attention"]},
        {"layer_types": [["full_attention"], {}]},
        {"rope_parameters": "fast"},
        {"rope_parameters": {"rope_type": "made_up"}},
        {"rope_parameters": {"rope_type": "yarn", "factor": "big"}},
        {"hidden_act": "made_up"},
        {"rms_norm_eps": "small"},
        {"quantization_config": {}},
        {"quantization_config": "fp8"},
        {"quantization_config": {"quant_method": ["fp8"]}},
        {"model_type": 3},
        {"model_type": "made_up"},
        {"auto_map": {"AutoConfig": "evil.Config"}, "model_type": "made_up"},
        {"is_encoder_decoder": True},
        {"text_config": 5, "model_type": "gemma3"},
    ],
    ids=lambda options: str(options)[:60],
)
def test_a_config_that_makes_no_model_is_refused_in_words(tmp_path: Path, options: dict[str, Any]) -> None:
    """Before anything is loaded, as a server learns of a model. Would catch a bare error of the library that builds it,
    a prompt for leave to run a stranger's code, and layers without end.
    """
    folder = save_family(tmp_path, "qwen3")
    if options == {"rms_norm_eps": "small"}:
        skip_first_transformers("it takes any value")
    _set(tmp_path, **options)
    for ask in (BaseModel.check_config, lambda name: num_weight_bytes(name, torch.float32)):
        with pytest.raises(InputError, match=re.escape(folder)):
            ask(folder)


def _set(folder: Path, **options: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"logits_scaling": 8.0}, "logits_scaling"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantized by gptq"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "chunked_attention"),
    ],
)
def test_what_the_engine_would_compute_wrongly_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    save_family(tmp_path, "qwen3")
    _set(tmp_path, **options)
    with pytest.raises(InputError, match=message):
        _load(tmp_path)


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("gemma2", {"final_logit_softcapping": 0.0}, "final_logit_softcapping is 0.0; it must be a number above 0"),
        ("granite", {"logits_scaling": -8.0}, "logits_scaling is -8.0"),
        ("cohere", {"logits_scaling": 2.0}, "it uses logits_scaling, and what cohere means by that is not known"),
        ("granite", {"final_logit_softcapping": 30.0}, "what granite means by that"),
    ],
)
def test_logits_of_no_family_are_refused(tmp_path: Path, family: str, options: dict[str, Any], message: str) -> None:
    """Would catch an option that is read as another family means it, and one that no number can be computed with."""
    save_family(tmp_path, family)
    _set(tmp_path, **options)
    with pytest.raises(InputError, match=message):
        read_config(str(tmp_path))


@pytest.mark.parametrize(
    ("config", "options", "rule"),
    [
        ("GraniteConfig", {"logits_scaling": 8.0}, LogitRule(factor=0.125)),
        ("HyperCLOVAXConfig", {"logits_scaling": 8.0}, LogitRule(factor=8.0)),
        ("CohereConfig", {"logit_scale": 0.25}, LogitRule(factor=0.25)),
        ("CohereConfig", {"logit_scale": None}, LogitRule()),
        ("Gemma2Config", {"final_logit_softcapping": 30.0}, LogitRule(cap=30.0)),
        ("Gemma2Config", {"final_logit_softcapping": None}, LogitRule()),
        ("LlamaConfig", {}, LogitRule()),
        ("Gemma3Config", {"text_config": {"final_logit_softcapping": 30.0}}, LogitRule()),
        ("Gemma3TextConfig", {"final_logit_softcapping": 30.0}, LogitRule(cap=30.0)),
    ],
)
def test_options_mean_what_their_family_means(config: str, options: dict[str, Any], rule: LogitRule) -> None:
    """Would catch a factor that is a divisor elsewhere: families share the names of their options."""
    assert logit_rule(getattr(CONFIGS, config)(**options)) == rule


def test_a_cap_that_a_model_which_takes_images_does_not_apply_is_not_applied(tmp_path: Path) -> None:
    """Gemma 3's config has a cap of logits. The forward of its text alone applies it, that of the whole model does not;
    what is loaded must compute as the whole one does, or be refused.
    """
    folder = save_family(tmp_path, "gemma3")
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    _set(tmp_path, text_config=text | {"final_logit_softcapping": 0.5})
    assert _load(folder).head.rule == LogitRule()


def test_a_window_that_layers_keep_to_themselves_is_refused(tmp_path: Path) -> None:
    """Its mask has the window, of which attention is not told: it would see all keys. A sequence that is shorter than
    the window, as what is tried at load, does not show it.
    """
    skip_first_transformers("its layers of phimoe run over padded batches alone")
    sizes = {"vocab_size": VOCAB_SIZE, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4}
    sizes |= {"max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 0}
    narrow = save_model(tmp_path / "narrow", PhimoeConfig(**sizes, sliding_window=16))
    with pytest.raises(InputError, match="its sliding_window is 16, of which its layers do not tell this engine"):
        _load(narrow)
    _load(save_model(tmp_path / "wide", PhimoeConfig(**sizes, sliding_window=128)))


def test_a_decoder_that_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    """ModernBERT calls its output projection so. Would catch a refusal for a reason that is none, and a dry run that
    gives another one.
    """
    sizes = {"vocab_size": VOCAB_SIZE, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0, "eos_token_id": 0}
    sizes |= dict.fromkeys(("bos_token_id", "cls_token_id", "sep_token_id"), 0)
    folder = save_model(tmp_path, ModernBertDecoderConfig(**sizes))
    for ask in (_load, BaseModel.check_config):
        with pytest.raises(InputError, match=rf"{folder}': what it calls its decoder is its output projection; use"):
            ask(folder)


def test_a_module_that_cannot_carry_an_adapter_is_refused_by_name(tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=VOCAB_SIZE, n_embd=32, n_head=4, n_layer=2, n_positions=64)
    with pytest.raises(InputError, match=r"module transformer\.h\.0\.attn\.c_attn \(Conv1D\) cannot carry an adapter"):
        _load(save_model(tmp_path, config))


def test_mxfp4_experts_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch values that are unpacked wrongly, and a model refused since a version of `transformers` unpacks
    them in bf16 whatever is asked for.
    """
    folder = Path(save_family(tmp_path, "gpt_oss", hidden_size=64, intermediate_size=32))
    path = folder / "model.safetensors"
    tensors = load_file(path)
    generator = torch.Generator().manual_seed(0)
    expected = {}
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        num_experts, num_in, num_out = tensors.pop(name).shape
        blocks = torch.randint(0, 256, (num_experts, num_out, num_in // 32, 16), dtype=torch.uint8, generator=generator)
        scales = torch.randint(122, 126, blocks.shape[:3], dtype=torch.uint8, generator=generator)
        tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = blocks, scales
        expected[name] = _unpack_mxfp4(blocks, scales)
    save_file(tensors, path, metadata={"format": "pt"})
    _set(folder, quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})
    model = read_model(str(folder), torch.float32)
    for name, weight in expected.items():
        assert torch.equal(model.get_parameter(name), weight)
    assert any(site.num_experts for site in _load(folder).sites)
    load = GptOssForCausalLM.from_pretrained

    def in_bf16(*arguments: Any, **options: Any) -> Any:
        found, report = load(*arguments, **options)
        return found.to(torch.bfloat16), report

    monkeypatch.setattr(GptOssForCausalLM, "from_pretrained", in_bf16)
    model = read_model(str(folder), torch.float32)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def _unpack_mxfp4(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Experts (E, I, O) from pairs of 4-bit floats (sign, 2 exponent, 1 mantissa), low half first, times 2^(s - 127).

    OCP Microscaling Formats v1.0, https://www.opencompute.org/settings/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf
    """
    codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(-2)
    sign, exponent, mantissa = (codes >> 3).float(), ((codes >> 1) & 3).float(), (codes & 1).float()
    size = torch.where(exponent == 0, mantissa / 2, (1 + mantissa / 2) * 2 ** (exponent - 1))
    values = (1 - 2 * sign) * size * 2.0 ** (scales.float().unsqueeze(-1) - 127)
    return values.flatten(-2).mT


def test_what_packs_the_text_of_a_model_that_takes_images_is_seen(tmp_path: Path) -> None:
    """Some say so in the config of the text part alone. Would catch weights that are read as they lie."""
    folder = save_family(tmp_path, "gemma3")
    assert not is_packed(folder)
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    _set(tmp_path, text_config=text | {"quantization_config": {"quant_method": "fp8"}})
    assert is_packed(folder)


def test_fp8_weights_are_unpacked(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="transformers unpacks FP8 with it")
    skip_first_transformers("it does not unpack FP8")
    folder = Path(save_family(tmp_path, "deepseek_v3"))
    path = folder / "model.safetensors"
    tensors = load_file(path)
    expected = {}
    for name in [name for name in tensors if name.endswith("proj.weight") and "layers.0" in name]:
        scale = torch.full((1, 1), 0.5)
        packed = (tensors[name] / scale).to(torch.float8_e4m3fn)
        tensors[name], tensors[f"{name}_scale_inv"] = packed, scale
        expected[name] = packed.float() * scale
    save_file(tensors, path, metadata={"format": "pt"})
    others = [f"model.layers.1.{part}" for part in ("self_attn", "mlp")]
    _set(
        folder,
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": others},
    )
    model = read_model(str(folder), torch.float32)
    for name, weight in expected.items():
        assert torch.equal(model.get_parameter(name), weight)


@pytest.mark.parametrize("patterns", [None, ["a"], {"a"}])
def test_what_a_checkpoint_may_hold_besides_is_kept_as_the_version_of_transformers_does(patterns: Any) -> None:
    """Some versions add lists, others join sets, and where there is nothing it is lists."""
    model = SimpleNamespace(_keys_to_ignore_on_load_unexpected=patterns)
    _ignore(model, "b")
    assert model._keys_to_ignore_on_load_unexpected == type(patterns or [])([*(patterns or ()), "b"])

"""Catches weights that mean something else to `peft` or `transformers` than to this engine, and adapters read from
outside that are not what they claim to be.
"""

import json
import math
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig

from cookhouse.assets import resolve_model
from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput, LoraSpec, TrainingDatum
from cookhouse.engine.export import MergedModel, export_merged, export_peft, import_peft, inspect
from cookhouse.engine.files.manifest import is_checkpoint
from cookhouse.errors import InputError
from tests.engine.conftest import VOCAB_SIZE, noise, random_datums, save_model
from tests.engine.families import COMPOSITES, load_reference, save_family, skip_first_transformers
from tests.engine.numerics import assert_logprobs_near

DATUMS = random_datums([23, 9])
TENSORS = "adapter_model.safetensors"
HEAD_ONLY = LoraSpec(rank=5, train_attn=False, train_mlp=False)
ATTENTION_ONLY = LoraSpec(rank=3, train_mlp=False, train_unembed=False)


@pytest.fixture(scope="module")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A two-layer Llama whose output projection is its own, with a generation config that is not the default."""
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=False,
        max_position_embeddings=512,
        eos_token_id=256,
    )
    folder = save_model(tmp_path_factory.mktemp("llama"), config, seed=1)
    GenerationConfig(eos_token_id=[256, 257], do_sample=True, top_k=7).save_pretrained(folder)
    return folder


def trained(folder: str, spec: LoraSpec, output: Path) -> list[Tensor]:
    """Save the checkpoint of an adapter with random weights; return the engine's logprobs of `DATUMS` under it."""
    engine = TorchEngine(base_models=[folder], precision="float32")
    engine.create_model("m", folder, spec)
    params = engine._model("m").params
    params.add_(noise(params, spec.rank), alpha=0.05)
    engine.save_state("m", output, with_optimizer=True)
    return logprobs_of(engine)


def logprobs_of(engine: TorchEngine) -> list[Tensor]:
    (output,) = engine.forward_backward(
        [ForwardBackward(model_id="m", data_D=DATUMS, loss_fn="cross_entropy", forward_only=True)]
    )
    assert isinstance(output, ForwardBackwardOutput)
    return [torch.from_numpy(logprobs) for logprobs in output.logprobs_D]


def logprobs_from(model: Any) -> list[Tensor]:
    """As `logprobs_of`, by a model of `transformers` or `peft`."""
    return [_score(model, datum) for datum in DATUMS]


@torch.no_grad()
def _score(model: Any, datum: TrainingDatum) -> Tensor:
    logits_TV: Tensor = model(torch.from_numpy(datum.tokens_T).unsqueeze(0)).logits[0].float()
    targets_T = torch.from_numpy(datum.loss_fn_inputs["target_tokens"])
    scores: Tensor = torch.log_softmax(logits_TV, -1).gather(1, targets_T.unsqueeze(1)).squeeze(1)
    return scores


def load_base(folder: str) -> Any:
    return load_reference(folder, dtype=torch.float32).eval()


def load_peft(base: str, adapter: Path) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PeftModel.from_pretrained(load_base(base), str(adapter)).eval()
    # What PEFT says of any adapter of a shared output projection, and of ranks of stacked parameters, which it seeks
    # among modules alone; missing or unexpected keys are warnings as well.
    always = ("tie_word_embeddings", "is_gradient_checkpointing", "_pattern keys did not match any targeted module")
    assert [said for said in (str(one.message) for one in caught) if not any(text in said for text in always)] == []
    return model


def assert_all_near(got: list[Tensor], want: list[Tensor]) -> None:
    for one, other in zip(got, want, strict=True):
        assert_logprobs_near(one.numpy(), other.numpy())


def distance(one: list[Tensor], other: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("family", ["qwen3_folder", "llama_folder"])
@pytest.mark.parametrize("spec", [LoraSpec(rank=4), LoraSpec(rank=7), HEAD_ONLY, ATTENTION_ONLY], ids=lambda s: s.rank)
def test_both_exports_compute_what_the_engine_computes(
    family: str, spec: LoraSpec, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Would catch a scaling, a transposed matrix, or an output projection whose adapter nobody applies."""
    base = request.getfixturevalue(family)
    logprobs = trained(base, spec, tmp_path / "checkpoint")
    export_peft(tmp_path / "checkpoint", tmp_path / "peft")
    export_merged(tmp_path / "checkpoint", tmp_path / "merged")
    assert distance(logprobs_from(load_base(base)), logprobs) > 0.05
    assert_all_near(logprobs_from(load_peft(base, tmp_path / "peft")), logprobs)
    assert_all_near(logprobs_from(load_base(str(tmp_path / "merged"))), logprobs)


@pytest.mark.parametrize("family", COMPOSITES)
def test_both_exports_of_a_model_that_takes_images_are_of_the_whole_one(family: str, tmp_path: Path) -> None:
    """Would catch names of the text part alone, which nothing loads, and a merged model whose vision is random."""
    base = save_family(tmp_path / "base", family)
    logprobs = trained(base, LoraSpec(rank=3), tmp_path / "checkpoint")
    export_peft(tmp_path / "checkpoint", tmp_path / "peft")
    export_merged(tmp_path / "checkpoint", tmp_path / "merged")
    assert_all_near(logprobs_from(load_peft(base, tmp_path / "peft")), logprobs)
    assert_all_near(logprobs_from(load_base(str(tmp_path / "merged"))), logprobs)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("base", "merged"))
    seeing = [name for name in before if re.search(r"vis|projector", name)]
    assert seeing
    assert all(torch.equal(before[name], after[name]) for name in seeing)


def test_all_weights_of_a_model_that_takes_images_are_those_of_its_text(tmp_path: Path) -> None:
    """Would catch a checkpoint of all weights that is put into the wrong ones of the whole model."""
    base = save_family(tmp_path / "base", "gemma3")
    logprobs = trained(base, LoraSpec(rank=0), tmp_path / "checkpoint")
    export_merged(tmp_path / "checkpoint", tmp_path / "merged")
    assert distance(logprobs_from(load_base(base)), logprobs) > 0.05
    assert_all_near(logprobs_from(load_base(str(tmp_path / "merged"))), logprobs)


@pytest.mark.parametrize("family", ["qwen2", "qwen3_moe", "deepseek_v3", "gpt_oss", "granitemoe"])
def test_adapters_of_experts_are_exported_as_theirs(family: str, tmp_path: Path) -> None:
    """Would catch a gate that is taken for an up projection, one expert's adapter for another's, or an adapter that
    PEFT loads without its experts.
    """
    base = save_family(tmp_path / "base", family)
    logprobs = trained(base, LoraSpec(rank=3), tmp_path / "checkpoint")
    export_merged(tmp_path / "checkpoint", tmp_path / "merged")
    export_peft(tmp_path / "checkpoint", tmp_path / "peft")
    assert distance(logprobs_from(load_base(base)), logprobs) > 0.05
    assert_all_near(logprobs_from(load_base(str(tmp_path / "merged"))), logprobs)
    if family != "qwen2":
        skip_first_transformers("peft converts names of experts with a later one")
    assert_all_near(logprobs_from(load_peft(base, tmp_path / "peft")), logprobs)


def test_a_model_that_was_packed_is_merged_unpacked(tmp_path: Path) -> None:
    """Would catch full weights under the names of packed ones, which `transformers` replaces by random ones."""
    base = Path(save_family(tmp_path / "base", "gpt_oss", hidden_size=64, intermediate_size=32))
    tensors = load_file(base / "model.safetensors")
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        num_experts, num_in, num_out = tensors.pop(name).shape
        blocks = torch.randint(0, 256, (num_experts, num_out, num_in // 32, 16), dtype=torch.uint8)
        tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = blocks, torch.full_like(blocks[..., 0], 120)
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
    packing = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    config = {**json.loads((base / "config.json").read_text()), "quantization_config": packing}
    (base / "config.json").write_text(json.dumps(config))
    logprobs = trained(str(base), LoraSpec(rank=3), tmp_path / "checkpoint")
    export_merged(tmp_path / "checkpoint", tmp_path / "merged")
    assert "quantization_config" not in json.loads((tmp_path / "merged" / "config.json").read_text())
    assert_all_near(logprobs_from(load_base(str(tmp_path / "merged"))), logprobs)


def test_a_merged_model_is_a_whole_one(llama_folder: str, tmp_path: Path) -> None:
    """Would catch a folder without a tokenizer, or with a generation config of its own invention."""
    trained(llama_folder, LoraSpec(rank=2), tmp_path / "checkpoint")
    export_merged(tmp_path / "checkpoint", tmp_path / "merged", precision="bfloat16")
    assert AutoTokenizer.from_pretrained(tmp_path / "merged")("abc") == AutoTokenizer.from_pretrained(llama_folder)(
        "abc"
    )
    generation = GenerationConfig.from_pretrained(tmp_path / "merged")
    assert (generation.eos_token_id, generation.do_sample, generation.top_k) == ([256, 257], True, 7)
    assert {tensor.dtype for tensor in load_file(tmp_path / "merged" / "model.safetensors").values()} == {
        torch.bfloat16
    }
    assert not list(tmp_path.rglob("*.bin"))


def test_a_shared_output_projection_is_parted_only_if_it_is_adapted(qwen3_folder: str, tmp_path: Path) -> None:
    """Would catch an adapter of the output that reaches the embeddings, and a model larger than it needs to be."""
    embeddings = load_base(qwen3_folder).get_input_embeddings().weight
    for spec, is_tied in ((HEAD_ONLY, False), (ATTENTION_ONLY, True)):
        name = str(is_tied)
        trained(qwen3_folder, spec, tmp_path / name)
        export_merged(tmp_path / name, tmp_path / f"{name}-merged")
        tensors = load_file(tmp_path / f"{name}-merged" / "model.safetensors")
        config = json.loads((tmp_path / f"{name}-merged" / "config.json").read_text())
        assert config["tie_word_embeddings"] is is_tied
        assert ("lm_head.weight" in tensors) is not is_tied
        assert torch.equal(tensors["model.embed_tokens.weight"], embeddings)


@pytest.mark.parametrize(("spec", "is_tied"), [(ATTENTION_ONLY, True), (LoraSpec(rank=4), False)])
def test_a_merged_model_keeps_the_precision_of_its_base(
    spec: LoraSpec, is_tied: bool, qwen3_folder: str, tmp_path: Path
) -> None:
    """Would catch a model that is twice as large as its base, and one that is rounded twice or not as it was asked."""
    base = tmp_path / "base"
    shutil.copytree(qwen3_folder, base)
    load_base(qwen3_folder).to(torch.bfloat16).save_pretrained(base)
    logprobs = trained(str(base), spec, tmp_path / "checkpoint")
    kept = export_merged(tmp_path / "checkpoint", tmp_path / "kept")
    wide = export_merged(tmp_path / "checkpoint", tmp_path / "wide", precision="float32")
    assert kept == MergedModel(precision="bfloat16", is_untied=not is_tied)
    assert wide == MergedModel(precision="float32", is_untied=not is_tied)
    models = {name: AutoModelForCausalLM.from_pretrained(tmp_path / name, dtype="auto") for name in ("kept", "wide")}
    assert {parameter.dtype for parameter in models["kept"].parameters()} == {torch.bfloat16}
    assert models["kept"].config.tie_word_embeddings is is_tied
    assert_all_near(logprobs_from(models["wide"]), logprobs)
    rounded = {name: weight.to(torch.bfloat16) for name, weight in models["wide"].named_parameters()}
    assert all(torch.equal(rounded[name], weight) for name, weight in models["kept"].named_parameters())
    assert "dtype='bfloat16'" in (tmp_path / "kept" / "README.md").read_text()


def test_an_export_comes_back_to_the_bit(qwen3_folder: str, tmp_path: Path) -> None:
    spec = LoraSpec(rank=6, train_mlp=False)
    logprobs = trained(qwen3_folder, spec, tmp_path / "checkpoint")
    export_peft(tmp_path / "checkpoint", tmp_path / "peft")
    assert import_peft(tmp_path / "peft", tmp_path / "again") == (qwen3_folder, spec)
    tensors = load_file(tmp_path / "again" / "adapter.safetensors")
    assert torch.equal(tensors["params"], load_file(tmp_path / "checkpoint" / "adapter.safetensors")["params"])
    engine = TorchEngine(precision="float32")
    engine.load_state("m", qwen3_folder, spec, tmp_path / "again", with_optimizer=False)
    assert distance(logprobs_of(engine), logprobs) == 0
    with pytest.raises(InputError, match="holds no adam_m"):
        engine.load_state("n", qwen3_folder, spec, tmp_path / "again", with_optimizer=True)
    assert inspect(tmp_path / "again").num_steps == 0


@pytest.mark.parametrize("family", ["qwen3_folder", "llama_folder"])
@pytest.mark.parametrize(
    "config",
    [
        {"r": 4, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"]},
        {"r": 6, "lora_alpha": 7, "target_modules": "all-linear", "init_lora_weights": "gaussian"},
        {"r": 6, "lora_alpha": 12, "use_rslora": True, "target_modules": ["down_proj", "k_proj"]},
        {"r": 4, "lora_alpha": 16, "target_modules": ["o_proj"], "layers_to_transform": [1]},
        {"r": 4, "lora_alpha": 16, "target_modules": ["lm_head", "o_proj"]},
    ],
    ids=["attention", "every-layer", "rslora", "one-layer", "head"],
)
def test_an_adapter_that_peft_saved_computes_the_same_here(
    family: str, config: dict[str, Any], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Would catch a scaling that is lost, or noise in the modules that the adapter leaves alone."""
    base = request.getfixturevalue(family)
    logprobs = _saved_by_peft(base, config, tmp_path / "peft")
    name, spec = import_peft(tmp_path / "peft", tmp_path / "checkpoint")
    assert (name, spec.rank) == (base, config["r"])
    engine = TorchEngine(precision="float32")
    engine.load_state("m", name, spec, tmp_path / "checkpoint", with_optimizer=False)
    assert distance(logprobs_from(load_base(base)), logprobs) > 0.01
    assert_all_near(logprobs_of(engine), logprobs)


def _saved_by_peft(base: str, config: dict[str, Any], folder: Path) -> list[Tensor]:
    """An adapter with random weights, made and saved by PEFT; logprobs under it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(load_base(base), LoraConfig(**config)).eval()
        torch.manual_seed(3)
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.data.normal_(std=0.05)
        model.save_pretrained(folder)
        return logprobs_from(model)


@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("qwen3_moe", {"r": 3, "target_modules": ["q_proj", "gate_proj", "up_proj", "down_proj"]}),
        ("qwen3_moe", {"r": 3, "target_modules": ["q_proj"], "target_parameters": ["experts.gate_up_proj"]}),
        ("gpt_oss", {"r": 3, "target_modules": [], "target_parameters": ["mlp.experts.down_proj"]}),
        ("gpt_oss", {"r": 2, "target_parameters": ["gate_up_proj", "down_proj"], "target_modules": ["o_proj"]}),
        ("deepseek_v3", {"r": 3, "target_modules": ["kv_b_proj", "o_proj"], "rank_pattern": {"o_proj": 5}}),
        ("deepseek_v3", {"r": 3, "target_modules": ["o_proj"], "alpha_pattern": {r".*\.0\.self_attn\.o_proj": 5}}),
        ("qwen3_vl", {"r": 3, "target_modules": r".*language_model.*(q_proj|down_proj)"}),
        ("gemma3", {"r": 3, "target_modules": r".*language_model.*proj"}),
    ],
)
def test_adapters_that_peft_makes_for_a_family_compute_the_same_here(
    family: str, config: dict[str, Any], tmp_path: Path
) -> None:
    """Would catch experts that are mixed up, and a rank or a scaling of some modules that is taken for that of all."""
    base = save_family(tmp_path / "base", family)
    logprobs = _saved_by_peft(base, {"lora_alpha": 9, **config}, tmp_path / "peft")
    name, spec = import_peft(tmp_path / "peft", tmp_path / "checkpoint")
    engine = TorchEngine(precision="float32")
    engine.load_state("m", name, spec, tmp_path / "checkpoint", with_optimizer=False)
    assert distance(logprobs_from(load_base(base)), logprobs) > 0.01
    assert_all_near(logprobs_of(engine), logprobs)


@pytest.mark.parametrize("pattern", ["^q_proj", ".*_proj", "q.proj", "self_attn.q_proj", r"layers\.1\..*"])
def test_patterns_mean_what_they_mean_to_peft(pattern: str, qwen3_folder: str, tmp_path: Path) -> None:
    """A wrong scaling is silent. Would catch a pattern of part of a name, or of the whole, that is read as another."""
    config = {"r": 3, "lora_alpha": 9, "target_modules": ["q_proj", "v_proj"], "alpha_pattern": {pattern: 48}}
    logprobs = _saved_by_peft(qwen3_folder, config, tmp_path / "peft")
    if pattern.endswith(".*"):
        with pytest.raises(InputError, match="use names of modules, or ends of them"):
            import_peft(tmp_path / "peft", tmp_path / "checkpoint")
        return
    name, spec = import_peft(tmp_path / "peft", tmp_path / "checkpoint")
    engine = TorchEngine(precision="float32")
    engine.load_state("m", name, spec, tmp_path / "checkpoint", with_optimizer=False)
    assert_all_near(logprobs_of(engine), logprobs)


def test_an_adapter_of_a_router_is_refused_by_name(tmp_path: Path) -> None:
    """`all-linear` of PEFT means the routers as well, which are frozen here."""
    base = save_family(tmp_path / "base", "qwen3_moe")
    _saved_by_peft(base, {"r": 3, "target_modules": "all-linear"}, tmp_path / "peft")
    with pytest.raises(InputError, match=r"adapts model\.layers\.1\.mlp\.gate, which"):
        import_peft(tmp_path / "peft", tmp_path / "checkpoint")


@pytest.mark.parametrize("family", ["qwen3_moe", "gpt_oss", "kimi_k25"])
def test_exported_experts_come_back_to_the_bit(family: str, tmp_path: Path) -> None:
    base = save_family(tmp_path / "base", family)
    trained(base, LoraSpec(rank=3), tmp_path / "checkpoint")
    export_peft(tmp_path / "checkpoint", tmp_path / "peft")
    engine = TorchEngine(precision="float32")
    engine.load_state("m", base, LoraSpec(rank=3), tmp_path / "checkpoint", with_optimizer=False)
    engine.save_external("m", tmp_path / "external", base_name=base)
    before = load_file(tmp_path / "checkpoint" / "adapter.safetensors")["params"]
    for form in ("peft", "external"):
        assert import_peft(tmp_path / form, tmp_path / f"from {form}") == (base, LoraSpec(rank=3))
        assert torch.equal(before, load_file(tmp_path / f"from {form}" / "adapter.safetensors")["params"])
    shapes = {a.shape[0] for key, a in load_file(tmp_path / "external" / TENSORS).items() if ".w1.lora_A" in key}
    assert shapes == {1}


@pytest.mark.parametrize("prefix", ["model.", "language_model.model."])
def test_an_adapter_of_the_text_alone_fits_the_whole_model(prefix: str, tmp_path: Path) -> None:
    """Other libraries load the text part under names of its own."""
    base = save_family(tmp_path / "base", "gemma3")
    logprobs = trained(base, LoraSpec(rank=3, train_unembed=False), tmp_path / "checkpoint")
    export_peft(tmp_path / "checkpoint", tmp_path / "peft")
    start = "base_model.model."

    def rename(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            tensors[name.replace(f"{start}model.language_model.", f"{start}{prefix}")] = tensors.pop(name)

    change_tensors(tmp_path / "peft", rename)
    # Patterns are of the names there.
    keys = [key for key in load_file(tmp_path / "peft" / TENSORS) if "lora_A" in key]
    modules = [key.removeprefix(start).removesuffix(".lora_A.weight") for key in keys]
    change_config(tmp_path / "peft", lora_alpha=1, alpha_pattern=dict.fromkeys(modules, 32))
    name, spec = import_peft(tmp_path / "peft", tmp_path / "again")
    engine = TorchEngine(precision="float32")
    engine.load_state("m", name, spec, tmp_path / "again", with_optimizer=False)
    assert_all_near(logprobs_of(engine), logprobs)


def test_the_base_model_may_be_named_anew(qwen3_folder: str, tmp_path: Path) -> None:
    trained(qwen3_folder, ATTENTION_ONLY, tmp_path / "checkpoint")
    export_peft(tmp_path / "checkpoint", tmp_path / "peft")
    change_config(tmp_path / "peft", base_model_name_or_path="/somewhere/else")
    with pytest.raises(InputError, match="cannot load base model '/somewhere/else'"):
        import_peft(tmp_path / "peft", tmp_path / "again")
    assert import_peft(tmp_path / "peft", tmp_path / "again", base_model=qwen3_folder)[0] == qwen3_folder
    change_config(tmp_path / "peft", base_model_name_or_path=None)
    with pytest.raises(InputError, match="does not name its base model"):
        import_peft(tmp_path / "peft", tmp_path / "third")


def test_the_embedded_model_keeps_its_name(tmp_path: Path) -> None:
    """Would catch a checkpoint of the embedded model that no run can load, since it is one of a folder."""
    trained("cookhouse/tiny", LoraSpec(rank=2, train_mlp=False, train_unembed=False), tmp_path / "checkpoint")
    export_peft(tmp_path / "checkpoint", tmp_path / "peft")
    config = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "cookhouse/tiny"
    card = (tmp_path / "peft" / "README.md").read_text()
    assert "name = resolve_model('cookhouse/tiny')" in card
    assert max(len(line) for line in card.splitlines() if "from_pretrained" in line) <= 85, "a terminal breaks it"
    assert import_peft(tmp_path / "peft", tmp_path / "again")[0] == "cookhouse/tiny"


@pytest.mark.parametrize("name", ["kitchen/base", "cookhouse/tiny"])
def test_an_export_says_nothing_of_the_folders_of_its_machine(qwen3_folder: str, tmp_path: Path, name: str) -> None:
    """Would catch an export that is of use on one machine alone, and a path of it that everybody reads."""
    source = qwen3_folder if name == "kitchen/base" else name
    trained(source, ATTENTION_ONLY, tmp_path / "checkpoint")
    export_peft(tmp_path / "checkpoint", tmp_path / "peft", base_name=name)
    export_merged(tmp_path / "checkpoint", tmp_path / "merged", base_name=name)
    config = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == name
    for folder in ("peft", "merged"):
        assert f'base_model: "{name}"' in (tmp_path / folder / "README.md").read_text()
        for file in (tmp_path / folder).iterdir():
            content = file.read_bytes()
            assert resolve_model(source).encode() not in content, file.name
            assert str(tmp_path).encode() not in content, file.name


def change_config(folder: Path, **fields: Any) -> None:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def change_tensors(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, folder / "adapter_model.safetensors")


Q_PROJ = "base_model.model.model.layers.0.self_attn.q_proj"


def put(key: str, tensor: Tensor) -> Callable[[Path], None]:
    return lambda folder: change_tensors(folder, lambda tensors: tensors.update({key: tensor}))


def drop(key: str) -> Callable[[Path], None]:
    return lambda folder: change_tensors(folder, lambda tensors: tensors.__delitem__(key))


def configure(**fields: Any) -> Callable[[Path], None]:
    return lambda folder: change_config(folder, **fields)


def write_text(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(text)

    return write


def claim_huge_shape(folder: Path) -> None:
    """A header that promises 2^62 numbers, and none behind it."""
    entry = {"dtype": "F32", "shape": [2**31, 2**31], "data_offsets": [0, 2**64 - 1]}
    header = json.dumps({f"{Q_PROJ}.lora_A.weight": entry}).encode()
    (folder / "adapter_model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)


def become_pickle(folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (become_pickle, "a pickle, which may run code"),
        (configure(use_dora=True), "sets use_dora=True"),
        (configure(bias="lora_only"), "sets bias='lora_only'"),
        (configure(modules_to_save=["embed_tokens"]), "sets modules_to_save="),
        (configure(rank_pattern={"q_proj": 2}), "q_proj has matrices of rank 3, which is not of rank 2"),
        (configure(rank_pattern={"q_proj": True}), "rank_pattern of q_proj is True"),
        (configure(alpha_pattern={"q_proj": -1}), "alpha_pattern of q_proj is -1"),
        (configure(alpha_pattern={"(a+)+": 1}), r"alpha_pattern has '\(a\+\)\+'; use names of modules"),
        (configure(alpha_pattern=[1]), "alpha_pattern is not an object"),
        (configure(target_parameters="experts.down_proj"), "must be a list of names"),
        (configure(fan_in_fan_out=True), "sets fan_in_fan_out=True"),
        (configure(init_lora_weights="pissa"), "sets init_lora_weights='pissa'"),
        (configure(made_up_tomorrow=1), "sets made_up_tomorrow=1"),
        (configure(peft_type="IA3"), "peft_type is 'IA3'; only LORA"),
        (configure(r=0), "r is 0"),
        (configure(r=True), "r is True"),
        (configure(r=5), "not of rank 5"),
        (configure(r=10**400), "not of rank"),
        (configure(lora_alpha="32"), "lora_alpha is '32'"),
        (configure(lora_alpha=math.nan), "lora_alpha is nan"),
        (configure(lora_alpha=10**400), "lora_alpha is 1000"),
        (configure(lora_alpha=0), "lora_alpha is 0"),
        (write_text("adapter_config.json", "[]"), "peft_type is None"),
        (write_text("adapter_config.json", "[" * 10**5), "no readable PEFT adapter"),
        (write_text("adapter_config.json", " " * (2**20 + 1)), "larger than"),
        (write_text("adapter_model.safetensors", "not this"), "cannot be read"),
        (claim_huge_shape, "cannot be read"),
        (drop(f"{Q_PROJ}.lora_A.weight"), "q_proj has one of lora_A and lora_B"),
        (put(f"{Q_PROJ}.lora_B.weight", torch.full((64, 3), math.nan)), "holds NaN or infinity"),
        (put(f"{Q_PROJ}.lora_B.weight", torch.full((64, 3), 3e38)), ""),
        (put(f"{Q_PROJ}.lora_B.weight", torch.zeros((63, 3))), "needs"),
        (put(f"{Q_PROJ}.lora_B.weight", torch.zeros((64, 3, 1))), r"needs \(rank, 64\)"),
        (put(f"{Q_PROJ}.lora_B.weight", torch.zeros((64, 3), dtype=torch.int64)), "must be a matrix of F32"),
        (put(f"{Q_PROJ}.lora_magnitude_vector.weight", torch.zeros((64, 1))), "lora_magnitude_vector"),
        (put("base_model.model.../../x.lora_A.weight", torch.zeros((3, 64))), re.escape("../../x")),
        (put("base_model.model.model.norm.base_layer.weight", torch.zeros((1, 64))), "holds weights of model.norm"),
        (put(f"{Q_PROJ}.base_layer.weight", torch.zeros((64, 64))), "that are not those of"),
        (write_text("adapter_config.json", '{"r": ' + "1" * 5000 + "}"), "no readable PEFT adapter"),
    ],
)
def test_what_cannot_be_imported_is_refused_by_name(
    damage: Callable[[Path], None], message: str, qwen3_folder: str, tmp_path: Path
) -> None:
    """Would catch an adapter that is imported as something else than it is, a crash, or half a checkpoint."""
    trained(qwen3_folder, ATTENTION_ONLY, tmp_path / "checkpoint")
    export_peft(tmp_path / "checkpoint", tmp_path / "peft")
    damage(tmp_path / "peft")
    if message:
        with pytest.raises(InputError, match=message):
            import_peft(tmp_path / "peft", tmp_path / "again")
        assert not (tmp_path / "again").exists()
    else:
        change_config(tmp_path / "peft", lora_alpha=2**20)
        with pytest.raises(InputError, match="is not finite"):
            import_peft(tmp_path / "peft", tmp_path / "again")


def test_one_module_under_two_names_is_refused(tmp_path: Path) -> None:
    """Would catch one of two adapters of it that is lost in silence."""
    base = save_family(tmp_path / "base", "gemma3")
    trained(base, ATTENTION_ONLY, tmp_path / "checkpoint")
    export_peft(tmp_path / "checkpoint", tmp_path / "peft")
    own = "model.language_model."
    change_tensors(
        tmp_path / "peft",
        lambda tensors: tensors.update({key.replace(own, "model."): tensors[key].clone() for key in list(tensors)}),
    )
    with pytest.raises(InputError, match=rf"adapts {own}layers\.0\.\S+ under 2 names"):
        import_peft(tmp_path / "peft", tmp_path / "again")


def test_weights_of_experts_as_a_whole_are_refused(tmp_path: Path) -> None:
    """There is no parameter of that name. Would catch a bare error."""
    base = save_family(tmp_path / "base", "qwen3_moe")
    config = {"r": 3, "lora_alpha": 9, "target_parameters": ["experts.gate_up_proj"], "target_modules": []}
    _saved_by_peft(base, config, tmp_path / "peft")
    put("base_model.model.model.layers.1.mlp.experts.base_layer.weight", torch.zeros(2, 2))(tmp_path / "peft")
    with pytest.raises(InputError, match=r"holds weights of .*experts that are not those of"):
        import_peft(tmp_path / "peft", tmp_path / "again")


def test_an_adapter_of_another_model_is_refused(qwen3_folder: str, llama_folder: str, tmp_path: Path) -> None:
    trained(qwen3_folder, ATTENTION_ONLY, tmp_path / "checkpoint")
    export_peft(tmp_path / "checkpoint", tmp_path / "peft")
    with pytest.raises(InputError, match="the base model needs"):
        import_peft(tmp_path / "peft", tmp_path / "again", base_model=llama_folder)
    change_tensors(
        tmp_path / "peft",
        lambda tensors: tensors.update({key.replace(".1.", ".2."): tensors.pop(key) for key in list(tensors)}),
    )
    with pytest.raises(InputError, match=r"adapts model\.layers\.2\.self_attn\.k_proj.* and 1 more, which"):
        import_peft(tmp_path / "peft", tmp_path / "again")


def test_an_adapter_of_a_rank_that_cannot_be_loaded_is_not_imported(llama_folder: str, tmp_path: Path) -> None:
    """Would catch a checkpoint that is kept and listed, but that the engine refuses when it is used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapter = get_peft_model(load_base(llama_folder), LoraConfig(r=49, target_modules=["q_proj"]))
        adapter.save_pretrained(tmp_path / "peft")
    with pytest.raises(InputError, match=r"LoRA rank is 49; .* takes 1 to 48"):
        import_peft(tmp_path / "peft", tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()


def test_nothing_is_written_over(qwen3_folder: str, tmp_path: Path) -> None:
    trained(qwen3_folder, ATTENTION_ONLY, tmp_path / "checkpoint")
    export_peft(tmp_path / "checkpoint", tmp_path / "peft")
    for write in (export_peft, export_merged):
        with pytest.raises(InputError, match="exists; choose another name"):
            write(tmp_path / "checkpoint", tmp_path / "peft")
    with pytest.raises(InputError, match="exists; choose another name"):
        import_peft(tmp_path / "peft", tmp_path / "checkpoint")
    with pytest.raises(InputError, match="holds no readable checkpoint"):
        export_peft(tmp_path / "peft", tmp_path / "out")
    with pytest.raises(InputError, match="unknown precision 'int8'"):
        export_merged(tmp_path / "checkpoint", tmp_path / "out", precision="int8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "peft"]


def test_a_checkpoint_says_what_it_holds(qwen3_folder: str, tmp_path: Path) -> None:
    trained(qwen3_folder, ATTENTION_ONLY, tmp_path / "checkpoint")
    info = inspect(tmp_path / "checkpoint")
    assert (info.base_model, info.lora, info.num_steps) == (qwen3_folder, ATTENTION_ONLY, 0)
    assert is_checkpoint(tmp_path / "checkpoint")
    num_parameters = 3 * 2 * ((64 + 64) + 2 * (64 + 32) + (64 + 64))
    assert 3 * 4 * num_parameters < info.num_bytes < 3 * 4 * num_parameters + 5000


def test_a_base_model_whose_weights_have_changed_is_refused(qwen3_folder: str, tmp_path: Path) -> None:
    """Catches an adapter that is added to other weights than those that it was trained over, under the same name."""
    base = tmp_path / "base"
    shutil.copytree(qwen3_folder, base)
    trained(str(base), LoraSpec(rank=2), tmp_path / "s")
    export_peft(tmp_path / "s", tmp_path / "peft")
    tensors = load_file(base / "model.safetensors")
    tensors["model.norm.weight"][0] += 1
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
    engine = TorchEngine(base_models=[str(base)], precision="float32")
    uses: list[Callable[[], Any]] = [
        lambda: export_peft(tmp_path / "s", tmp_path / "o"),
        lambda: export_merged(tmp_path / "s", tmp_path / "o"),
        lambda: import_peft(tmp_path / "peft", tmp_path / "o"),
        lambda: engine.load_state("m", str(base), LoraSpec(rank=2), tmp_path / "s", with_optimizer=True),
        lambda: engine.load_snapshot("s", str(base), LoraSpec(rank=2), tmp_path / "s"),
    ]
    for use in uses:
        with pytest.raises(InputError, match=r"of base model .*base have changed since .*: model.safetensors differs"):
            use()
    assert not (tmp_path / "o").exists()
    shutil.copyfile(Path(qwen3_folder) / "model.safetensors", base / "model.safetensors")
    import_peft(tmp_path / "peft", tmp_path / "o")
    moved = shutil.move(base, tmp_path / "moved")  # it is told by what it holds
    assert import_peft(tmp_path / "peft", tmp_path / "again", base_model=str(moved))[0] == str(moved)

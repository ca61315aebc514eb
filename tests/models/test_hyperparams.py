"""Learning rates by rule, and adapter sizes."""

import json
import struct
from pathlib import Path

import pytest
from tests.engine.families import COMPOSITES, FAMILIES, save_family
from tests.engine.test_families import NUM_FEATURES
from tests.models.catalog.fake_hub import fake_hub

from cookhouse.errors import InputError
from cookhouse.models.hub import HuggingFaceHub, NoopHub, hub_in_use
from cookhouse.models.hyperparams import get_lr, lora_parameter_count, rate_notes, reward_lr


@pytest.mark.parametrize(
    ("model", "expected"),
    [("meta-llama/Llama-3.1-8B", 2.8564e-4), ("Qwen/Qwen3-8B", 4.7298e-4), ("Qwen/Qwen3-8B-Base", 4.7298e-4)],
)
def test_learning_rate_of_known_models(model: str, expected: float) -> None:
    assert get_lr(model) == pytest.approx(expected, rel=1e-4)
    assert get_lr(model, is_lora=False) == pytest.approx(expected / 10, rel=1e-4)


def test_learning_rate_of_the_embedded_model_reads_its_width() -> None:
    assert 4.7e-4 < get_lr("cookhouse/tiny") < 8e-4


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("google/gemma-3-4b-it", r"there is no published .*\(family gemma-3; there is one for llama, .*such as 2e-4"),
        ("openai/gpt-oss-20b", "family gpt-oss"),
        ("Qwen/Qwen3-9B", "the hidden size of .* is not known"),
    ],
)
def test_a_family_without_a_rule_or_width_is_refused_with_the_way_out(model: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        get_lr(model)


@pytest.mark.parametrize("width", [0, -64, "wide", True, 2.5])
def test_a_width_that_is_none_is_not_known(width: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": width}))
    with pytest.raises(InputError, match=r"the hidden size of .* is not known"):
        get_lr(str(tmp_path))


def test_a_model_whose_architecture_has_a_rule_takes_it(tmp_path: Path) -> None:
    """Would catch SmolLM2, whose config.json says llama, trained at the rate of a model that is seven times as wide."""
    assert get_lr("HuggingFaceTB/SmolLM2-135M-Instruct") == pytest.approx(1.3219e-3, rel=1e-4)
    config = {"model_type": "llama", "vocab_size": 49152, "hidden_size": 576}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert get_lr(str(tmp_path)) == pytest.approx(1.3219e-3, rel=1e-4)
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 128258, "hidden_size": 4096}))
    assert get_lr(str(tmp_path)) == pytest.approx(2.8564e-4, rel=1e-4)


@pytest.mark.parametrize(
    ("model", "is_lora", "rate"),
    [
        ("HuggingFaceTB/SmolLM2-135M-Instruct", True, 3.97e-4),
        ("cookhouse/tiny", True, 1.434e-3),
        ("meta-llama/Llama-3.1-70B", True, 1.778e-5),
        ("meta-llama/Llama-3.1-8B", False, 4e-6),
    ],
)
def test_a_rate_by_reward_falls_with_the_width(model: str, is_lora: bool, rate: float) -> None:
    """Would catch 4e-5 for a model of 135 M parameters, whose reward that leaves where it was."""
    found = reward_lr(model, 4e-5, "meta-llama/Llama-3.1-8B", is_lora=is_lora)
    assert found is not None
    assert found[0] == pytest.approx(rate, rel=1e-2)
    assert reward_lr("Qwen/Qwen3-9B", 4e-5, "meta-llama/Llama-3.1-8B") is None, "its width is not known"


@pytest.mark.parametrize(
    ("rate", "is_lora", "by_reward", "expected"),
    [
        (4.7e-4, True, False, None),
        (4.9e-5, True, False, None),
        (4e-5, True, False, "learning_rate is 4e-05, 1/12 of the 0.00047 that the rule for this model gives"),
        (4e-5, True, True, None),
        (1e-9, True, True, None),
        (4.8e-4, False, False, "learning_rate is 0.00048, 10 times the 4.7e-05 that"),
        (5e-3, True, True, "learning_rate is 0.005, 11 times the 0.00047 that"),
    ],
)
def test_a_rate_that_is_far_from_the_rule_is_said(
    rate: float, is_lora: bool, by_reward: bool, expected: str | None
) -> None:
    notes = rate_notes("Qwen/Qwen3-8B", rate, is_lora=is_lora, by_reward=by_reward)
    assert (notes == []) if expected is None else notes[0].startswith(expected)


def test_nothing_is_said_of_a_rate_where_there_is_no_rule() -> None:
    assert rate_notes("openai/gpt-oss-20b", 1e6) == rate_notes("nobody/here", 1e6) == []


def file_of(shapes: dict[str, list[int]], weights: bytes = b"") -> bytes:
    entries = {name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    header = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    return struct.pack("<Q", len(header)) + header + weights


def write_model(folder: Path, shapes: dict[str, list[int]]) -> None:
    (folder / "model.safetensors").write_bytes(file_of(shapes))


def test_adapter_parameters_by_hand(tmp_path: Path) -> None:
    layer = "model.layers.0"
    write_model(
        tmp_path,
        {
            "model.embed_tokens.weight": [100, 8],
            f"{layer}.self_attn.q_proj.weight": [16, 8],
            f"{layer}.self_attn.q_norm.weight": [4],
            f"{layer}.mlp.up_proj.weight": [32, 8],
            f"{layer}.mlp.gate.weight": [4, 8],
            f"{layer}.mlp.experts.0.up_proj.weight": [5, 8],
        },
    )
    attn, mlp, expert, unembed = 24, 40, 13, 108
    assert lora_parameter_count(str(tmp_path), 2) == 2 * (attn + mlp + expert + unembed)
    assert lora_parameter_count(str(tmp_path), 2, include_experts=False) == 2 * (attn + mlp + unembed)
    assert lora_parameter_count(str(tmp_path), 2, train_mlp=False, train_unembed=False) == 2 * attn
    assert lora_parameter_count(str(tmp_path), 2, train_attn=False, train_mlp=False) == 2 * unembed


@pytest.mark.parametrize("family", [*FAMILIES, *COMPOSITES])
def test_adapter_parameters_are_those_that_the_engine_adapts(tmp_path: Path, family: str) -> None:
    assert lora_parameter_count(save_family(tmp_path, family), 3) == 3 * NUM_FEATURES[family]


def test_quantized_matrices_count_once_and_packed_ones_whole(tmp_path: Path) -> None:
    layer = "model.layers.0"
    write_model(
        tmp_path,
        {
            f"{layer}.self_attn.q_proj.weight": [16, 8],
            f"{layer}.self_attn.q_proj.weight_scale_inv": [1, 1],
            f"{layer}.mlp.experts.gate_up_proj_blocks": [4, 128, 3, 16],
            f"{layer}.mlp.experts.down_proj_blocks": [4, 96, 2, 16],
            f"{layer}.mlp.experts.down_proj_scales": [4, 96, 2],
            f"{layer}.mlp.experts.down_proj_bias": [4, 96],
        },
    )
    assert lora_parameter_count(str(tmp_path), 2) == 2 * (24 + 3 * (96 + 4 * 64))
    assert lora_parameter_count(str(tmp_path), 2, include_experts=False) == 2 * 24


@pytest.mark.parametrize(
    ("num_layers", "shapes", "expected"),
    [
        (24, {"mlp.experts.down_proj_blocks": [32, 2880, 90, 16]}, 6_842_880),
        (
            40,
            {
                "mlp.experts.down_proj": [256, 2048, 512],
                "mlp.shared_expert.gate_proj.weight": [512, 2048],
                "mlp.shared_expert.up_proj.weight": [512, 2048],
                "mlp.shared_expert.down_proj.weight": [2048, 512],
            },
            16_281_600,
        ),
    ],
)
def test_experts_count_as_the_hosted_service_counts_them(
    num_layers: int, shapes: dict[str, list[int]], expected: int, tmp_path: Path
) -> None:
    """The figures of tinker_cookbook 0.6.1 for gpt-oss-20b and Qwen3.5-35B-A3B, MLPs at rank 1. Would catch a shared
    half that is counted for each expert.
    """
    layers = [f"model.layers.{index}" for index in range(num_layers)]
    write_model(tmp_path, {f"{layer}.{name}": shape for layer in layers for name, shape in shapes.items()})
    assert lora_parameter_count(str(tmp_path), 1, train_attn=False, train_unembed=False) == expected


def test_layers_that_predict_further_tokens_are_not_counted(tmp_path: Path) -> None:
    """Would catch adapters of a layer that is stored with DeepSeek V3 and GLM-4.5, and never run."""
    layers = {f"model.layers.{index}.self_attn.q_proj.weight": [16, 8] for index in range(3)}
    write_model(tmp_path, layers)
    assert lora_parameter_count(str(tmp_path), 1) == 3 * 24
    (tmp_path / "config.json").write_text('{"hidden_size": 8, "num_hidden_layers": 2}')
    assert lora_parameter_count(str(tmp_path), 1) == 2 * 24


WEIGHTS = bytes(400_000)
SHARDS = {
    "model-00001-of-00002.safetensors": {"model.embed_tokens.weight": [100, 8]},
    "model-00002-of-00002.safetensors": {
        "lm_head.weight": [100, 8],
        "model.layers.0.self_attn.q_proj.weight": [16, 8],
        "model.layers.0.mlp.experts.0.up_proj.weight": [5, 8],
    },
}


def test_of_a_hub_id_only_headers_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    index = {"weight_map": {name: shard for shard, shapes in SHARDS.items() for name in shapes}}
    files = {shard: file_of(shapes, WEIGHTS) for shard, shapes in SHARDS.items()}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    with fake_hub(monkeypatch, "someone/model", files) as hub:
        assert lora_parameter_count("someone/model", 2) == 2 * (108 + 24 + 13)
        assert lora_parameter_count("someone/model", 2, include_experts=False) == 2 * (108 + 24)
    assert all(hub.sent[shard] <= 2 * 100_001 < len(files[shard]) for shard in SHARDS)


def test_of_a_hub_id_in_one_file_only_the_header_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    files = {"model.safetensors": file_of({"model.layers.0.mlp.up_proj.weight": [32, 8]}, WEIGHTS)}
    with fake_hub(monkeypatch, "someone/model", files) as hub:
        assert lora_parameter_count("someone/model", 3) == 3 * 40
    assert hub.sent == {"model.safetensors": 100_001}


def test_headers_are_read_from_the_hub_that_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a mirror that is passed over, and a gated model asked for without the token."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    files = {"model.safetensors": file_of({"model.layers.0.mlp.up_proj.weight": [32, 8]}, WEIGHTS)}
    with (
        fake_hub(monkeypatch, "someone/model", files, is_default=False) as mirror,
        hub_in_use(HuggingFaceHub(endpoint=mirror.url, token="hf_mine")),
    ):
        assert lora_parameter_count("someone/model", 3) == 3 * 40
    assert mirror.sent == {"model.safetensors": 100_001}
    assert mirror.tokens == {"Bearer hf_mine"}
    with hub_in_use(NoopHub(tmp_path / "noop")), pytest.raises(InputError, match="this hub gives no headers alone"):
        lora_parameter_count("someone/model", 3)


def test_a_model_without_safetensors_on_the_hub_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with (
        fake_hub(monkeypatch, "someone/model", {"pytorch_model.bin": b"x"}),
        pytest.raises(InputError, match=r"headers of 'someone/model' cannot be read from the hub: .*not a safetensors"),
    ):
        lora_parameter_count("someone/model", 3)


def test_shards_in_the_cache_are_read_once_all_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch an adapter counted from the first shard alone, after a download that was cut off."""
    repository = tmp_path / "models--someone--model"
    snapshot = repository / "snapshots" / "0f"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0f")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    index = {"weight_map": {name: shard for shard, shapes in SHARDS.items() for name in shapes}}
    (snapshot / "config.json").write_text("{}")
    (snapshot / "tokenizer.json").write_text("{}")
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    first, second = SHARDS
    (snapshot / first).write_bytes(file_of(SHARDS[first]))
    with pytest.raises(InputError, match="not on this machine"):
        lora_parameter_count("someone/model", 1)
    (snapshot / second).write_bytes(file_of(SHARDS[second]))
    assert lora_parameter_count("someone/model", 1) == 108 + 24 + 13


def test_a_model_that_is_not_here_or_not_safetensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not on this machine, and the hub is not asked"):
        lora_parameter_count("Qwen/Qwen3-8B", 32)
    with pytest.raises(InputError, match="holds no safetensors file"):
        lora_parameter_count(str(tmp_path), 32)
    nested, other = b"[" * 10**5, [b"[]", b'{"a": 1}', b'{"a": {}}', b'{"a": {"shape": 5}}', b'{"a": {"shape": ["x"]}}']
    headers = [struct.pack("<Q", len(header)) + header for header in (nested, *other)]
    for content in (b"\xff" * 20, *headers):
        (tmp_path / "model.safetensors").write_bytes(content)
        with pytest.raises(InputError, match="not a safetensors file"):
            lora_parameter_count(str(tmp_path), 32)

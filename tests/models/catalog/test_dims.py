"""Sizes of models, by name and by config."""

import pytest

from cookhouse.models.catalog.dims import Dims, dims_of_config, dims_of_name


@pytest.mark.parametrize(
    ("name", "hidden_size", "num_layers", "num_experts"),
    [
        ("Meta-Llama-3-8B", 4096, 32, None),
        ("Llama-3.2-1B-Instruct", 2048, 16, None),
        ("Llama-3.3-70B-Instruct", 8192, 80, None),
        ("Qwen3-8B-Base", 4096, 36, None),
        ("Qwen3-30B-A3B-Instruct-2507", 2048, 48, 128),
        ("Qwen2.5-Coder-7B-Instruct", 3584, 28, None),
        ("DeepSeek-V3.1", 7168, 61, 256),
        ("DeepSeek-V3", 7168, 61, 256),
        ("Kimi-K2-Instruct-0905", 7168, 61, 384),
        ("gpt-oss-20b", 2880, 24, 32),
        ("SmolLM2-135M-Instruct", 576, 30, None),
        ("gemma-3-4b-it", 2560, 34, None),
        ("phi-4", 5120, 40, None),
        ("Phi-4-mini-instruct", 3072, 32, None),
        ("GLM-4.5-Air", 4096, 46, 128),
        ("GLM-4.5", 5120, 92, 160),
        ("GLM-4.6", 5120, 92, 160),
        ("Qwen3.5-2B-Base", 2048, 24, None),
        ("Qwen3.5-397B-A17B", 4096, 60, 512),
        ("Qwen3-VL-8B-Thinking", 4096, 36, None),
    ],
)
def test_sizes_of_published_models(name: str, hidden_size: int, num_layers: int, num_experts: int | None) -> None:
    """Would catch a pattern that another model's name fits first."""
    dims = dims_of_name(name)
    assert dims is not None
    assert (dims.hidden_size, dims.num_layers, dims.num_experts) == (hidden_size, num_layers, num_experts)


@pytest.mark.parametrize("name", ["Qwen3-9B", "Llama-3.2-70B", "Qwen3-80B", "Mistral-7B-v0.1", ""])
def test_a_size_that_nobody_published_is_not_made_up(name: str) -> None:
    assert dims_of_name(name) is None


def test_a_config_says_its_sizes_under_the_names_of_its_architecture() -> None:
    config = {
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 10,
        "n_routed_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 3,
        "intermediate_size": 16,
    }
    expected = Dims(
        hidden_size=8,
        num_layers=2,
        num_heads=4,
        num_kv_heads=4,
        intermediate_size=16,
        vocab_size=10,
        num_experts=6,
        num_experts_per_token=2,
        expert_size=3,
    )
    assert dims_of_config(config) == expected
    assert dims_of_config({"hidden_size": 99, "text_config": config}) == expected
    assert dims_of_config({"text_config": None, "hidden_size": None}) is None

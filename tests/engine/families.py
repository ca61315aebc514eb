"""Tiny random models of the architectures that the engine runs, one config each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    Gemma4TextConfig,
    GptOssConfig,
    LlamaConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from tests.engine.conftest import VOCAB_SIZE, save_tokenizer

_COMMON = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "eos_token_id": 256,
    "bos_token_id": None,
}


def _llama() -> Any:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    return LlamaConfig(**_COMMON, intermediate_size=48, num_key_value_heads=2, rope_parameters=rope)


def _qwen2() -> Any:
    windows = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}
    return Qwen2Config(**_COMMON, **windows, intermediate_size=48, num_key_value_heads=1, tie_word_embeddings=True)


def _qwen3() -> Any:
    rope = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    return Qwen3Config(**_COMMON, intermediate_size=48, num_key_value_heads=2, head_dim=12, rope_parameters=rope)


def _qwen3_moe() -> Any:
    return Qwen3MoeConfig(
        **_COMMON,
        intermediate_size=48,
        num_key_value_heads=2,
        head_dim=12,
        num_experts=6,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        mlp_only_layers=[0],
        norm_topk_prob=True,
        tie_word_embeddings=True,
    )


def _deepseek_v3() -> Any:
    rope = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 64,
    }
    return DeepseekV3Config(
        **_COMMON,
        intermediate_size=48,
        num_key_value_heads=4,
        q_lora_rank=16,
        kv_lora_rank=20,
        qk_rope_head_dim=8,
        qk_nope_head_dim=10,
        v_head_dim=12,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=3,
        n_group=4,
        topk_group=2,
        moe_intermediate_size=16,
        first_k_dense_replace=1,
        rope_parameters=rope,
        num_mtp_layers=0,
    )


def _gpt_oss() -> Any:
    rope = {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 16,
    }
    return GptOssConfig(
        **_COMMON,
        intermediate_size=24,
        num_key_value_heads=2,
        head_dim=12,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=6,
        rope_parameters=rope,
    )


def _gemma4() -> Any:
    """Layers with keys of unequal sizes and numbers of heads."""
    return Gemma4TextConfig(
        **_COMMON,
        intermediate_size=48,
        num_key_value_heads=2,
        head_dim=8,
        global_head_dim=16,
        num_global_key_value_heads=1,
        attention_k_eq_v=True,
        sliding_window=7,
        layer_types=["sliding_attention", "full_attention"],
        hidden_size_per_layer_input=0,
    )


FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v3": _deepseek_v3,
    "gpt_oss": _gpt_oss,
    "gemma4_text": _gemma4,
}


def save_family(folder: Path, family: str, *, max_shard_size: str = "1GB", **changes: Any) -> str:
    """Write a random model in which every parameter matters: biases, norms, sinks and router corrections too.

    `changes` are fields of its config.
    """
    torch.manual_seed(0)
    config = FAMILIES[family]()
    for name, value in changes.items():
        setattr(config, name, value)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if name.endswith("inv_freq"):
                continue
            if tensor.dim() > 1:
                tensor.normal_(std=0.15)
            else:
                tensor.add_(torch.randn(tensor.shape), alpha=0.3)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    save_tokenizer(folder)
    return str(folder)

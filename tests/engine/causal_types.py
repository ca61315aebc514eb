"""Small random models of any causal type of `transformers`, made from its config class."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING

from tests.engine.conftest import VOCAB_SIZE
from tests.engine.families import save_config

_SIZES: Mapping[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "eos_token_id": 256,
    "bos_token_id": 0,
    "pad_token_id": 0,
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads"), 4),
    "num_key_value_heads": 2,
    **dict.fromkeys(("head_dim", "rotary_dim", "query_pre_attn_scalar"), 8),
    **dict.fromkeys(("intermediate_size", "ffn_hidden_size", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim"), 48),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 128),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    "num_experts_per_tok": 2,
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size"), 16),
    **dict.fromkeys(("shared_expert_intermediate_size", "shared_intermediate_size"), 16),
    **dict.fromkeys(("n_shared_experts", "n_group", "topk_group", "first_k_dense_replace"), 1),
    "q_lora_rank": 16,
    "kv_lora_rank": 20,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "index_head_dim": 8,
    "index_n_heads": 2,
    "index_topk": 4,
    "mamba_d_state": 8,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "state_size": 8,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "vocab_size_per_layer_input": VOCAB_SIZE,
    "dim_model_base": 16,
}
_LATENT = {"num_key_value_heads": 4}
"""Of attention over latent keys and values, which every head has for itself."""
_DELTA = {"layer_types": ["linear_attention", "full_attention"], "rms_norm_eps": 1e-3}
"""Of gated delta layers; for the epsilon see `families.py`."""
_OWN: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(
        ("axk1", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "minicpm3", "youtu", "longcat_flash"), _LATENT
    ),
    "granitemoehybrid": {"layer_types": ["full_attention", "full_attention"], "position_embedding_type": "rope"},
    "gemma3n_text": {"hidden_size_per_layer_input": 8},
    **dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"), _DELTA),
}


def save_type(folder: Path, model_type: str, **changes: Any) -> str:
    """Write a small model of a type in which every parameter matters, with some options of its config changed."""
    config_class = CONFIG_MAPPING[model_type]
    names = {field.name for field in dataclasses.fields(config_class)} | set(config_class.attribute_map)
    sizes = {name: size for name, size in _SIZES.items() if name in names}
    for alias, name in config_class.attribute_map.items():
        if alias in sizes and name in sizes:
            del sizes[alias]
    return save_config(folder, config_class(**sizes | dict(_OWN.get(model_type, {})) | changes))

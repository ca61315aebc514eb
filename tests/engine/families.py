"""Tiny random models of the architectures that the engine runs, one config each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMultimodalLM

from tests.engine.conftest import VOCAB_SIZE, save_tokenizer

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "eos_token_id": 256,
    "bos_token_id": None,
}


class _Configs:
    """Config classes of `transformers` by name; a test of one that this version lacks is skipped."""

    def __getattr__(self, name: str) -> Any:
        if not name.endswith("Config"):
            raise AttributeError(name)
        found = getattr(transformers, name, None)
        if found is None:
            pytest.skip(f"transformers {transformers.__version__} has no {name}")
        return found


CONFIGS = _Configs()


def skip_first_transformers(reason: str) -> None:
    """Skip a test under the lowest version that is allowed, which lacks what it is about."""
    if transformers.__version__.startswith("5.0."):
        pytest.skip(f"transformers {transformers.__version__}: {reason}")


def _llama() -> Any:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    return CONFIGS.LlamaConfig(**_COMMON, intermediate_size=48, num_key_value_heads=2, rope_parameters=rope)


def _qwen2() -> Any:
    windows = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}
    return CONFIGS.Qwen2Config(
        **_COMMON, **windows, intermediate_size=48, num_key_value_heads=1, tie_word_embeddings=True
    )


def _qwen3() -> Any:
    rope = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    return CONFIGS.Qwen3Config(
        **_COMMON, intermediate_size=48, num_key_value_heads=2, head_dim=12, rope_parameters=rope
    )


def _qwen3_moe() -> Any:
    return CONFIGS.Qwen3MoeConfig(
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
    return CONFIGS.DeepseekV3Config(
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
    return CONFIGS.GptOssConfig(
        **_COMMON,
        intermediate_size=24,
        num_key_value_heads=2,
        head_dim=12,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=6,
        rope_parameters=rope,
    )


def _granite() -> Any:
    return CONFIGS.GraniteConfig(
        **_COMMON,
        intermediate_size=48,
        num_key_value_heads=2,
        embedding_multiplier=3.0,
        residual_multiplier=0.5,
        attention_multiplier=0.2,
        logits_scaling=6.0,
        tie_word_embeddings=True,
    )


def _granitemoe() -> Any:
    skip_first_transformers("it does not stack the experts of granitemoe")
    return CONFIGS.GraniteMoeConfig(
        **_COMMON,
        intermediate_size=24,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        embedding_multiplier=3.0,
        residual_multiplier=0.5,
        attention_multiplier=0.2,
        logits_scaling=6.0,
        tie_word_embeddings=True,
    )


def _cohere() -> Any:
    return CONFIGS.CohereConfig(
        **_COMMON, intermediate_size=48, num_key_value_heads=2, logit_scale=0.4, use_qk_norm=True
    )


def _cohere2() -> Any:
    layers = ["sliding_attention", "full_attention"]
    return CONFIGS.Cohere2Config(
        **_COMMON, intermediate_size=48, num_key_value_heads=2, logit_scale=0.4, sliding_window=7, layer_types=layers
    )


def _gemma2() -> Any:
    return CONFIGS.Gemma2Config(
        **_COMMON,
        intermediate_size=48,
        num_key_value_heads=2,
        head_dim=12,
        query_pre_attn_scalar=5,
        sliding_window=7,
        attn_logit_softcapping=1.5,
        final_logit_softcapping=4.0,
    )


def _gemma4() -> Any:
    """Layers with keys of unequal sizes and numbers of heads."""
    return CONFIGS.Gemma4TextConfig(
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
        final_logit_softcapping=4.0,
    )


def _phi3() -> Any:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.75,
        "short_factor": [1.0, 1.1, 1.3],
        "long_factor": [1.5, 3.0, 9.0],
        "original_max_position_embeddings": 64,
    }
    return CONFIGS.Phi3Config(
        **_COMMON,
        pad_token_id=None,
        intermediate_size=48,
        num_key_value_heads=2,
        partial_rotary_factor=0.75,
        original_max_position_embeddings=64,
        rope_parameters=rope,
        tie_word_embeddings=True,
    )


# Heads of gated delta layers are divided by their length, which magnifies the rounding of one that is near zero: a
# larger epsilon bounds that, or any two ways of computing would differ by hundreds of roundings.
_DELTA = {
    "layer_types": ["linear_attention", "full_attention"],
    "rms_norm_eps": 1e-3,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 8,
}
_SHARED_EXPERT = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
}


def _qwen3_5_moe() -> Any:
    return CONFIGS.Qwen3_5MoeTextConfig(**_COMMON, **_DELTA, **_SHARED_EXPERT)


def _qwen3_next() -> Any:
    skip_first_transformers("its gated delta layers are not told of sequences")
    return CONFIGS.Qwen3NextConfig(**_COMMON, **_DELTA, **_SHARED_EXPERT, intermediate_size=48, mlp_only_layers=[0])


FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v3": _deepseek_v3,
    "gpt_oss": _gpt_oss,
    "granite": _granite,
    "granitemoe": _granitemoe,
    "cohere": _cohere,
    "cohere2": _cohere2,
    "gemma2": _gemma2,
    "gemma4_text": _gemma4,
    "phi3": _phi3,
    "qwen3_5_moe_text": _qwen3_5_moe,
    "qwen3_next": _qwen3_next,
}


def _gemma3() -> Any:
    kinds = ["sliding_attention", "full_attention"]
    rope = dict(zip(kinds, [{"rope_type": "default", "rope_theta": theta} for theta in (1e4, 1e6)], strict=True))
    text = _COMMON | {"intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 12, "query_pre_attn_scalar": 12}
    text |= {"sliding_window": 6, "layer_types": kinds, "rope_parameters": rope}
    vision = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    return CONFIGS.Gemma3Config(
        text_config=text, vision_config=vision | {"image_size": 28, "patch_size": 14}, mm_tokens_per_image=4
    )


def _mistral3() -> Any:
    text = {**_COMMON, "model_type": "mistral", "intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8}
    vision = {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "head_dim": 8, "image_size": 28}
    return CONFIGS.Mistral3Config(
        text_config=text | {"tie_word_embeddings": False}, vision_config=vision, tie_word_embeddings=False
    )


def _qwen3_vl() -> Any:
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2], "mrope_interleaved": True}
    text = {**_COMMON, "intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 12, "rope_parameters": rope}
    vision: dict[str, Any] = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_heads": 2,
        "out_hidden_size": 32,
    }
    vision |= {"num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
    return CONFIGS.Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True)


def _kimi_k25() -> Any:
    text = _deepseek_v3().to_dict() | {"tie_word_embeddings": False}
    vision = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    return CONFIGS.Kimi_K25Config(
        text_config=text, vision_config=vision, projection_hidden_size=16, tie_word_embeddings=False
    )


def _qwen3_5() -> Any:
    text = {**_COMMON, **_DELTA, "intermediate_size": 48}
    vision: dict[str, Any] = {"depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2}
    vision |= {"out_hidden_size": 32, "num_position_embeddings": 16}
    return CONFIGS.Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=True)


COMPOSITES: dict[str, Callable[[], Any]] = {
    "gemma3": _gemma3,
    "mistral3": _mistral3,
    "qwen3_vl": _qwen3_vl,
    "kimi_k25": _kimi_k25,
    "qwen3_5": _qwen3_5,
}
"""Models that take images as well, whose text part is run."""


def auto_class(config: Any) -> Any:
    """The class of `transformers` that loads a whole model."""
    return AutoModelForCausalLM if config.get_text_config() is config else AutoModelForMultimodalLM


def load_reference(folder: str | Path, **options: Any) -> Any:
    """The whole model as `transformers` computes it."""
    return auto_class(AutoConfig.from_pretrained(folder)).from_pretrained(folder, **options)


def save_family(folder: Path, family: str, *, max_shard_size: str = "1GB", **changes: Any) -> str:
    """Write a random model in which every parameter matters: biases, norms, sinks and router corrections too.

    `changes` are fields of its config.
    """
    config = (FAMILIES | COMPOSITES)[family]()
    for name, value in changes.items():
        setattr(config, name, value)
    save_config(folder, config, max_shard_size=max_shard_size)
    if family == "kimi_k25":
        _name_layers_as_published(folder / "model.safetensors")
    return str(folder)


def save_config(folder: Path, config: Any, *, max_shard_size: str = "1GB") -> str:
    """Write a random model of a config in which every parameter matters, with a tokenizer."""
    torch.manual_seed(0)
    model = auto_class(config).from_config(config)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if name.endswith("inv_freq") or not tensor.is_floating_point():
                continue
            if tensor.dim() > 1:
                tensor.normal_(std=0.15)
            else:
                tensor.add_(torch.randn(tensor.shape), alpha=0.3)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    save_tokenizer(folder)
    return str(folder)


def _name_layers_as_published(path: Path) -> None:
    """`transformers` reads the published names, and writes others."""
    tensors = {name.replace("model.blocks.", "model.layers."): tensor for name, tensor in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})

"""Models with random weights, in the shapes that the benchmarks name. Nothing is downloaded."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

_QWEN3 = {"head_dim": 128, "num_key_value_heads": 8, "vocab_size": 151_936, "max_position_embeddings": 40_960}
QWEN3_SHAPES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "qwen3-0.6b": {
            **_QWEN3,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "tie_word_embeddings": True,
        },
        "qwen3-1.7b": {
            **_QWEN3,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "tie_word_embeddings": True,
        },
        "qwen3-4b": {
            **_QWEN3,
            "hidden_size": 2560,
            "intermediate_size": 9728,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "tie_word_embeddings": True,
        },
        "qwen3-8b": {
            **_QWEN3,
            "hidden_size": 4096,
            "intermediate_size": 12_288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "tie_word_embeddings": False,
        },
    }
)
"""Table 1 of https://arxiv.org/abs/2505.09388, with the sizes of the published `config.json` files."""


def make_random_model(name: str, folder: Path, device: str) -> None:
    """Write a random Qwen3 beside the embedded tokenizer, made on the device.

    A published shape is in bf16. Any other is `HIDDENxLAYERS[xVOCABULARY]`, in fp32, its vocabulary 8192 by default.
    """
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    from cookhouse.assets import TINY_MODEL, resolve_model

    if name in QWEN3_SHAPES:
        config, dtype = Qwen3Config(**QWEN3_SHAPES[name]), torch.bfloat16
    else:
        config, dtype = Qwen3Config(**_small(name)), torch.float32
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM._from_config(config, dtype=dtype)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(resolve_model(TINY_MODEL)).save_pretrained(folder)


def _small(name: str) -> dict[str, Any]:
    hidden, layers, vocabulary = (int(part) for part in (name + "x8192").split("x")[:3])
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": hidden * 3,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "num_key_value_heads": max(1, hidden // 128),
        "head_dim": 64,
        "tie_word_embeddings": True,
        "max_position_embeddings": 40_960,
    }

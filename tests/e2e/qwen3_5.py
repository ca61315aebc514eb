"""A small model of the architecture that most programs of upstream take by default, which as published takes images."""

import shutil
from pathlib import Path

import torch
from transformers import AutoModelForMultimodalLM, AutoTokenizer, Qwen3_5Config

from cookhouse.assets import resolve_model


def save_qwen3_5(folder: Path) -> str:
    """Write one with random weights, three gated delta layers before one that attends, and the embedded tokenizer."""
    tiny = Path(resolve_model("cookhouse/tiny"))
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "max_position_embeddings": 2048,
        "eos_token_id": tokenizer.eos_token_id,
        "tie_word_embeddings": True,
    }
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "out_hidden_size": 64}
    torch.manual_seed(0)
    config = Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=True)
    AutoModelForMultimodalLM.from_config(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tiny / name, folder)
    return str(folder)

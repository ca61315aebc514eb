"""The embedded base model: its files, and what its card says about them."""

import json
import re
import struct
from math import prod
from pathlib import Path
from typing import Any

import torch
from scripts.probe_tiny import facts_on_their_own_line
from scripts.tiny_world import documents
from transformers import AutoModelForCausalLM, AutoTokenizer

from cookhouse.assets import TINY_MODEL, resolve_model

FOLDER = Path(resolve_model(TINY_MODEL))
MOST_BYTES = 16_000_000


def header() -> dict[str, Any]:
    """The table of tensors at the start of the safetensors file."""
    with (FOLDER / "model.safetensors").open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        table: dict[str, Any] = json.loads(file.read(length))
    table.pop("__metadata__", None)
    return table


def test_card_agrees_with_the_files() -> None:
    """Catches a card left behind when the model was replaced, and tied weights stored twice."""
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    table = header()
    num_parameters = sum(prod(tensor["shape"]) for tensor in table.values())
    size_bytes = (FOLDER / "model.safetensors").stat().st_size
    assert f"{num_parameters:,} parameters" in card
    assert f"{size_bytes:,} bytes" in card
    assert size_bytes <= MOST_BYTES
    assert {tensor["dtype"] for tensor in table.values()} == {"BF16"}
    config = json.loads((FOLDER / "config.json").read_text())
    for key in ("hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings"):
        assert re.search(rf"`{key}` {config[key]}\b", card), key


def test_config_fits_the_tokenizer() -> None:
    """Catches a model made for another vocabulary or other end tokens."""
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    config = json.loads((FOLDER / "config.json").read_text())
    generation = json.loads((FOLDER / "generation_config.json").read_text())
    assert config["model_type"] == "qwen3"
    assert config["tie_word_embeddings"] is True
    assert config["vocab_size"] == len(tokenizer)
    assert (config["eos_token_id"], config["pad_token_id"]) == (tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert generation["eos_token_id"] == [tokenizer.eos_token_id, tokenizer.pad_token_id]


def test_model_knows_its_world() -> None:
    """Catches weights of another vocabulary order: they would do worse than a uniform guess, 7.6 nats a token."""
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    texts = documents(1)  # not the seed it was trained on
    tokens_BT = torch.tensor([tokenizer.encode("<|endoftext|>".join(next(texts) for _ in range(8)))[:256]])
    with torch.inference_mode():
        loss = model(input_ids=tokens_BT, labels=tokens_BT).loss.item()
    assert loss < 2.0


def test_model_knows_facts_where_a_chat_begins_its_answers() -> None:
    """Catches a text that tells facts only inside of a line: the model then knows them after a space alone."""
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    assert facts_on_their_own_line(model, tokenizer) > 0.6

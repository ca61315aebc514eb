"""Width and depth of models, by name and by their config.json."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Dims:
    """Sizes of a model; None where they are not known, or where it has no experts."""

    hidden_size: int
    num_layers: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    intermediate_size: int | None = None
    """Of the MLPs that have no experts."""
    vocab_size: int | None = None
    """Rows of the embedding, padding included."""
    num_experts: int | None = None
    """Routed ones of a layer."""
    num_experts_per_token: int | None = None
    expert_size: int | None = None
    """Intermediate size of one expert."""


def text_values(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values of a config.json that are of the text model; one that sees has them apart."""
    text = config.get("text_config")
    return text if isinstance(text, Mapping) else config


def dims_of_config(config: Mapping[str, Any]) -> Dims | None:
    """Sizes from the values of a config.json; None if it names no hidden size."""
    values = text_values(config)

    def size(*names: str) -> int | None:
        found = (values.get(name) for name in names)
        return next((value for value in found if type(value) is int and value > 0), None)

    hidden_size = size("hidden_size", "n_embd", "d_model")
    if hidden_size is None:
        return None
    num_heads = size("num_attention_heads", "n_head")
    return Dims(
        hidden_size=hidden_size,
        num_layers=size("num_hidden_layers", "n_layer"),
        num_heads=num_heads,
        num_kv_heads=size("num_key_value_heads") or num_heads,
        intermediate_size=size("intermediate_size", "n_inner"),
        vocab_size=size("vocab_size"),
        num_experts=size("num_experts", "num_local_experts", "n_routed_experts"),
        num_experts_per_token=size("num_experts_per_tok"),
        expert_size=size("moe_intermediate_size"),
    )


def dims_of_name(name: str) -> Dims | None:
    """Sizes of a published model, by its name after the organization; variants of a size have the same."""
    return next((dims for pattern, dims in _DIMS.items() if re.fullmatch(rf"({pattern})(-.+)?", name)), None)


def _dense(hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int, vocab: int) -> Dims:
    return Dims(
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        intermediate_size=intermediate,
        vocab_size=vocab,
    )


def _moe(
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    intermediate: int | None,
    vocab: int,
    *,
    experts: int,
    per_token: int,
    expert_size: int,
) -> Dims:
    return Dims(
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        intermediate_size=intermediate,
        vocab_size=vocab,
        num_experts=experts,
        num_experts_per_token=per_token,
        expert_size=expert_size,
    )


_LLAMA = r"(?:Meta-)?Llama-3"

# From the published config.json files. Models that are missing are known by their own, once it is on this machine.
_DIMS: Mapping[str, Dims] = {
    rf"{_LLAMA}\.2-1B": _dense(2048, 16, 32, 8, 8192, 128256),
    rf"{_LLAMA}\.2-3B": _dense(3072, 28, 24, 8, 8192, 128256),
    rf"{_LLAMA}(?:\.1)?-8B": _dense(4096, 32, 32, 8, 14336, 128256),
    rf"{_LLAMA}(?:\.[13])?-70B": _dense(8192, 80, 64, 8, 28672, 128256),
    rf"{_LLAMA}\.1-405B": _dense(16384, 126, 128, 8, 53248, 128256),
    r"Qwen2\.5-(?:Coder-)?0\.5B": _dense(896, 24, 14, 2, 4864, 151936),
    r"Qwen2\.5-(?:Coder-)?1\.5B": _dense(1536, 28, 12, 2, 8960, 151936),
    r"Qwen2\.5-(?:Coder-)?3B": _dense(2048, 36, 16, 2, 11008, 151936),
    r"Qwen2\.5-(?:Coder-)?7B": _dense(3584, 28, 28, 4, 18944, 152064),
    r"Qwen2\.5-(?:Coder-)?14B": _dense(5120, 48, 40, 8, 13824, 152064),
    r"Qwen2\.5-(?:Coder-)?32B": _dense(5120, 64, 40, 8, 27648, 152064),
    r"Qwen2\.5-72B": _dense(8192, 80, 64, 8, 29568, 152064),
    r"Qwen3-0\.6B": _dense(1024, 28, 16, 8, 3072, 151936),
    r"Qwen3-1\.7B": _dense(2048, 28, 16, 8, 6144, 151936),
    r"Qwen3-4B": _dense(2560, 36, 32, 8, 9728, 151936),
    r"Qwen3-8B": _dense(4096, 36, 32, 8, 12288, 151936),
    r"Qwen3-14B": _dense(5120, 40, 40, 8, 17408, 151936),
    r"Qwen3-32B": _dense(5120, 64, 64, 8, 25600, 151936),
    r"Qwen3-30B-A3B": _moe(2048, 48, 32, 4, 6144, 151936, experts=128, per_token=8, expert_size=768),
    r"Qwen3-235B-A22B": _moe(4096, 94, 64, 4, 12288, 151936, experts=128, per_token=8, expert_size=1536),
    r"Qwen3\.5-0\.8B": Dims(hidden_size=1024, num_layers=24, num_heads=8, num_kv_heads=2, vocab_size=248320),
    r"Qwen3\.5-2B": _dense(2048, 24, 8, 2, 6144, 248320),
    r"Qwen3\.5-4B": _dense(2560, 32, 16, 4, 9216, 248320),
    r"Qwen3\.5-9B": _dense(4096, 32, 16, 4, 12288, 248320),
    r"Qwen3\.5-27B": _dense(5120, 64, 24, 4, 17408, 248320),
    r"Qwen3\.5-35B-A3B": _moe(2048, 40, 16, 2, None, 248320, experts=256, per_token=8, expert_size=512),
    r"Qwen3\.5-397B-A17B": _moe(4096, 60, 32, 2, None, 248320, experts=512, per_token=10, expert_size=1024),
    r"Qwen3-VL-2B": _dense(2048, 28, 16, 8, 6144, 151936),
    r"Qwen3-VL-4B": _dense(2560, 36, 32, 8, 9728, 151936),
    r"Qwen3-VL-8B": _dense(4096, 36, 32, 8, 12288, 151936),
    r"Qwen3-VL-32B": _dense(5120, 64, 64, 8, 25600, 151936),
    r"DeepSeek-V3(?:\.1)?": _moe(7168, 61, 128, 128, 18432, 129280, experts=256, per_token=8, expert_size=2048),
    r"Kimi-K2": _moe(7168, 61, 64, 64, 18432, 163840, experts=384, per_token=8, expert_size=2048),
    r"gpt-oss-20b": _moe(2880, 24, 64, 8, None, 201088, experts=32, per_token=4, expert_size=2880),
    r"gpt-oss-120b": _moe(2880, 36, 64, 8, None, 201088, experts=128, per_token=4, expert_size=2880),
    r"SmolLM2-135M": _dense(576, 30, 9, 3, 1536, 49152),
    r"SmolLM2-360M": _dense(960, 32, 15, 5, 2560, 49152),
    r"SmolLM2-1\.7B": _dense(2048, 24, 32, 32, 8192, 49152),
    r"gemma-3-270m": _dense(640, 18, 4, 1, 2048, 262144),
    r"gemma-3-1b": _dense(1152, 26, 4, 1, 6912, 262144),
    r"gemma-3-4b": _dense(2560, 34, 8, 4, 10240, 262208),
    r"gemma-3-12b": _dense(3840, 48, 16, 8, 15360, 262208),
    r"gemma-3-27b": _dense(5376, 62, 32, 16, 21504, 262208),
    r"Mistral-7B-(?:Instruct-)?v0\.3": _dense(4096, 32, 32, 8, 14336, 32768),
    r"Mistral-Nemo": _dense(5120, 40, 32, 8, 14336, 131072),
    r"Mistral-Small-24B": _dense(5120, 40, 32, 8, 32768, 131072),
    r"[Pp]hi-4-mini": _dense(3072, 32, 24, 8, 8192, 200064),
    r"[Pp]hi-4": _dense(5120, 40, 40, 10, 17920, 100352),
    r"OLMo-2-0425-1B": _dense(2048, 16, 16, 16, 8192, 100352),
    r"OLMo-2-1124-7B": _dense(4096, 32, 32, 32, 11008, 100352),
    r"OLMo-2-1124-13B": _dense(5120, 40, 40, 40, 13824, 100352),
    r"OLMo-2-0325-32B": _dense(5120, 64, 40, 8, 27648, 100352),
    r"(?:GLM|glm)-4-9[Bb]": _dense(4096, 40, 32, 2, 13696, 151552),
    r"GLM-4-32B": _dense(6144, 61, 48, 2, 23040, 151552),
    r"GLM-4\.5-Air": _moe(4096, 46, 96, 8, 10944, 151552, experts=128, per_token=8, expert_size=1408),
    r"GLM-4\.[567]": _moe(5120, 92, 96, 8, 12288, 151552, experts=160, per_token=8, expert_size=1536),
}

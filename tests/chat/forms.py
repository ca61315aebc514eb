"""What each renderer has a form for, and a tokenizer that a bare clone has and that every family can write with."""

from functools import cache
from typing import Any

from tests.chat.families.conversations import FEATURES

from cookhouse.assets import resolve_model
from cookhouse.chat import Renderer, get_renderer, supported_renderers
from cookhouse.chat.families.qwen3 import Qwen3Renderer

_TEXT_ONLY = frozenset(FEATURES) - {"thinking", "tools", "parallel"}
_WITHOUT_THINKING = frozenset(FEATURES) - {"thinking"}
_ONE_CALL = frozenset(FEATURES) - {"parallel"}
_LACKING = {
    "gpt_oss_high_reasoning": _ONE_CALL,
    "gpt_oss_low_reasoning": _ONE_CALL,
    "gpt_oss_medium_reasoning": _ONE_CALL,
    "gpt_oss_no_sysprompt": _ONE_CALL,
    "qwen3_5_disable_thinking": _WITHOUT_THINKING,
    "qwen3_vl_instruct": _WITHOUT_THINKING,
    "human_ai": _TEXT_ONLY,
    "role_colon": _TEXT_ONLY,
    "llama3": _WITHOUT_THINKING - {"parallel"},
    "deepseekv3": _WITHOUT_THINKING,
    "deepseekv3_disable_thinking": _WITHOUT_THINKING,
    "kimi_k2_instruct": _WITHOUT_THINKING,
    "qwen3_disable_thinking": _WITHOUT_THINKING,
    "qwen3_instruct": _WITHOUT_THINKING,
}

PLAIN_TEXT = ("human_ai", "role_colon")
"""Formats without marks, in which text can imitate a turn."""
EVERY_RENDERER = (*supported_renderers(), "qwen3 keep_thinking")

_SPECIAL_TOKENS = (
    # Llama 3
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "<|python_tag|>",
    # DeepSeek V3
    *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>"),
    *("<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
    *("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
    # Kimi K2
    *("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "[EOS]", "<|tool_call_begin|>"),
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_argument_begin|>"),
    "<|tool_call_end|>",
    # gpt-oss
    *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"),
)


def features_of(name: str) -> frozenset[str]:
    """What conversations may have that a renderer is to train."""
    return _LACKING.get(name, frozenset(FEATURES))


@cache
def every_tokenizer() -> Any:
    """The embedded tokenizer with the special tokens of every family; never the one that others have."""
    from tokenizers import AddedToken
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(resolve_model("cookhouse/tiny"))
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in _SPECIAL_TOKENS])
    return tokenizer


def make_renderer(name: str, tokenizer: Any) -> Renderer:
    if name == "qwen3 keep_thinking":
        return Qwen3Renderer(tokenizer, keep_thinking=True)
    return get_renderer(name, tokenizer)

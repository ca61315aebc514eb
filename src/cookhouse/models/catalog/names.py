"""Published models by name: their family, their renderers, and how many tokens they take."""

import re
from dataclasses import dataclass

from cookhouse.models.catalog.families import FAMILIES, PLAIN, TEMPLATE

_K = 1024
_SIZE = r"\d+(\.\d+)?[BMbm](-A\d+B)?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Entry of the table for models whose name fits a pattern."""

    pattern: str
    """Of the name after the organization, as a whole."""
    family: str
    renderers: tuple[str, ...]
    """The default first."""
    context_tokens: int | None
    """By the published config.json or model card; None: not confirmed, so the model's own or its service has to say."""


def entry_of_name(name: str) -> Entry | None:
    """The entry of a published model, by its name after the organization."""
    return next((entry for entry in ENTRIES if re.fullmatch(entry.pattern, name)), None)


def _chat(pattern: str, family: str, context_tokens: int | None, *renderers: str) -> Entry:
    return Entry(pattern=pattern, family=family, renderers=renderers or (TEMPLATE,), context_tokens=context_tokens)


def _base(pattern: str, family: str, context_tokens: int | None) -> Entry:
    """A base model: its vocabulary has the marks of the family's chat format, which it has yet to learn."""
    renderers = (*PLAIN, *FAMILIES[family].renderers)
    return Entry(pattern=pattern, family=family, renderers=renderers, context_tokens=context_tokens)


_QWEN3_5 = FAMILIES["qwen3.5"].renderers
_DEEPSEEK = FAMILIES["deepseekv3"].renderers
_GPT_OSS = FAMILIES["gpt-oss"].renderers

ENTRIES = (
    _chat(rf"(Meta-)?Llama-3-{_SIZE}-Instruct", "llama", 8 * _K, "llama3"),
    _base(rf"(Meta-)?Llama-3-{_SIZE}", "llama", 8 * _K),
    _chat(rf"(Meta-)?Llama-3\.[123]-{_SIZE}-Instruct", "llama", 128 * _K, "llama3"),
    _base(rf"(Meta-)?Llama-3\.[123]-{_SIZE}", "llama", 128 * _K),
    # Their template adds a system message, which qwen3_instruct does not.
    _chat(rf"Qwen2\.5-(Coder-)?{_SIZE}-Instruct", "qwen2.5", 32 * _K, TEMPLATE, "qwen3_instruct"),
    _base(r"Qwen2\.5-(0\.5|3)B|Qwen2\.5-Coder-\d+(\.\d+)?B", "qwen2.5", 32 * _K),
    _base(rf"Qwen2\.5-{_SIZE}", "qwen2.5", 128 * _K),
    _base(rf"Qwen3-{_SIZE}-Base", "qwen3", 32 * _K),
    _chat(rf"Qwen3-{_SIZE}-Instruct-2507", "qwen3", 256 * _K, "qwen3_instruct"),
    # Their prompt opens the think block, which that of qwen3 leaves to the model.
    _chat(rf"Qwen3-{_SIZE}-Thinking-2507", "qwen3", 256 * _K, TEMPLATE, "qwen3"),
    _chat(rf"Qwen3-{_SIZE}", "qwen3", 40 * _K, "qwen3", "qwen3_disable_thinking"),
    _chat(rf"Qwen3-VL-{_SIZE}-Instruct", "qwen3-vl", 256 * _K, "qwen3_vl_instruct"),
    _chat(rf"Qwen3-VL-{_SIZE}-Thinking", "qwen3-vl", 256 * _K, "qwen3_vl"),
    _base(rf"Qwen3\.5-{_SIZE}-Base", "qwen3.5", 256 * _K),
    _chat(r"Qwen3\.5-(0\.8|2)B", "qwen3.5", 256 * _K, _QWEN3_5[1], _QWEN3_5[0], _QWEN3_5[2]),
    _chat(rf"Qwen3\.5-{_SIZE}", "qwen3.5", 256 * _K, *_QWEN3_5),
    _chat(rf"Qwen3\.[68]-{_SIZE}", "qwen3.5", None, *_QWEN3_5),
    _base(r"DeepSeek-V3(\.1)?-Base", "deepseekv3", 160 * _K),
    _chat(r"DeepSeek-V3(-0324)?", "deepseekv3", 160 * _K, *_DEEPSEEK[:2]),
    _chat(r"DeepSeek-V3\.1(-Terminus)?", "deepseekv3", 160 * _K, *_DEEPSEEK),
    _base(r"Kimi-K2-Base", "kimi_k2", 128 * _K),
    _chat(r"Kimi-K2-Instruct", "kimi_k2", 128 * _K, "kimi_k2_instruct"),
    _chat(r"Kimi-K2-Instruct-0905", "kimi_k2", 256 * _K, "kimi_k2_instruct"),
    _chat(r"Kimi-K2-Thinking", "kimi_k2", 256 * _K, "kimi_k2"),
    _chat(r"gpt-oss-(20|120)b", "gpt-oss", 128 * _K, *_GPT_OSS),
    _chat(rf"SmolLM2-{_SIZE}-Instruct", "smollm2", 8 * _K),
    _base(rf"SmolLM2-{_SIZE}", "smollm2", 8 * _K),
    _chat(r"gemma-3-(270m|1b)-it", "gemma-3", 32 * _K),
    _base(r"gemma-3-(270m|1b-pt)", "gemma-3", 32 * _K),
    _chat(r"gemma-3-(4|12|27)b-it", "gemma-3", 128 * _K),
    _base(r"gemma-3-(4|12|27)b-pt", "gemma-3", 128 * _K),
    _chat(r"Mistral-7B-Instruct-v0\.3", "mistral", 32 * _K),
    _base(r"Mistral-7B-v0\.3", "mistral", 32 * _K),
    _chat(r"Mistral-Nemo-Instruct-2407", "mistral", 128 * _K),
    _base(r"Mistral-Nemo-Base-2407", "mistral", 128 * _K),
    _chat(r"Mistral-Small-24B-Instruct-2501", "mistral", 32 * _K),
    _base(r"Mistral-Small-24B-Base-2501", "mistral", 32 * _K),
    _chat(r"Mistral-Small-3\.(1-24B-Instruct-2503|2-24B-Instruct-2506)", "mistral", 128 * _K),
    _base(r"Mistral-Small-3\.1-24B-Base-2503", "mistral", 128 * _K),
    _chat(r"phi-4", "phi-4", 16 * _K),
    _chat(r"Phi-4-reasoning(-plus)?", "phi-4", 32 * _K),
    # Its config.json says 128 K, by LongRoPE; see `context_of_config`.
    _chat(r"Phi-4-mini-(instruct|reasoning)", "phi-4", 4 * _K),
    _chat(rf"OLMo-2-\d{{4}}-{_SIZE}-(Instruct|SFT|DPO)", "olmo-2", 4 * _K),
    _base(rf"OLMo-2-\d{{4}}-{_SIZE}", "olmo-2", 4 * _K),
    _chat(r"GLM-4-(9|32)B-0414", "glm-4", 32 * _K),
    _base(r"GLM-4-32B-Base-0414", "glm-4", 32 * _K),
    _chat(r"glm-4-9b-chat-hf", "glm-4", 128 * _K),
    _chat(r"GLM-4\.5(-Air)?", "glm-4", 128 * _K),
    _base(r"GLM-4\.5(-Air)?-Base", "glm-4", 128 * _K),
    _chat(r"GLM-4\.[67]", "glm-4", 198 * _K),
)

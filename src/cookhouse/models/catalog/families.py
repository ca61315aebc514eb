"""Families: models of one architecture that share a chat format; and the published models of each, by name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

TEMPLATE = "template"
"""The renderer that reads the model's own chat template: it fits whatever has one."""
PLAIN = ("role_colon", "human_ai")
"""Renderers of base models, which have no chat format."""

_LLAMA_EXPONENT = 0.781
_QWEN_EXPONENT = 0.0775
_K = 1024
_SIZE = r"\d+(\.\d+)?[BMbm](-A\d+B)?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models of one architecture that share a chat format."""

    name: str
    model_types: tuple[str, ...]
    """What config.json calls it."""
    vocab_size: int | None = None
    """By which its models are distinguished from others of the same type; None: by the type alone."""
    renderers: tuple[str, ...] = ()
    """Every renderer of its own that fits some model of the family. Of a model that is known by its files, the first
    that writes what its chat template writes is the default.
    """
    own_exponent: float | None = None
    """How the best learning rate falls with the hidden size, as it was published for models of this family."""

    @property
    def lr_exponent(self) -> float | None:
        """The same, of its architecture where nobody published it for the family itself (`hyperparams.get_lr`); None:
        nor is there one for that.
        """
        alike = (other for other in FAMILIES.values() if set(other.model_types) & set(self.model_types))
        known = (other.own_exponent for other in (self, *alike) if other.own_exponent is not None)
        return next(known, None)


_QWEN3 = ("qwen3", "qwen3_disable_thinking", "qwen3_instruct")
_QWEN3_5 = ("qwen3_5", "qwen3_5_disable_thinking", "qwen3_5_preserve_thinking")
_DEEPSEEK = ("deepseekv3", "deepseekv3_disable_thinking", "deepseekv3_thinking")
_GPT_OSS = ("gpt_oss_no_sysprompt", "gpt_oss_medium_reasoning", "gpt_oss_low_reasoning", "gpt_oss_high_reasoning")

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        family.name: family
        for family in (
            Family(
                name="llama",
                model_types=("llama",),
                renderers=("llama3",),
                own_exponent=_LLAMA_EXPONENT,
            ),
            Family(
                name="qwen2.5",
                model_types=("qwen2",),
                renderers=("qwen3_instruct",),
                own_exponent=_QWEN_EXPONENT,
            ),
            Family(
                name="qwen3",
                model_types=("qwen3", "qwen3_moe", "qwen3_next"),
                renderers=_QWEN3,
                own_exponent=_QWEN_EXPONENT,
            ),
            Family(
                name="qwen3-vl",
                model_types=("qwen3_vl", "qwen3_vl_moe"),
                renderers=("qwen3_vl", "qwen3_vl_instruct"),
                own_exponent=_QWEN_EXPONENT,
            ),
            Family(
                name="qwen3.5",
                model_types=("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"),
                renderers=_QWEN3_5,
                own_exponent=_QWEN_EXPONENT,
            ),
            Family(
                name="deepseekv3",
                model_types=("deepseek_v3",),
                renderers=_DEEPSEEK,
            ),
            Family(
                name="kimi_k2",
                model_types=("kimi_k2",),
                renderers=("kimi_k2", "kimi_k2_instruct"),
            ),
            Family(
                name="gpt-oss",
                model_types=("gpt_oss",),
                renderers=_GPT_OSS,
            ),
            Family(name="smollm2", model_types=("llama",), vocab_size=49152),
            Family(name="gemma-2", model_types=("gemma2",)),
            Family(name="gemma-3", model_types=("gemma3", "gemma3_text")),
            Family(name="gemma-4", model_types=("gemma4", "gemma4_text")),
            Family(name="mistral", model_types=("mistral", "mistral3")),
            Family(name="phi-4", model_types=("phi3",)),
            Family(name="olmo-2", model_types=("olmo2",)),
            Family(name="glm-4", model_types=("glm", "glm4", "glm4_moe")),
            Family(name="granite", model_types=("granite", "granitemoe")),
            Family(name="command", model_types=("cohere", "cohere2")),
        )
    }
)


def family_of_type(model_type: object, vocab_size: object) -> str | None:
    """The family of a config.json that says this; None: none of the table."""
    alike = [family for family in FAMILIES.values() if model_type in family.model_types]
    exact = [family for family in alike if family.vocab_size == vocab_size]
    found = exact or [family for family in alike if family.vocab_size is None]
    return found[0].name if found else None


def renderers_of_type(model_type: object) -> tuple[str, ...]:
    """The renderers of every family of that type: one recognized by its vocabulary takes none from the others."""
    alike = [family for family in FAMILIES.values() if model_type in family.model_types]
    return tuple(dict.fromkeys(name for family in alike for name in family.renderers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Properties of models whose name fits a pattern."""

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

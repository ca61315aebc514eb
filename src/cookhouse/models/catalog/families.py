"""Families: models of one architecture that share a chat format."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

TEMPLATE = "template"
"""The renderer that reads the model's own chat template: it fits whatever has one."""
PLAIN = ("role_colon", "human_ai")
"""Renderers of base models, which have no chat format."""

_LLAMA_EXPONENT = 0.781
_QWEN_EXPONENT = 0.0775


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

"""Renderers by name."""

from cookhouse.chat.encoding import Tokenizer
from cookhouse.chat.renderer import Renderer, RendererFactory
from cookhouse.naming import OpenSet

_FAMILIES = "cookhouse.chat.families"

RENDERERS: OpenSet[RendererFactory] = OpenSet(
    kind="renderer",
    group="cookhouse.renderers",
    builtin={
        "deepseekv3": f"{_FAMILIES}.deepseek_v3:DeepSeekV3Renderer",
        "deepseekv3_disable_thinking": f"{_FAMILIES}.deepseek_v3:DeepSeekV3Renderer",
        "deepseekv3_thinking": f"{_FAMILIES}.deepseek_v3:DeepSeekV3ThinkingRenderer",
        "gpt_oss_high_reasoning": f"{_FAMILIES}.gpt_oss:high_reasoning",
        "gpt_oss_low_reasoning": f"{_FAMILIES}.gpt_oss:low_reasoning",
        "gpt_oss_medium_reasoning": f"{_FAMILIES}.gpt_oss:medium_reasoning",
        "gpt_oss_no_sysprompt": f"{_FAMILIES}.gpt_oss:GptOssRenderer",
        "human_ai": f"{_FAMILIES}.human_ai:HumanAIRenderer",
        "kimi_k2": f"{_FAMILIES}.kimi_k2:KimiK2Renderer",
        "kimi_k2_instruct": f"{_FAMILIES}.kimi_k2:KimiK2InstructRenderer",
        "llama3": f"{_FAMILIES}.llama3:Llama3Renderer",
        "qwen3": f"{_FAMILIES}.qwen3:Qwen3Renderer",
        "qwen3_5": f"{_FAMILIES}.qwen3_5:Qwen35Renderer",
        "qwen3_5_disable_thinking": f"{_FAMILIES}.qwen3_5:Qwen35DisableThinkingRenderer",
        "qwen3_5_preserve_thinking": f"{_FAMILIES}.qwen3_5:preserve_thinking",
        "qwen3_disable_thinking": f"{_FAMILIES}.qwen3:Qwen3DisableThinkingRenderer",
        "qwen3_instruct": f"{_FAMILIES}.qwen3:Qwen3InstructRenderer",
        "qwen3_vl": f"{_FAMILIES}.qwen3_vl:Qwen3VLRenderer",
        "qwen3_vl_instruct": f"{_FAMILIES}.qwen3_vl:Qwen3VLInstructRenderer",
        "template": "cookhouse.chat.template:TemplateRenderer",
        "role_colon": f"{_FAMILIES}.role_colon:RoleColonRenderer",
    },
    check=lambda thing: thing if callable(thing) else None,
    wants="a renderer is a class of Renderer, or a function of the tokenizer that makes one",
    takes=("tokenizer",),
)


def get_renderer(name: str, tokenizer: Tokenizer) -> Renderer:
    """The renderer of that name over a tokenizer; also `module:NAME` or `file.py:NAME`.

    Raises:
        UnknownNameError: no such renderer; near matches are named.
        InputError: it cannot be imported, or the tokenizer lacks a token that it writes.
    """
    return RENDERERS.find(name)(tokenizer)


def supported_renderers() -> list[str]:
    """Names that `get_renderer` takes, sorted: built in, registered, and of installed packages."""
    return sorted(RENDERERS.names())


def register_renderer(name: str, factory: RendererFactory) -> None:
    """Add a renderer under a new name. Raises `InputError` if the name is taken."""
    RENDERERS.register(name, factory)


def is_built_in(name: str) -> bool:
    """True if a renderer is one of ours, of which the model table says what it fits; a user knows about their own."""
    return name in RENDERERS.builtin

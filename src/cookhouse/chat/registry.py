"""Renderers by name."""

from cookhouse.chat.encoding import Tokenizer
from cookhouse.chat.families.human_ai import HumanAIRenderer
from cookhouse.chat.families.qwen3 import Qwen3DisableThinkingRenderer, Qwen3InstructRenderer, Qwen3Renderer
from cookhouse.chat.families.role_colon import RoleColonRenderer
from cookhouse.chat.renderer import Renderer, RendererFactory
from cookhouse.errors import InputError, UnknownNameError

_RENDERERS: dict[str, RendererFactory] = {
    "human_ai": HumanAIRenderer,
    "qwen3": Qwen3Renderer,
    "qwen3_disable_thinking": Qwen3DisableThinkingRenderer,
    "qwen3_instruct": Qwen3InstructRenderer,
    "role_colon": RoleColonRenderer,
}


def get_renderer(name: str, tokenizer: Tokenizer) -> Renderer:
    """The renderer of that name over a tokenizer.

    Raises:
        UnknownNameError: no such renderer; near matches are named.
        InputError: the tokenizer lacks a token that the renderer writes.
    """
    if name not in _RENDERERS:
        raise UnknownNameError("renderer", name, _RENDERERS)
    return _RENDERERS[name](tokenizer)


def supported_renderers() -> list[str]:
    """Names that `get_renderer` takes, sorted."""
    return sorted(_RENDERERS)


def register_renderer(name: str, factory: RendererFactory) -> None:
    """Add a renderer under a new name. Raises `InputError` if the name is taken."""
    if name in _RENDERERS:
        raise InputError(f"a renderer named {name!r} exists already; register yours under another name")
    _RENDERERS[name] = factory

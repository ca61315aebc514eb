"""Renderers and texts of the weights that requests name."""

from dataclasses import dataclass

from cookhouse.chat import Encoder, Renderer, get_renderer, supported_renderers
from cookhouse.chat.template import TemplateRenderer
from cookhouse.dialects.errors import FieldError
from cookhouse.dialects.texts import TokenTexts
from cookhouse.errors import InputError
from cookhouse.models.catalog import TEMPLATE, default_renderer, renderers_of_family
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.server.requests.completions.weights import NamedWeights

_SETTING = "enable_thinking"
"""What chat templates call it."""
_EFFORTS = frozenset({"none", "low", "medium", "high"})
"""Of those that OpenAI has, the ones that a renderer may have, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Of one tokenizer."""

    encoder: Encoder
    tokens: TokenTexts


class ChatFormats:
    """Blocking, and called from one thread: tokenizers are not safe in several."""

    def __init__(self) -> None:
        self._texts: dict[str, Texts] = {}
        self._renderers: dict[tuple[str, str, str | None, bool | None, str | None], Renderer] = {}
        """By tokenizer, base model, the renderer that the weights name, whether it is to think, and its effort: which
        these mean takes milliseconds.
        """

    def texts(self, weights: NamedWeights) -> Texts:
        """Raises InputError where the base model has no tokenizer that can be used."""
        tokenizer_id = weights.info.tokenizer_id
        if tokenizer_id not in self._texts:
            encoder = Encoder(get_tokenizer(tokenizer_id))
            self._texts[tokenizer_id] = Texts(encoder=encoder, tokens=TokenTexts(encoder))
        return self._texts[tokenizer_id]

    def renderer(self, weights: NamedWeights, *, thinks: bool | None = None, effort: str | None = None) -> Renderer:
        """The renderer that the weights were trained with, else the one of their base model; where that does not think
        as `thinks` says, the one of its family that does. `effort` is OpenAI's: the renderer of the family that has it,
        where there is one.

        Raises:
            InputError: this server does not have it, or it does not go with the tokenizer, or none thinks so.
        """
        effort = effort if effort in _EFFORTS else None
        key = weights.info.tokenizer_id, weights.base_model, weights.renderer_name, thinks, effort
        if key not in self._renderers:
            name = _renderer_name(weights)
            if thinks is not None:
                self._renderers[key] = _renderer_that(weights, name, thinks=thinks)
            else:
                self._renderers[key] = _renderer_of(weights, name, effort)
        return self._renderers[key]


def _renderer_name(weights: NamedWeights) -> str:
    tokenizer_id = weights.info.tokenizer_id
    name = weights.renderer_name or default_renderer(weights.base_model, files=tokenizer_id)
    # A tenant wrote it: one of a file or a module would be a tenant's code.
    if name not in supported_renderers():
        raise InputError(
            f"{weights.name} was trained with renderer {name!r}, which this server does not have; render the "
            "conversation yourself, and send it to /v1/completions as tokens"
        )
    return name


def _renderer_of(weights: NamedWeights, own: str, effort: str | None) -> Renderer:
    """The weights' own renderer, or another of its family that has an effort."""
    tokenizer_id = weights.info.tokenizer_id
    family = () if effort is None else renderers_of_family(weights.base_model, own, files=tokenizer_id)
    name = next((name for name in family if name.endswith(f"_{effort}_reasoning")), own)
    if effort == "none":
        try:
            return _renderer_that(weights, own, thinks=False)
        except FieldError:  # it always thinks
            pass
    return get_renderer(name, get_tokenizer(tokenizer_id))


def _renderer_that(weights: NamedWeights, own: str, *, thinks: bool) -> Renderer:
    """The weights' own renderer, or another of its family, that thinks or not."""
    tokenizer_id = weights.info.tokenizer_id
    tokenizer = get_tokenizer(tokenizer_id)
    if own == TEMPLATE and _SETTING in str(tokenizer.chat_template):
        return TemplateRenderer(tokenizer, **{_SETTING: thinks})
    for name in renderers_of_family(weights.base_model, own, files=tokenizer_id):
        renderer = get_renderer(name, tokenizer)
        if renderer.thinks == thinks:
            return renderer
    always = "never thinks" if thinks else "always thinks"
    raise FieldError(
        f"chat_template_kwargs.{_SETTING}",
        f"{weights.name} {always} in the format of its renderer, {own}; leave {_SETTING} out",
    )

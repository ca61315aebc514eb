"""The chat format of weights: renderers, tokenizers, and the texts of tokens, each made once."""

from dataclasses import dataclass

from cookhouse.chat import Encoder, Renderer, get_renderer, supported_renderers
from cookhouse.chat.template import TemplateRenderer
from cookhouse.errors import InputError
from cookhouse.models.catalog import TEMPLATE, default_renderer, renderers_of_family
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.server.requests.completions.weights import NamedWeights
from cookhouse.server.wire.openai.errors import FieldError
from cookhouse.server.wire.openai.texts import TokenTexts

_SETTING = "enable_thinking"
"""What chat templates call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Of one tokenizer."""

    encoder: Encoder
    tokens: TokenTexts


class ChatFormats:
    """Blocking, and called from one thread: tokenizers are not safe in several."""

    def __init__(self) -> None:
        self._texts: dict[str, Texts] = {}
        self._renderers: dict[tuple[str, str, str | None, bool | None], Renderer] = {}
        """By tokenizer, base model, the renderer that the weights name, and whether it is to think: which these mean
        takes milliseconds.
        """

    def texts(self, weights: NamedWeights) -> Texts:
        """Raises InputError where the base model has no tokenizer that can be used."""
        tokenizer_id = weights.info.tokenizer_id
        if tokenizer_id not in self._texts:
            encoder = Encoder(get_tokenizer(tokenizer_id))
            self._texts[tokenizer_id] = Texts(encoder=encoder, tokens=TokenTexts(encoder))
        return self._texts[tokenizer_id]

    def renderer(self, weights: NamedWeights, *, thinks: bool | None = None) -> Renderer:
        """The renderer that the weights were trained with, else the one of their base model; where that does not think
        as `thinks` says, the one of its family that does.

        Raises:
            InputError: this server does not have it, or it does not go with the tokenizer, or none thinks so.
        """
        key = weights.info.tokenizer_id, weights.base_model, weights.renderer_name, thinks
        if key not in self._renderers:
            name = _renderer_name(weights)
            self._renderers[key] = (
                get_renderer(name, get_tokenizer(weights.info.tokenizer_id))
                if thinks is None
                else _renderer_that(weights, name, thinks=thinks)
            )
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

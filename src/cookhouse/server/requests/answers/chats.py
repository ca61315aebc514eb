"""The chat format of weights: renderers, tokenizers, and the texts of tokens, each made once."""

from dataclasses import dataclass

from cookhouse.catalog import default_renderer
from cookhouse.chat import Encoder, Renderer, get_renderer, supported_renderers
from cookhouse.errors import InputError
from cookhouse.server.requests.answers.weights import NamedWeights
from cookhouse.server.wire.openai.texts import TokenTexts
from cookhouse.tokenizers import get_tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Of one tokenizer."""

    encoder: Encoder
    tokens: TokenTexts


class ChatFormats:
    """Blocking, and called from one thread: tokenizers are not safe in several."""

    def __init__(self) -> None:
        self._texts: dict[str, Texts] = {}
        self._renderers: dict[tuple[str, str, str | None], Renderer] = {}
        """By tokenizer, base model, and the renderer that the weights name: which these mean takes milliseconds."""

    def texts(self, weights: NamedWeights) -> Texts:
        """Raises InputError where the base model has no tokenizer that can be used."""
        tokenizer_id = weights.info.tokenizer_id
        if tokenizer_id not in self._texts:
            encoder = Encoder(get_tokenizer(tokenizer_id))
            self._texts[tokenizer_id] = Texts(encoder=encoder, tokens=TokenTexts(encoder))
        return self._texts[tokenizer_id]

    def renderer(self, weights: NamedWeights) -> Renderer:
        """The renderer that the weights were trained with, else the one of their base model.

        Raises:
            InputError: this server does not have it, or it does not go with the tokenizer.
        """
        key = weights.info.tokenizer_id, weights.base_model, weights.renderer_name
        if key not in self._renderers:
            self._renderers[key] = _renderer(weights)
        return self._renderers[key]


def _renderer(weights: NamedWeights) -> Renderer:
    tokenizer_id = weights.info.tokenizer_id
    name = weights.renderer_name or default_renderer(weights.base_model, files=tokenizer_id)
    # A tenant wrote it: one of a file or a module would be a tenant's code.
    if name not in supported_renderers():
        raise InputError(
            f"{weights.name} was trained with renderer {name!r}, which this server does not have; render the "
            "conversation yourself, and send it to /v1/completions as tokens"
        )
    return get_renderer(name, get_tokenizer(tokenizer_id))

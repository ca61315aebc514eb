"""Prompting of the model with an environment's text, in a form that can be pickled and sent to another process."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from cookhouse.chat import Message, Renderer, turn_text
from cookhouse.data import build_renderer


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompting:
    """A model and its chat format. The renderer itself, with its tokenizer, is made once in each process."""

    model_name: str
    renderer_name: str | None = None
    """None: the model's own."""
    force_renderer: bool = False
    system_prompt: str | None = None

    @property
    def renderer(self) -> Renderer:
        """Raises `InputError` if the renderer is unknown or does not fit the model."""
        return _renderer(self.model_name, self.renderer_name, self.force_renderer)

    def ask(self, question: str) -> list[Message]:
        """The conversation that starts with a question."""
        asked: list[Message] = [{"role": "user", "content": question}]
        return [{"role": "system", "content": self.system_prompt}, *asked] if self.system_prompt else asked


def in_words(messages: Sequence[Message]) -> str:
    """The message to answer, or the conversation that it ends, for people who read the transcript."""
    if len(messages) == 1:
        return turn_text(messages[0])
    return "\n".join(f"{message['role']}: {turn_text(message)}" for message in messages)


@cache
def _renderer(model_name: str, renderer_name: str | None, force: bool) -> Renderer:
    return build_renderer(model_name, renderer_name, force=force)

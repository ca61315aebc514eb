"""Questions of rollouts, for people: of a prompt in tokens, the last message of a user, without what a chat format puts
around it.
"""

from functools import cached_property
from itertools import takewhile
from typing import Any

import tinker

from cookhouse.chat import Message, Renderer

_ASKED, _ANSWERED = "the1question", "the2answer"
"""Contents by which the marks of a format are found."""


class QuestionReader:
    """Reads the prompts of one chat format."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def __call__(self, prompt: tinker.ModelInput) -> str:
        """The last message of a user; all of the prompt where none can be found."""
        text = self._decoded(prompt)
        begin, end = self._marks
        _, found, after = text.rpartition(begin) if begin else ("", "", text)
        if not found:
            return text
        asked = after.partition(end)[0] if end else after
        return asked.strip() or text

    @cached_property
    def _marks(self) -> tuple[str, str]:
        """Text before and behind a user's message, wherever that is in a conversation."""
        asked: Message = {"role": "user", "content": _ASKED}
        answered: Message = {"role": "assistant", "content": _ANSWERED}
        first = self._decoded(self._renderer.build_generation_prompt([asked]))
        again = self._decoded(self._renderer.build_generation_prompt([asked, answered, asked]))
        before, _, later = again.rpartition(_ANSWERED)
        (head, found, tail), (later_head, _, later_tail) = first.partition(_ASKED), later.partition(_ASKED)
        if not found:
            return "", ""
        return _shared(head[::-1], later_head[::-1])[::-1], _shared(tail, later_tail, before.partition(_ASKED)[2])

    def _decoded(self, prompt: tinker.ModelInput) -> str:
        tokenizer: Any = self._renderer.encoder.tokenizer
        return str(tokenizer.decode(prompt.to_ints()))


def _shared(*texts: str) -> str:
    """Common beginning of all of them."""
    return "".join(letters[0] for letters in takewhile(lambda some: len(set(some)) == 1, zip(*texts, strict=False)))

"""`human_ai`: plain text for base models, a line each: `Human: …` and `AI: …`."""

from collections.abc import Sequence

from cookhouse.chat.encoding import Piece
from cookhouse.chat.families.plain_text import PlainTextRenderer
from cookhouse.chat.messages import Message, text_of
from cookhouse.chat.renderer import MessageLayout

_NAMES = {"system": "System", "user": "Human", "assistant": "AI"}


class HumanAIRenderer(PlainTextRenderer):
    r"""An answer is one line, and its end is the end of the line. That is what a base model comes closest to by itself,
    so reinforcement learning can start from it without any supervised training. No tools, no images, no thinking.

    An answer of several lines is refused in training, since it could never be sampled. Otherwise the format has no
    marks of its own: a question of several lines is written as it is, and content that spells
    `\nAI:` reads as a turn.
    """

    name = "human_ai"
    stop = "\n"

    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        return [self._layout_one(message) for message in messages]

    def _layout_one(self, message: Message) -> MessageLayout:
        self.check_plain(message)
        output: list[Piece] = [f" {text_of(message)}{self.stop}"]
        return MessageLayout(header=[f"{_NAMES[message['role']]}:"], output=output)

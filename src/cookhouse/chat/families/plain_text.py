"""Base of formats without special tokens: each turn is a name and a text, and a string ends an answer."""

from collections.abc import Sequence
from typing import ClassVar

from cookhouse.chat.encoding import Piece, Special, Tokenizer
from cookhouse.chat.messages import Message, text_of, thinking_of
from cookhouse.chat.renderer import Renderer, Termination, spell
from cookhouse.errors import InputError

_END_OF_TEXT = Special("<|endoftext|>")
"""Ends a document of base models whose tokenizer, made for chat, has another end of sequence."""


class PlainTextRenderer(Renderer):
    """No tools, no images, no thinking. A format adds its layout."""

    name: ClassVar[str]
    stop: ClassVar[str]

    optional_marks = (_END_OF_TEXT,)
    has_tools = False

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        eos = tokenizer.eos_token_id
        if eos is not None:
            self._marks[eos] = Special(self.encoder.decode([eos]))

    def begin(self) -> list[int]:
        bos = self.encoder.tokenizer.bos_token_id
        return [] if bos is None else [bos]

    def check_trained(self, message: Message) -> None:
        if thinking_of(message):
            raise InputError(f"renderer {self.name} has no form for thinking; remove it, or use qwen3")
        text = text_of(message)
        if message["role"] == "assistant" and (text + self.stop).find(self.stop) < len(text):
            raise InputError(
                f"the answer contains {self.stop!r}, where sampling with renderer {self.name} ends, so that the rest "
                "of it could never be sampled; cut it there, or use a renderer of a chat model's family"
            )

    def check_plain(self, message: Message) -> None:
        """Raise InputError for a message that is of tools or has to do with them."""
        if message["role"] == "tool" or any(message.get(key) for key in ("tool_calls", "tools", "unparsed_tool_calls")):
            raise InputError(
                f"renderer {self.name} has no form for tools; choose that of a chat model, such as "
                "renderer_name=qwen3_instruct for models of Qwen's tokenizer"
            )

    def get_stop_sequences(self) -> list[str]:
        return [self.stop]

    def read_response(self, pieces: Sequence[Piece]) -> tuple[Message, Termination]:
        ended_by_eos = bool(pieces) and isinstance(pieces[-1], Special)
        content, stop, rest = spell(pieces[:-1] if ended_by_eos else pieces).partition(self.stop)
        if stop and not rest and not ended_by_eos:
            termination = Termination.STOP_SEQUENCE
        elif ended_by_eos and not stop:
            termination = Termination.EOS
        else:
            termination = Termination.MALFORMED
        if not stop:
            content = self.trim_unstopped(content)
        return {"role": "assistant", "content": content.removeprefix(" ")}, termination

    def trim_unstopped(self, content: str) -> str:
        """The content of an answer that did not reach the stop string."""
        return content

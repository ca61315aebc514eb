"""`human_ai`: plain text for base models, a line each: `Human: …` and `AI: …`."""

from collections.abc import Sequence

from cookhouse.chat.encoding import Piece
from cookhouse.chat.messages import Message, text_of, thinking_of
from cookhouse.chat.renderer import MessageLayout, Renderer, Termination
from cookhouse.errors import InputError

_STOP = "\n"
_NAMES = {"system": "System", "user": "Human", "assistant": "AI"}


class HumanAIRenderer(Renderer):
    r"""An answer is one line, and its end is the end of the line. That is what a base model comes closest to by itself,
    so reinforcement learning can start from it without any supervised training. No tools, no images, no thinking.

    The format has no marks of its own: a question of several lines is written as it is, and content that spells
    `\nAI:` reads as a turn.
    """

    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        return [self._layout_one(message) for message in messages]

    def begin(self) -> list[int]:
        bos = self.encoder.tokenizer.bos_token_id
        return [] if bos is None else [bos]

    def check_trained(self, message: Message) -> None:
        if thinking_of(message):
            raise InputError("renderer human_ai has no form for thinking; remove it, or use qwen3")

    def get_stop_sequences(self) -> list[str]:
        return [_STOP]

    def parse_response(self, tokens: Sequence[int]) -> tuple[Message, Termination]:
        eos = self.encoder.tokenizer.eos_token_id
        body = list(tokens)
        ended_by_eos = bool(body) and body[-1] == eos
        content, stop, rest = self.encoder.decode(body[:-1] if ended_by_eos else body).partition(_STOP)
        if stop and not rest and not ended_by_eos:
            termination = Termination.STOP_SEQUENCE
        elif ended_by_eos and not stop:
            termination = Termination.EOS
        else:
            termination = Termination.MALFORMED
        return {"role": "assistant", "content": content.removeprefix(" ")}, termination

    def _layout_one(self, message: Message) -> MessageLayout:
        if message["role"] == "tool" or any(message.get(key) for key in ("tool_calls", "tools", "unparsed_tool_calls")):
            raise InputError("renderer human_ai has no form for tools; use a renderer of a chat model's family")
        output: list[Piece] = [f" {text_of(message)}{_STOP}"]
        return MessageLayout(header=[f"{_NAMES[message['role']]}:"], output=output)

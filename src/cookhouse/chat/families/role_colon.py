"""`role_colon`: plain text for base models, `User: …` and `Assistant: …` with a blank line between."""

from collections.abc import Sequence

from cookhouse.chat.encoding import Piece
from cookhouse.chat.messages import Message, text_of, thinking_of
from cookhouse.chat.renderer import MessageLayout, Renderer, Termination
from cookhouse.errors import InputError

_STOP = "\n\nUser:"


class RoleColonRenderer(Renderer):
    r"""Each message is `{Role}:` and ` {content}` and a blank line; a final answer is followed by a trained `User:`, so
    that stopping is learned. No tools, no images, no thinking.

    The format has no marks of its own, so content that spells `\n\nAssistant:` reads as a turn: unlike the other
    renderers, this one cannot keep a hostile user from imitating one.
    """

    def begin(self) -> list[int]:
        bos = self.encoder.tokenizer.bos_token_id
        return [] if bos is None else [bos]

    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        layouts = []
        for message in messages:
            if message["role"] == "tool" or any(
                message.get(key) for key in ("tool_calls", "tools", "unparsed_tool_calls")
            ):
                raise InputError("renderer role_colon has no form for tools; use a renderer of a chat model's family")
            role = message["role"].capitalize()
            layouts.append(MessageLayout(header=[f"{role}:"], output=[f" {text_of(message)}\n\n"]))
        return layouts

    def end(self, last: Message) -> list[Piece]:
        return ["User:"] if last["role"] == "assistant" else []

    def check_trained(self, message: Message) -> None:
        if thinking_of(message):
            raise InputError("renderer role_colon has no form for thinking; remove it, or use qwen3")

    def get_stop_sequences(self) -> list[str]:
        return [_STOP]

    def parse_response(self, tokens: Sequence[int]) -> tuple[Message, Termination]:
        eos = self.encoder.tokenizer.eos_token_id
        body = list(tokens)
        ended_by_eos = bool(body) and body[-1] == eos
        text = self.encoder.decode(body[:-1] if ended_by_eos else body)
        content, stop, rest = text.partition(_STOP)
        if stop and not rest and not ended_by_eos:
            termination = Termination.STOP_SEQUENCE
        elif ended_by_eos and not stop:
            termination = Termination.EOS
        else:
            termination = Termination.MALFORMED
        if not stop:
            content = content.removesuffix("\n\n")
        return {"role": "assistant", "content": content.removeprefix(" ")}, termination

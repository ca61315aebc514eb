"""Calls among the letters of an answer's text, in the order in which the model wrote them."""

from collections.abc import Sequence
from typing import TypeAlias, cast

from cookhouse.chat.encoding import Piece
from cookhouse.chat.messages import Message, ToolCall, UnparsedToolCall

AnyCall: TypeAlias = ToolCall | UnparsedToolCall


def answer(content: str, calls: Sequence[ToolCall], unparsed: Sequence[UnparsedToolCall]) -> Message:
    """An assistant's message, with its calls if there are any."""
    message: Message = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = list(calls)
    if unparsed:
        message["unparsed_tool_calls"] = list(unparsed)
    return message


def read_in_order(texts: Sequence[str], calls: Sequence[AnyCall], glue: str) -> Message:
    """A message of calls and the texts around them, of which there is one more.

    Calls that end an answer have no place: `glue` before them and white space between them are framing. Where one
    cannot be read, or text follows one, all have a place, and the text is kept to the letter.
    """
    readable = [cast("ToolCall", call) for call in calls if not is_unparsed(call)]
    unparsed = [cast("UnparsedToolCall", call) for call in calls if is_unparsed(call)]
    if not unparsed and not any(text.strip() for text in texts[1:]):
        return answer(texts[0].removesuffix(glue) if calls else texts[0], readable, ())
    place = 0
    for text, call in zip(texts, calls, strict=False):
        place += len(text)
        call["place"] = place
        place += 1
    return answer("".join(texts), readable, unparsed)


def write_in_order(text: str, calls: Sequence[tuple[int | None, Sequence[Piece]]], glue: str) -> list[Piece]:
    """A text, which is the first piece, with calls in it, each given with the letters before it as `calls_in_order` has
    them; `glue` stands between the text and calls behind it.
    """
    pieces: list[Piece] = []
    written = 0
    for letters, call in calls:
        if letters is not None:
            pieces += [text[written:letters], *call]
            written = max(written, letters)
    pieces.append(text[written:])
    between = glue if text or len(pieces) > 1 else ""
    for letters, call in calls:
        if letters is None:
            pieces += [between, *call]
            between = "\n"
    return pieces


def calls_in_order(message: Message) -> list[tuple[int | None, AnyCall]]:
    """The calls of a message, each with the number of letters before it; None: it stands behind the text."""
    calls: list[AnyCall] = [*message.get("tool_calls", ()), *message.get("unparsed_tool_calls", ())]
    placed = sorted((call["place"], index) for index, call in enumerate(calls) if "place" in call)
    return [
        *((max(place - num_before, 0), calls[index]) for num_before, (place, index) in enumerate(placed)),
        *((None, call) for call in calls if "place" not in call),
    ]


def has_places(message: Message) -> bool:
    """True if calls stand in the text, which then is word for word."""
    return any(letters is not None for letters, _ in calls_in_order(message))


def is_unparsed(call: AnyCall) -> bool:
    return "error" in call

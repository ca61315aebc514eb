"""Promises of a renderer, each checked on a conversation."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from cookhouse.chat.encoding import Piece, Special
from cookhouse.chat.messages import Message, split_thinking, text_of, thinking_of
from cookhouse.chat.renderer import Renderer, Termination
from cookhouse.chat.template.chat_template import ChatTemplate
from cookhouse.chat.training_targets import TrainOnWhat
from cookhouse.errors import InputError

_SHOWN = 40


class CheckOutcome(StrEnum):
    """Of one promise and one conversation."""

    KEPT = "kept"
    BROKEN = "broken"
    REFUSED = "refused"
    """The renderer has no form for the conversation, and says so."""
    DIFFERS = "differs"
    """From the model's chat template, which a renderer may do deliberately."""
    UNKNOWN = "unknown"
    """There is nothing to compare with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    promise: str
    conversation: str
    outcome: CheckOutcome
    detail: str = ""
    """Where it breaks, or why it is refused."""


def check_renderer(renderer: Renderer, conversations: Mapping[str, Sequence[Message]]) -> list[CheckResult]:
    """Every promise with every conversation, by name; each conversation ends with an answer."""
    return [
        _check(promise, name, partial(check, renderer, talk))
        for promise, check in _PROMISES.items()
        for name, talk in conversations.items()
    ]


def _check(promise: str, conversation: str, check: Callable[[], str | CheckOutcome | None]) -> CheckResult:
    try:
        found = check()
    except InputError as error:
        return CheckResult(promise=promise, conversation=conversation, outcome=CheckOutcome.REFUSED, detail=str(error))
    if found is None or isinstance(found, CheckOutcome):
        return CheckResult(promise=promise, conversation=conversation, outcome=found or CheckOutcome.KEPT)
    outcome = CheckOutcome.DIFFERS if promise == TEMPLATE else CheckOutcome.BROKEN
    return CheckResult(promise=promise, conversation=conversation, outcome=outcome, detail=found)


def _prefix(renderer: Renderer, messages: Sequence[Message]) -> str | None:
    """Every trained answer follows exactly the prompt that it would be sampled from."""
    for index in _answers(messages):
        prompt = renderer.build_generation_prompt(messages[:index]).to_ints()
        *_, (example, _) = renderer.build_supervised_examples(messages[: index + 1], TrainOnWhat.LAST_ASSISTANT_MESSAGE)
        if example.to_ints()[: len(prompt)] != prompt:
            return _where(renderer, prompt, example.to_ints())
    return None


def _round_trip(renderer: Renderer, messages: Sequence[Message]) -> str | None:
    """Check that what is written of an answer is read as that answer, white space at its ends excepted."""
    for index in _answers(messages):
        answer = messages[index]
        read, _ = renderer.parse_response(renderer.build_response(messages[: index + 1]))
        thinking, text = split_thinking(answer)
        wanted = {"text": text.strip(), "thinking": (thinking or "").strip(), "calls": _calls(answer)}
        got = {"text": text_of(read).strip(), "thinking": thinking_of(read).strip(), "calls": _calls(read)}
        for key, value in wanted.items():
            if got[key] != value:
                return f"{key} {value!r} is read as {got[key]!r}"
    return None


def _stop(renderer: Renderer, messages: Sequence[Message]) -> str | None:
    """A response ends where sampling stops, and nowhere before."""
    for index in _answers(messages):
        response = renderer.build_response(messages[: index + 1])
        _, termination = renderer.parse_response(response)
        if termination is not Termination.STOP_SEQUENCE:
            return f"{renderer.encoder.decode(response)[-_SHOWN:]!r} ends by {termination}"
        early = {stop for stop in renderer.get_stop_sequences() if isinstance(stop, int)} & {*response[:-1]}
        if early:
            return f"{renderer.encoder.decode([*early])!r} stands within a response"
    return None


def _extension(renderer: Renderer, messages: Sequence[Message]) -> str | CheckOutcome | None:
    """Check that each prompt begins with all of the turns before it, if the renderer promises so."""
    if not renderer.has_extension_property:
        return CheckOutcome.UNKNOWN
    whole = renderer.build_supervised_example(messages, TrainOnWhat.LAST_ASSISTANT_MESSAGE)[0].to_ints()
    for index in _answers(messages):
        prompt = renderer.build_generation_prompt(messages[:index]).to_ints()
        if whole[: len(prompt)] != prompt:
            return _where(renderer, prompt, whole)
    return None


def _no_forgery(renderer: Renderer, messages: Sequence[Message]) -> str | None:
    """No content becomes a mark."""
    marks = {*renderer.encoder.marks.values()}
    plain = [_without_names(message, renderer.encoder.marks) for message in messages]
    mode = TrainOnWhat.LAST_ASSISTANT_MESSAGE
    counts = [
        [token for token in renderer.build_supervised_example(talk, mode)[0].to_ints() if token in marks]
        for talk in (messages, plain)
    ]
    return None if counts[0] == counts[1] else f"{len(counts[0])} marks in place of {len(counts[1])}"


def _template(renderer: Renderer, messages: Sequence[Message]) -> str | CheckOutcome | None:
    """The tokens are those of the model's own chat template."""
    tokenizer = renderer.encoder.tokenizer
    if not getattr(tokenizer, "chat_template", None):
        return CheckOutcome.UNKNOWN
    template = ChatTemplate(tokenizer, {})
    text = template.render(messages)
    written = renderer.build_supervised_example(messages, TrainOnWhat.LAST_ASSISTANT_MESSAGE)[0].to_ints()
    theirs, ours = _joined(template.pieces(text.rstrip())), _joined(renderer.encoder.split(written, _marks(renderer)))
    if ours == theirs:
        return None
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    return f"{''.join(ours[at : at + 3])[:_SHOWN]!r} where the template has {''.join(theirs[at : at + 3])[:_SHOWN]!r}"


TEMPLATE = "template"
_PROMISES: Mapping[str, Callable[[Renderer, Sequence[Message]], str | CheckOutcome | None]] = {
    "prefix": _prefix,
    "round trip": _round_trip,
    "extension": _extension,
    "stop": _stop,
    "no forgery": _no_forgery,
    TEMPLATE: _template,
}


def _answers(messages: Sequence[Message]) -> Iterator[int]:
    return (index for index, message in enumerate(messages) if message["role"] == "assistant")


def _calls(message: Message) -> list[tuple[str, object]]:
    return [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]


def _marks(renderer: Renderer) -> dict[int, Special]:
    return {token: Special(name) for name, token in renderer.encoder.added.items()}


def _without_names(message: Message, names: Iterable[str]) -> Message:
    text = text_of(message)
    for name in names:
        text = text.replace(name, "name")
    return message if text == text_of(message) else {**message, "content": text}


def _joined(pieces: Sequence[Piece]) -> list[str]:
    """Pieces as texts and marks that follow each other by turns."""
    return [str(piece) for piece in pieces if piece]


def _where(renderer: Renderer, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(prompt, tokens, strict=False)) if a != b), len(tokens))
    theirs, ours = (renderer.encoder.decode(list(each[at : at + 8])) for each in (prompt, tokens))
    return f"token {at}: the prompt has {theirs!r} where the conversation has {ours!r}"

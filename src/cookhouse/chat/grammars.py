"""Grammars of answers: something given, or calls of tools, in a renderer's own format and behind its thinking.

Frames are learned from what the renderer writes of a few answers. A grammar is text in the serialized form of
llguidance (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md), which nothing here imports.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from tinker import ModelInput

from cookhouse.chat.encoding import Piece, Special
from cookhouse.chat.messages import Message, ToolCall
from cookhouse.chat.renderer import Renderer
from cookhouse.errors import InputError

Grammar: TypeAlias = Mapping[str, Any]
"""One of the grammars that make up a serialized one."""
_Atoms: TypeAlias = list[str]
"""Letters and marks, one by one."""
_SAID, _THOUGHT = "\u2983said\u2984", "\u2983thought\u2984"
_ARGUMENTS = '{"arguments": 0}'
_ASKED: Message = {"role": "user", "content": "u"}
JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""Options of llguidance: JSON as `json.dumps` writes it, which leaves no white space open."""


def serialize(grammars: Sequence[Grammar]) -> str:
    """The text that the engine takes; the first one is where it starts."""
    return json.dumps({"grammars": list(grammars)}, ensure_ascii=False)


def json_of(schema: Mapping[str, Any] | bool, *, is_lenient: bool = False) -> dict[str, Any]:
    """A JSON schema with the style in which its values are written. `is_lenient` ignores what llguidance lacks."""
    options = {**JSON_STYLE, "lenient": True} if is_lenient else JSON_STYLE
    if schema is False:
        raise InputError("the JSON schema is false, which nothing fits")
    return {**({} if schema is True else schema), "x-guidance": options}


def answer_grammar(
    renderer: Renderer,
    prompt: ModelInput,
    answer: Sequence[Grammar],
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    is_single: bool = False,
) -> str:
    """The grammar of an answer to a prompt whose text is all of `answer`, or which calls tools in place of it.

    Raises:
        InputError: the renderer's thinking ends with no mark.
    """
    frame = _frame_of_text(renderer)
    calls = _Calls.of(renderer, tools, is_single=is_single) if tools else None
    text = f"{_lark(renderer, frame.before)} @answer {_lark(renderer, frame.after)}"
    start = f"start: {_thinking(renderer, prompt)}({text}{'' if calls is None else ' | calls'})"
    first, *rest = answer
    rules = [] if calls is None else calls.rules
    return serialize([{"lark_grammar": "\n".join([start, *rules])}, {**first, "name": "answer"}, *rest])


def calls_grammar(
    renderer: Renderer, prompt: ModelInput, tools: Sequence[Mapping[str, Any]], *, is_single: bool
) -> str:
    """The grammar of an answer that is one call of a tool, or unless `is_single` one or more.

    Raises:
        InputError: the renderer's calls cannot be followed.
    """
    calls = _Calls.of(renderer, tools, is_single=is_single)
    if calls is None:
        raise InputError(
            "the calls of this model's format cannot be held to a grammar; let tool_choice be auto, without strict"
        )
    return _with_rules(f"start: {_thinking(renderer, prompt)}calls", calls)


def strict_grammar(renderer: Renderer, tools: Sequence[Mapping[str, Any]], *, is_single: bool) -> str | None:
    """The grammar of an answer that says what it likes, and whose calls fit their tools; None: the renderer's calls
    cannot be followed, or begin with no mark, so that they cannot be told from text.
    """
    calls = _Calls.of(renderer, tools, is_single=is_single)
    if calls is None or calls.mark is None:
        return None
    ends = [end for end in renderer.get_stop_sequences() if isinstance(end, int)]
    text = f"text: {_tokens_but([renderer.encoder.id_of(calls.mark), *ends])}*"
    return _with_rules(f"start: text (calls text){'?' if is_single else '*'}\n{text}", calls)


def _with_rules(start: str, calls: "_Calls") -> str:
    return serialize([{"lark_grammar": "\n".join([start, *calls.rules])}])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calls:
    """Rules in Lark, of which `calls` is the one to begin with."""

    rules: Sequence[str]
    mark: Special | None
    """The common beginning of all calls."""

    @classmethod
    def of(cls, renderer: Renderer, tools: Sequence[Mapping[str, Any]], *, is_single: bool) -> "_Calls | None":
        """None: the renderer does not write the arguments of a call as one JSON value."""
        found = [_frame_of_call(renderer, tool["function"]["name"]) for tool in tools]
        frames = [frame for frame in found if frame is not None]
        if len(frames) < len(found):
            return None
        is_single |= any(frame.between is None or frame.after != frames[0].after for frame in frames)
        rules = [f"arguments_{i}: %json {_arguments(tool['function'])}" for i, tool in enumerate(tools)]
        before = [f"{_lark(renderer, frame.before)} arguments_{i}" for i, frame in enumerate(frames)]
        if is_single:
            closed = [f"{one} {_lark(renderer, frame.after)}" for one, frame in zip(before, frames, strict=True)]
            rules.append(f"calls: {' | '.join(closed)}")
        else:
            more = [f"{_lark(renderer, frame.between or [])} arguments_{i}" for i, frame in enumerate(frames)]
            rules.append(f"calls: ({' | '.join(before)}) ({' | '.join(more)})* {_lark(renderer, frames[0].after)}")
        marks = {frame.before[0] if frame.before else "" for frame in frames}
        mark = marks.pop() if len(marks) == 1 else ""
        return cls(rules=rules, mark=mark if isinstance(mark, Special) else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Atoms around a text or the arguments of a call."""

    before: _Atoms
    after: _Atoms
    """Up to the end mark, which is part of it where without it nothing would be read."""
    between: _Atoms | None = None
    """From the arguments of a call to those of the next; None: an answer has one call."""


def _frame_of_text(renderer: Renderer) -> _Frame:
    before, after = _split(_written(renderer, _SAID, ()), _SAID)
    return _Frame(before=before, after=_without_end(renderer, after))


def _frame_of_call(renderer: Renderer, name: str) -> _Frame | None:
    one, two, three = (_calls_written(renderer, name, number) for number in (1, 2, 3))
    if one is None:
        return None
    before, after = _split(one, _ARGUMENTS)
    closed = _without_end(renderer, after)
    read, _ = renderer.read_response(_pieces([*before, *_ARGUMENTS, *closed]))
    between = None if two is None or three is None else _between(two, three)
    if between is not None and any(_is_stop(renderer, atom) for atom in between):
        between = None
    return _Frame(before=before, after=closed if read.get("tool_calls") else after, between=between)


def _between(two: _Atoms, three: _Atoms) -> _Atoms | None:
    """The text between two calls, if it is the same between any."""
    first = _split(_split(two, _ARGUMENTS)[1], _ARGUMENTS)[0]
    rest = _split(three, _ARGUMENTS)[1]
    second = _split(_split(rest, _ARGUMENTS)[1], _ARGUMENTS)[0]
    return first if first == second else None


def _calls_written(renderer: Renderer, name: str, number: int) -> _Atoms | None:
    """An answer of some calls; None where the renderer does not write them so."""
    calls: list[ToolCall] = [
        {"type": "function", "id": f"call_{index}", "function": {"name": name, "arguments": _ARGUMENTS}}
        for index in range(number)
    ]
    try:
        written = _written(renderer, "", calls)
    except InputError:
        return None
    return written if len(_places(written, _ARGUMENTS)) == number else None


def _thinking(renderer: Renderer, prompt: ModelInput) -> str:
    """Lark of the thinking before an answer: free up to the mark that closes it; empty where there is none."""
    if not renderer.thinks:
        return ""
    content: Any = [{"type": "thinking", "thinking": _THOUGHT}, {"type": "text", "text": _SAID}]
    whole = _atoms(renderer.layout([_ASKED, {"role": "assistant", "content": content}])[-1].output)
    if not _places(whole, _THOUGHT):
        return ""
    opened, rest = _split(whole, _THOUGHT)
    # What stands behind its last mark is free, too: one token may have that line break and the next.
    marks = [at for at, atom in enumerate(opened) if isinstance(atom, Special)]
    opened = opened[: marks[-1] + 1] if marks else opened
    closing, plain = _split(rest, _SAID)[0], _frame_of_text(renderer).before
    closing = closing[: len(closing) - len(plain)]
    place = next((at for at, atom in enumerate(closing) if isinstance(atom, Special)), None)
    if place is None:
        raise InputError("this model's thinking ends with no mark, behind which a grammar could begin; switch it off")
    free = f"{_tokens_but([*renderer.mark_ids])}* {_lark(renderer, closing[place:])} "
    return free if renderer.opening_of(prompt) else f"({_lark(renderer, opened)} {free})? "


def _arguments(function: Mapping[str, Any]) -> str:
    schema = function.get("parameters") or {}
    is_strict = function.get("strict") is True
    return json.dumps(json_of({"type": "object", **schema}, is_lenient=not is_strict), ensure_ascii=False)


def _written(renderer: Renderer, text: str, calls: Sequence[ToolCall]) -> _Atoms:
    message: Message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = list(calls)
    return _atoms(renderer.layout([_ASKED, message])[-1].output)


def _without_end(renderer: Renderer, atoms: _Atoms) -> _Atoms:
    return atoms[:-1] if atoms and _is_stop(renderer, atoms[-1]) else atoms


def _is_stop(renderer: Renderer, atom: str) -> bool:
    return isinstance(atom, Special) and renderer.encoder.id_of(atom) in renderer.get_stop_sequences()


def _atoms(pieces: Sequence[Any]) -> _Atoms:
    return [atom for piece in pieces for atom in ([piece] if isinstance(piece, Special) else piece)]


def _pieces(atoms: _Atoms) -> list[Piece]:
    runs = groupby(atoms, key=lambda atom: isinstance(atom, Special))
    return [piece for is_mark, run in runs for piece in (run if is_mark else ["".join(run)])]


def _places(atoms: _Atoms, text: str) -> list[int]:
    """Indices at which a text begins in atoms."""
    letters = [*text]
    return [at for at in range(len(atoms) - len(letters) + 1) if atoms[at : at + len(letters)] == letters]


def _split(atoms: _Atoms, text: str) -> tuple[_Atoms, _Atoms]:
    """Atoms before and after the first place of a text that is there."""
    place = _places(atoms, text)[0]
    return atoms[:place], atoms[place + len(text) :]


def _lark(renderer: Renderer, atoms: _Atoms) -> str:
    return " ".join(
        f"<[{renderer.encoder.id_of(piece)}]>" if isinstance(piece, Special) else json.dumps(piece)
        for piece in _pieces(atoms)
    )


def _tokens_but(tokens: Sequence[int]) -> str:
    return f"<[^{','.join(map(str, sorted({*tokens})))}]>"

"""Tool calls of a chat template: how it writes them, learned from what it makes of one and of two, and reading them."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from cookhouse.chat.call_places import AnyCall, answer, read_in_order
from cookhouse.chat.messages import Message, ToolCall
from cookhouse.chat.template.chat_template import ChatTemplate, common_prefix, unguarded
from cookhouse.chat.template.endings import Ending
from cookhouse.chat.template.frames import AnswerStart
from cookhouse.chat.template.given import CALL_FORMS, CallForm
from cookhouse.chat.template.probes import ANSWER, ASKED, NAMES, TOOL, VALUES, probe_calls
from cookhouse.chat.tool_calls import as_call, read_call, read_json
from cookhouse.errors import InputError


class Calls(Protocol):
    """Reads calls out of a text."""

    def read(self, text: str) -> Message:
        """The message of a guarded text."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFrame:
    """Text around the name and the arguments of calls."""

    glue: str
    """Between a text and the calls after it."""
    opening: str
    """Before the first call."""
    before: str
    middle: str
    """Between name and arguments, up to the id of the call if that stands there."""
    behind_id: str | None
    """Between that id and the arguments; None: no id stands there."""
    after: str
    closing: str
    """After the last call, white space at the ends excepted."""
    marks: tuple[str, ...]
    """The mark at which calls begin."""

    def read(self, text: str) -> Message:
        starts = [at for mark in self.marks if (at := text.find(mark)) >= 0]
        if not starts:
            return answer(unguarded(text), (), ())
        texts = [text[: min(starts)]]
        calls: list[AnyCall] = []
        junk, *written = text[min(starts) :].removeprefix(self.opening).split(self.before)
        if junk:
            calls.append({"text": unguarded(junk), "error": "it does not begin as calls do"})
            texts.append("")
        for each in written:
            inside, is_closed, rest = each.partition(self.after) if self.after else (each, "closed", "")
            try:
                calls.append(self._read_one(inside, is_closed=bool(is_closed)))
            except InputError as error:
                framed = f"{self.before}{inside}{is_closed if self.after else ''}"
                calls.append({"text": unguarded(framed), "error": str(error)})
            is_framing = self.closing and rest.lstrip().startswith(self.closing)
            texts.append(rest.lstrip().removeprefix(self.closing) if is_framing else rest)
        return read_in_order([unguarded(said) for said in texts], calls, self.glue)

    def _read_one(self, written: str, *, is_closed: bool) -> ToolCall:
        if not is_closed:
            raise InputError("the call is not closed")
        name, _, arguments = written.partition(self.middle)
        if self.behind_id is None:
            return read_call(unguarded(name), unguarded(arguments))
        call_id, _, arguments = arguments.partition(self.behind_id)
        return {**read_call(unguarded(name), unguarded(arguments)), "id": unguarded(call_id).strip()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallList:
    """Calls as one JSON array behind a mark."""

    glue: str
    """Between a text and the calls after it."""
    opening: str
    """Before the array; it holds a mark."""
    mark: str

    def read(self, text: str) -> Message:
        said, is_called, written = text.partition(self.mark)
        if not is_called:
            return answer(unguarded(text), (), ())
        try:
            calls: list[AnyCall] = [_read_object(each) for each in _array(unguarded(written))]
        except InputError as error:
            calls = [{"text": unguarded(self.mark + written), "error": str(error)}]
        if not calls:
            return answer(unguarded(said).removesuffix(self.glue), (), ())
        return read_in_order([unguarded(said), *[""] * len(calls)], calls, self.glue)


def learn_calls(template: ChatTemplate, ending: Ending, start: AnswerStart) -> tuple[bool, Calls | None, str | None]:
    """Learn whether the template writes calls; how they are read, None where that cannot be learned; and the mark that
    ends an answer with calls. From here on the template is given calls in the form that it takes.
    """
    found: tuple[CallForm, Calls | None, str | None] | None = None
    is_refused = True
    for form in CALL_FORMS:
        if form.as_text and not is_refused:
            continue  # arguments as they are were taken
        template.give_calls(form)
        alone = _written(template, start, "", 1, form)
        is_refused = alone is None or NAMES[0] not in alone or VALUES[0] not in alone
        if alone is None or is_refused:
            continue
        marks = [match[0] for match in template.marks(alone[alone.rindex(VALUES[0]) :])]
        end = marks[-1] if marks and ending.follows is None else None
        calls = _learn(template, start, {*ending.ends, *([end] if end else [])}, form)
        if found is None or calls is not None:
            found = form, calls, end
        if calls is not None:
            break
    template.give_calls(CallForm() if found is None else found[0])
    return (False, None, None) if found is None else (True, found[1], found[2])


def writes_tools(template: ChatTemplate) -> bool:
    """True if the template declares tools."""
    declared: Message = {"role": "system", "content": "", "tools": [TOOL]}
    try:
        return NAMES[0] in template.render([declared, ASKED])
    except InputError:
        return False


def _learn(template: ChatTemplate, start: AnswerStart, ends: Collection[str], form: CallForm) -> Calls | None:
    one, two, said = (_written(template, start, *each, form) for each in (("", 1), ("", 2), (ANSWER, 1)))
    if one is None or two is None or one.count(NAMES[0]) != 1 or two.count(NAMES[1]) != 1:
        return None
    calls = _call_frame(template, one, two, said, ends, form) or _call_list(template, one, said)
    if calls is None:
        return None
    read = calls.read(_without_end(two, ends))
    names = [call["function"]["name"] for call in read.get("tool_calls", ())]
    return calls if names == list(NAMES) and "unparsed_tool_calls" not in read else None


def _call_frame(
    template: ChatTemplate, one: str, two: str, said: str | None, ends: Collection[str], form: CallForm
) -> CallFrame | None:
    alone, first = _arguments(one), _arguments(two)
    if alone is None or first is None:
        return None
    head, tail = one[: one.index(NAMES[0])], _without_end(one[alone[1] :], ends)
    between = two[first[1] : two.index(NAMES[1])]
    before = common_prefix(head[::-1], between[::-1])[::-1]
    marks = template.marks(before)
    if not marks:
        return None
    before = before[marks[0].start() :]
    after = common_prefix(between.removesuffix(before), tail).rstrip()
    section = head.removesuffix(before)
    opened = template.marks(section)
    opening = section[opened[0].start() :] if opened else ""
    call_id = probe_calls(1, short_ids=form.short_ids)[0]["id"]
    middle, has_id, behind_id = one[one.index(NAMES[0]) + len(NAMES[0]) : alone[0]].partition(call_id)
    if not middle or (not after and between != before):  # each call may end where the next one begins
        return None
    return CallFrame(
        glue=_glue(said, opening + before),
        opening=opening,
        before=before,
        middle=middle,
        behind_id=behind_id if has_id else None,
        after=after,
        closing=tail.removeprefix(after).strip(),
        marks=tuple(mark[0] for mark in (opened[:1] + template.marks(before)[:1])),
    )


def _call_list(template: ChatTemplate, one: str, said: str | None) -> CallList | None:
    opening = one[: one.find("[{")] if "[{" in one else ""
    marks = template.marks(opening)
    if not marks:
        return None
    opening = opening[marks[-1].start() :]
    return CallList(glue=_glue(said, opening), opening=opening, mark=marks[-1][0])


def _glue(said: str | None, opening: str) -> str:
    return said.partition(ANSWER)[2].partition(opening)[0] if said and ANSWER in said else ""


def _written(template: ChatTemplate, start: AnswerStart, text: str, num: int, form: CallForm) -> str | None:
    """Text after the prompt of an answer with calls; None if the template refuses it."""
    calls = probe_calls(num, short_ids=form.short_ids)
    return start.answer(template, [ASKED], {"role": "assistant", "content": text, "tool_calls": calls})


def _arguments(text: str) -> tuple[int, int] | None:
    """Place of the JSON of the first call's arguments."""
    found = re.search(r"\{\s*\"k\"\s*:\s*\"" + VALUES[0] + r"\"\s*\}", text)
    return None if found is None else found.span()


def _without_end(text: str, ends: Collection[str]) -> str:
    last = max((text.rfind(end) for end in ends), default=-1)
    return text if last < 0 else text[:last]


def _array(written: str) -> Sequence[object]:
    found = read_json(written.strip())
    if not isinstance(found, list):
        raise InputError("not an array of calls")
    return found


def _read_object(call: object) -> ToolCall:
    if not isinstance(call, dict):
        raise InputError("not an object with a name")
    made = as_call(call.get("name"), call.get("arguments", call.get("parameters")))
    return {**made, "id": call["id"]} if isinstance(call.get("id"), str) else made

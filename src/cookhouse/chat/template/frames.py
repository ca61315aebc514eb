"""What a chat template writes around the parts of an answer, learned from what it makes of a few conversations. All
texts here are guarded, as `ChatTemplate` has them.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from cookhouse.chat.messages import Message, ToolCall, UnparsedToolCall
from cookhouse.chat.template.chat_template import ChatTemplate, common_prefix, unguarded
from cookhouse.chat.tool_calls import read_call
from cookhouse.errors import InputError

# Words that no template writes by itself.
_USER, _LATER_USER, _ANSWER, _THOUGHT = "askedaskedasked", "askedagainagain", "answeranswer", "thoughtthought"
_NAMES, _VALUES = ("firstcallname", "secondcallname"), ("firstvaluetext", "secondvaluetext")
_ASKED: Message = {"role": "user", "content": _USER}
_ASKED_AGAIN: Message = {"role": "user", "content": _LATER_USER}
_ANSWERED: Message = {"role": "assistant", "content": _ANSWER}
_TOOL = {
    "type": "function",
    "function": {
        "name": _NAMES[0],
        "description": "",
        "parameters": {"type": "object", "properties": {"k": {"type": "string"}}},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an answer ends."""

    last: str | None
    """The mark at the end of the last answer."""
    earlier: str | None
    """The mark at the end of an answer that others follow, where it is another."""
    follows: str | None
    """Where the template ends the last answer with nothing: the mark of the next turn, at which sampling stops."""

    @property
    def ends(self) -> frozenset[str]:
        return frozenset(mark for mark in (self.last, self.earlier) if mark is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingFrame:
    """What stands around reasoning."""

    before: str
    """Opens it; where the prompt ends with that already, its mark there."""
    is_in_prompt: bool
    after: str
    glues: tuple[str, str, str]
    """White space between `before` and reasoning, reasoning and `after`, and `after` and the text."""

    def read(self, text: str, is_special: re.Pattern[str]) -> tuple[str, str, bool]:
        """Reasoning, what comes after it, and whether reasoning was opened and never closed."""
        thinking, is_closed, rest = text.partition(self.after)
        is_opened = bool(self.before) and thinking.lstrip().startswith(self.before)
        if not is_closed and not is_opened:
            return "", text, False
        if is_opened:
            thinking = thinking.lstrip().removeprefix(self.before)
        opened, closed, glue = self.glues
        thinking = thinking.removeprefix(opened)
        if is_closed:
            return thinking.removesuffix(closed), rest.removeprefix(glue), False
        cut = is_special.search(thinking)  # the first of the marks that close it
        return (thinking if cut is None else thinking[: cut.start()]), "", True


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFrame:
    """What stands around the name and the arguments of calls."""

    glue: str
    """Between a text and the calls after it."""
    opening: str
    """Before the first call."""
    before: str
    middle: str
    after: str
    closing: str
    """After the last call, white space at the ends excepted."""
    marks: tuple[str, ...]
    """What tells that calls begin."""

    def read(self, text: str) -> tuple[str, list[ToolCall], list[UnparsedToolCall]]:
        """The text around the calls, the calls, and what of them cannot be read."""
        starts = [at for mark in self.marks if (at := text.find(mark)) >= 0]
        if not starts:
            return text, [], []
        texts = [text[: min(starts)].removesuffix(self.glue)]
        calls: list[ToolCall] = []
        unparsed: list[UnparsedToolCall] = []
        junk, *written = text[min(starts) :].removeprefix(self.opening).split(self.before)
        if junk:
            unparsed.append({"text": unguarded(junk), "error": "it does not begin as calls do"})
        for each in written:
            inside, is_closed, rest = each.partition(self.after)
            try:
                calls.append(self._read_one(inside, is_closed=bool(is_closed)))
            except InputError as error:
                framed = f"{self.before}{inside}{is_closed}"
                unparsed.append({"text": unguarded(framed), "error": str(error)})
            texts.append(rest.strip().removeprefix(self.closing).strip())
        return "\n".join(said for said in texts if said), calls, unparsed

    def _read_one(self, written: str, *, is_closed: bool) -> ToolCall:
        if not is_closed:
            raise InputError("the call is not closed")
        name, _, arguments = unguarded(written).partition(unguarded(self.middle))
        return read_call(name, arguments)


def learn_header(template: ChatTemplate) -> str:
    """What the template writes before an answer and leaves out of the prompt for one, if it knows no such prompts."""
    prompt, whole = template.render([_ASKED], prompt=True), template.render([_ASKED, _ANSWERED])
    if not whole.startswith(prompt):
        return ""
    if (spans := template.generated([_ASKED, _ANSWERED])) is not None:
        return whole[len(prompt) : spans[0][0]] if spans else ""
    is_written = prompt != template.render([_ASKED])
    return "" if is_written else whole[len(prompt) : whole.index(_ANSWER)]


def learn_empty(template: ChatTemplate) -> str:
    """What the template has an answer without reasoning begin with."""
    prompt, whole = template.render([_ASKED], prompt=True), template.render([_ASKED, _ANSWERED])
    return whole[len(prompt) : whole.index(_ANSWER)] if whole.startswith(prompt) else ""


def learn_result_tail(template: ChatTemplate) -> str:
    """What the template writes after each result of a tool, whatever comes then."""
    calls = _calls(2)
    results = [f"result of {call['function']['name']}" for call in calls]
    talk: list[Message] = [_ASKED, {"role": "assistant", "content": "", "tool_calls": calls}]
    for call, result in zip(calls, results, strict=True):
        talk.append({"role": "tool", "content": result, "tool_call_id": call["id"]})
    talk.append(_ANSWERED)
    try:
        text = template.render(talk)
    except InputError:
        return ""
    if any(text.count(word) != 1 for word in (*results, _ANSWER)):
        return ""
    first, second = (text.partition(result)[2] for result in results)
    tail = common_prefix(first, second)
    marks = template.marks(tail)
    return tail[: marks[-1].end()] if marks else ""


def learn_user_header(template: ChatTemplate) -> str:
    """What the template writes before what a later user says, behind its last mark before that."""
    text = template.render([_ASKED, _ANSWERED, _ASKED_AGAIN])
    before = text[: text.index(_LATER_USER)]
    return before[template.marks(before)[-1].end() :] if template.marks(before) else before[-1:]


def learn_begin(template: ChatTemplate, bos: str | None) -> str:
    """The mark that every conversation begins with and that no turn has."""
    text = template.render([_ASKED, _ANSWERED, _ASKED_AGAIN])
    return bos if bos and text.startswith(bos) and text.count(bos) == 1 else ""


def learn_ending(template: ChatTemplate) -> Ending:
    """Raises `InputError` where nothing that can be told from text ends an answer."""
    whole = template.render([_ASKED, _ANSWERED])
    longer = template.render([_ASKED, _ANSWERED, _ASKED_AGAIN])
    for text, word in ((whole, _ANSWER), (longer, _ANSWER), (longer, _LATER_USER)):
        if text.count(word) != 1:
            raise InputError(f"{template.name} changes the text of messages; name a renderer")
    last = _first_special(template, whole[whole.index(_ANSWER) + len(_ANSWER) :])
    earlier = _first_special(template, longer[longer.index(_ANSWER) + len(_ANSWER) : longer.index(_LATER_USER)])
    if last is None:
        if earlier is None:
            raise InputError(f"{template.name} ends an answer with no token of its own; name a renderer")
        return Ending(last=None, earlier=None, follows=earlier)
    # What follows an earlier answer may be the mark of the next turn, unless it ends what users say as well.
    asked = _first_special(template, whole[whole.index(_USER) + len(_USER) : whole.index(_ANSWER)])
    return Ending(last=last, earlier=earlier if earlier == asked else None, follows=None)


def learn_thinking(template: ChatTemplate) -> ThinkingFrame | None:
    """None: the template writes no reasoning."""
    thought: Message = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": _THOUGHT}, {"type": "text", "text": _ANSWER}],
    }
    prompt, text = template.render([_ASKED], prompt=True), template.render([_ASKED, thought])
    if not text.startswith(prompt) or text.count(_THOUGHT) != 1 or text.count(_ANSWER) != 1:
        return None
    before, _, rest = text[len(prompt) :].partition(_THOUGHT)
    after = rest[: rest.index(_ANSWER)]
    if not after.strip():
        return None
    is_in_prompt = not before.strip()
    marks = template.marks(prompt)
    mark = marks[-1][0] if is_in_prompt and marks and not prompt[marks[-1].end() :].strip() else ""
    opened = before[len(before.rstrip()) :]
    closed, glue = after[: len(after) - len(after.lstrip())], after[len(after.rstrip()) :]
    return ThinkingFrame(
        before=before.strip() or mark,
        is_in_prompt=is_in_prompt,
        after=after.strip(),
        glues=(opened, closed, glue),
    )


def learn_calls(template: ChatTemplate, ending: Ending, empty: str) -> tuple[bool, CallFrame | None, str | None]:
    """Whether the template writes calls; how they are read, None where that cannot be learned; and the mark that ends
    an answer with calls.
    """
    alone = _render_calls(template, empty, "", 1)
    if alone is None:
        template.wants_arguments_as_text()
        alone = _render_calls(template, empty, "", 1)
    if alone is None or _NAMES[0] not in alone or _VALUES[0] not in alone:
        return False, None, None
    specials = [match[0] for match in template.marks(alone[alone.rindex(_VALUES[0]) :])]
    end = specials[-1] if specials and ending.follows is None else None
    return True, _call_frame(template, empty, {*ending.ends, *([end] if end else [])}), end


def writes_tools(template: ChatTemplate) -> bool:
    """Whether the template declares tools."""
    declared: Message = {"role": "system", "content": "", "tools": [_TOOL]}
    try:
        return _NAMES[0] in template.render([declared, _ASKED])
    except InputError:
        return False


def _call_frame(template: ChatTemplate, empty: str, ends: Collection[str]) -> CallFrame | None:
    one, two, said = (_render_calls(template, empty, *each) for each in (("", 1), ("", 2), (_ANSWER, 1)))
    if one is None or two is None or one.count(_NAMES[0]) != 1 or two.count(_NAMES[1]) != 1:
        return None
    alone, first = _arguments(one), _arguments(two)
    if alone is None or first is None:
        return None
    head, tail = one[: one.index(_NAMES[0])], _without_end(one[alone[1] :], ends)
    between = two[first[1] : two.index(_NAMES[1])]
    before = common_prefix(head[::-1], between[::-1])[::-1]
    marks = template.marks(before)
    if not marks:
        return None
    before = before[marks[0].start() :]
    after = common_prefix(between.removesuffix(before), tail).rstrip()
    section = head.removesuffix(before)
    opened = template.marks(section)
    opening = section[opened[0].start() :] if opened else ""
    frame = CallFrame(
        glue=said.partition(_ANSWER)[2].partition(opening + before)[0] if said and _ANSWER in said else "",
        opening=opening,
        before=before,
        middle=one[one.index(_NAMES[0]) + len(_NAMES[0]) : alone[0]],
        after=after,
        closing=tail.removeprefix(after).strip(),
        marks=tuple(mark[0] for mark in (opened[:1] + template.marks(before)[:1])),
    )
    if not frame.middle or not after:
        return None
    _, read, unread = frame.read(_without_end(two, ends))
    return frame if [call["function"]["name"] for call in read] == list(_NAMES) and not unread else None


def _render_calls(template: ChatTemplate, empty: str, text: str, num: int) -> str | None:
    """What follows the prompt of an answer with calls, and `empty`; None if the template refuses it."""
    asking: Message = {"role": "assistant", "content": text, "tool_calls": _calls(num)}
    try:
        prompt, whole = template.render([_ASKED], prompt=True), template.render([_ASKED, asking])
    except InputError:
        return None
    return whole[len(prompt) :].removeprefix(empty) if whole.startswith(prompt) else None


def _calls(num: int) -> list[ToolCall]:
    return [
        {"type": "function", "id": f"functions.{name}:{index}", "function": {"name": name, "arguments": {"k": value}}}
        for index, (name, value) in enumerate(zip(_NAMES[:num], _VALUES[:num], strict=True))
    ]


def _arguments(text: str) -> tuple[int, int] | None:
    """Where the JSON of the first call's arguments stands."""
    found = re.search(r"\{\s*\"k\"\s*:\s*\"" + _VALUES[0] + r"\"\s*\}", text)
    return None if found is None else found.span()


def _without_end(text: str, ends: Collection[str]) -> str:
    last = max((text.rfind(end) for end in ends), default=-1)
    return text if last < 0 else text[:last]


def _first_special(template: ChatTemplate, text: str) -> str | None:
    return next((match[0] for match in template.marks(text)), None)

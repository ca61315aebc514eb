"""Text that a chat template writes around the parts of an answer, learned from what it makes of a few conversations;
and whether it leaves what it wrote of a turn as it is in the turns after it. All texts here are guarded, as
`ChatTemplate` has them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cookhouse.chat.messages import Message, ToolCall
from cookhouse.chat.template.chat_template import ChatTemplate, common_prefix
from cookhouse.chat.template.probes import (
    ANSWER,
    ANSWERED,
    ASKED,
    ASKED_AGAIN,
    LATER_USER,
    THOUGHT,
    THOUGHT_AND_ANSWERED,
    TOOL,
    probe_calls,
)
from cookhouse.errors import InputError

_OPENED = re.compile(r"<(\w+)>\s*$")
_CALL: ToolCall = {"type": "function", "id": "functions.f:0", "function": {"name": "f", "arguments": {}}}
_USER: Message = {"role": "user", "content": "u"}
_PLAIN: Message = {"role": "assistant", "content": "a"}
_SYSTEM: Message = {"role": "system", "content": "s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingFrame:
    """Text around reasoning."""

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

    def between(self, thinking: str) -> str:
        """Reasoning and what follows it up to the text, behind a prompt that opens it."""
        opened, closed, glue = self.glues
        return f"{opened}{thinking.strip()}{closed}{self.after}{glue}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStart:
    """Beginning of an answer: what the template writes of it goes on behind the prompt, but for these."""

    header: str
    """What it writes before an answer and leaves out of the prompt, if it knows no such prompts."""
    empty: str
    """What it has an answer without reasoning begin with."""
    opened: str
    """The think mark that ends the prompt, and that it leaves out of an answer or closes at once."""

    def answer(self, template: ChatTemplate, history: Sequence[Message], answer: Message) -> str | None:
        """Part of an answer behind all that; None where it is refused, or goes on from another prompt."""
        try:
            prompt, whole = template.render(history, prompt=True), template.render([*history, answer])
        except InputError:
            return None
        return self.behind(prompt, whole)

    def behind(self, prompt: str, whole: str) -> str | None:
        """Part of an answer in the text of a conversation; None where that does not go on from the prompt."""
        prompt = prompt.removesuffix(self.opened)
        return whole[len(prompt) :].removeprefix(self.header + self.empty) if whole.startswith(prompt) else None


def learn_start(template: ChatTemplate) -> AnswerStart:
    """Learn where answers begin."""
    prompt, whole = template.render([ASKED], prompt=True), template.render([ASKED, ANSWERED])
    opened = _learn_opened(prompt, whole)
    header = "" if opened else _learn_header(template, prompt, whole)
    bare = prompt.removesuffix(opened)
    empty = whole[len(bare) : whole.index(ANSWER)].removeprefix(header) if whole.startswith(bare) else ""
    return AnswerStart(header=header, empty=empty, opened=opened)


def _learn_header(template: ChatTemplate, prompt: str, whole: str) -> str:
    if not whole.startswith(prompt):
        return ""
    if (spans := template.generated([ASKED, ANSWERED])) is not None:
        return whole[len(prompt) : spans[0][0]] if spans else ""
    if prompt != template.render([ASKED]):
        return ""
    header = whole[len(prompt) : whole.index(ANSWER)]
    return header if header.strip() else ""  # a space goes with the first word, and calls have none


def _learn_opened(prompt: str, whole: str) -> str:
    found = _OPENED.search(prompt)
    if found is None or whole.startswith(prompt) or not whole.startswith(prompt[: found.start()]):
        return ""
    return found[0]


def learn_result_tail(template: ChatTemplate) -> str:
    """Text that the template writes after each result of a tool, whatever comes then."""
    calls = probe_calls(2, short_ids=False)
    results = [f"result of {call['function']['name']}" for call in calls]
    talk: list[Message] = [ASKED, {"role": "assistant", "content": "", "tool_calls": calls}]
    for call, result in zip(calls, results, strict=True):
        talk.append({"role": "tool", "content": result, "tool_call_id": call["id"]})
    talk.append(ANSWERED)
    try:
        text = template.render(talk)
    except InputError:
        return ""
    if any(text.count(word) != 1 for word in (*results, ANSWER)):
        return ""
    first, second = (text.partition(result)[2] for result in results)
    tail = common_prefix(first, second)
    marks = template.marks(tail)
    return tail[: marks[-1].end()] if marks else ""


def learn_user_header(template: ChatTemplate) -> str:
    """Text that the template writes before a later user's message, behind its last mark before that."""
    text = template.render([ASKED, ANSWERED, ASKED_AGAIN])
    before = text[: text.index(LATER_USER)]
    return before[template.marks(before)[-1].end() :] if template.marks(before) else before[-1:]


def learn_begin(template: ChatTemplate, bos: str | None) -> str:
    """The mark that every conversation begins with and that no turn has."""
    text = template.render([ASKED, ANSWERED, ASKED_AGAIN])
    return bos if bos and text.startswith(bos) and text.count(bos) == 1 else ""


def learn_thinking(template: ChatTemplate, start: AnswerStart) -> ThinkingFrame | None:
    """None: the template writes no reasoning."""
    prompt, text = template.render([ASKED], prompt=True), template.render([ASKED, THOUGHT_AND_ANSWERED])
    if not text.startswith(prompt) or text.count(THOUGHT) != 1 or text.count(ANSWER) != 1:
        return _left_out(template, start)
    before, _, rest = text[len(prompt) :].partition(THOUGHT)
    after = rest[: rest.index(ANSWER)]
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


def _left_out(template: ChatTemplate, start: AnswerStart) -> ThinkingFrame | None:
    """Reasoning that the prompt opens and that the template leaves out of answers, as models write it behind that."""
    opened = _OPENED.search(start.opened)
    if opened is None or f"</{opened[1]}>" not in template.source:
        return None
    closed, glue = ("\n", "\n\n") if start.opened.endswith("\n") else ("", "")
    before, after = f"<{opened[1]}>", f"</{opened[1]}>"
    return ThinkingFrame(before=before, is_in_prompt=True, after=after, glues=("", closed, glue))


def extends(
    template: ChatTemplate, start: AnswerStart, *, thinks: bool, writes_calls: bool, declares_tools: bool
) -> bool:
    """True if no turn changes what was written before it, as far as a few conversations show."""
    thought: Any = [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "a"}]
    answer: Message = {"role": "assistant", "content": thought if thinks else "a"}
    talks: list[list[Message]] = [[_USER, answer, _USER, answer], [_USER, _PLAIN, _USER, _PLAIN]]
    if writes_calls:
        asking: Message = {**answer, "tool_calls": [_CALL]}
        result: Message = {"role": "tool", "content": "r", "tool_call_id": "functions.f:0", "name": "f"}
        talks.append([_USER, asking, result, answer, _USER, answer])
    if not all(_is_extended(template, start, talk) for talk in talks):
        return False
    moved: list[list[Message]] = [[_SYSTEM, _USER, answer, _USER, answer]]
    if declares_tools:
        moved.append([{"role": "system", "content": "", "tools": [TOOL]}, *talks[1]])
    return all(_is_extended(template, start, talk) for talk in moved if _is_written(template, talk))


def _is_extended(template: ChatTemplate, start: AnswerStart, talk: Sequence[Message]) -> bool:
    try:
        text = template.render(talk)
        answers = [index for index, message in enumerate(talk) if message["role"] == "assistant"]
        return all(text.startswith(template.render(talk[:index], prompt=True) + start.header) for index in answers)
    except InputError:
        return False


def _is_written(template: ChatTemplate, talk: Sequence[Message]) -> bool:
    """True if the template has a form for a conversation, and for its beginning."""
    try:
        return bool(template.render(talk)) and bool(template.render(talk[:2], prompt=True))
    except InputError:
        return False

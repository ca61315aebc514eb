"""Spans of each message in what a chat template wrote: its header, and what its role says."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cookhouse.chat.messages import Message, split_thinking
from cookhouse.chat.template.chat_template import ChatTemplate, Place
from cookhouse.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFormat:
    """Format in which a template divides a conversation."""

    begin: str
    """The mark before the first turn."""
    ends: frozenset[str]
    """Marks that end turns."""
    user_header: str
    """What follows the last mark of a user's header; other roles may have their own name in it."""
    result_tail: str
    """What follows each result of a tool, whatever comes then."""

    def header_texts(self, role: str) -> tuple[str, ...]:
        """Texts that may follow the last mark of the header of a role."""
        return tuple(filter(None, (self.user_header, self.user_header.replace("user", role))))


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSpan:
    """Of one message: the header is `text[start:said]`, the output `text[said:end]`."""

    start: int
    said: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanFinder:
    """Divides one text that a template wrote."""

    template: ChatTemplate
    turns: TurnFormat
    text: str

    def find(
        self, messages: Sequence[Message], places: Sequence[Place | None], openings: Sequence[int | None]
    ) -> list[MessageSpan]:
        """The spans of all messages, which follow each other without a gap; what stands behind the end mark of the
        last is in none. A message that the template moves behind a later one has an empty span: its text is in that of
        the message that it is moved into.

        `openings` has for each answer where the prompt for it ends, if the text begins with that prompt. Raises
        `InputError` where a message cannot be found.
        """
        starts = [len(self.text) if place is None else place[0] for place in places]
        kept = [i for i, place in enumerate(places) if place is None or place[0] <= min(starts[i:])]
        found = dict(zip(kept, self._in_order(messages, places, openings, kept), strict=True))
        spans: list[MessageSpan] = []
        for index in range(len(messages)):
            if index not in found:
                end = spans[-1].end if spans else found[kept[0]].start
                found[index] = MessageSpan(start=end, said=end, end=end)
            spans.append(found[index])
        return spans

    def _in_order(
        self,
        messages: Sequence[Message],
        places: Sequence[Place | None],
        openings: Sequence[int | None],
        kept: Sequence[int],
    ) -> list[MessageSpan]:
        """The spans of those messages that are kept, which stand one after the other."""
        spans: list[MessageSpan] = []
        start = len(self.turns.begin) if self.text.startswith(self.turns.begin) else 0
        before = start
        for number, index in enumerate(kept):
            message, place, opening = messages[index], places[index], openings[index]
            found = self._found(message, place, start) if opening is None else opening
            if spans:
                start = max(self._boundary(messages[kept[number - 1]], before, found), spans[-1].said)
                spans[-1] = replace(spans[-1], end=start)
            said = self._said(message, index, start, found) if opening is None else opening
            spans.append(MessageSpan(start=start, said=said, end=said))
            before = said if place is None else max(said, self._stopped(message, place))
        ends = [before + mark.end() for mark in self._marks(before, None) if mark[0] in self.turns.ends]
        return [*spans[:-1], replace(spans[-1], end=ends[-1] if ends else len(self.text))]

    def _marks(self, start: int, end: int | None) -> list[re.Match[str]]:
        return self.template.marks(self.text[start:end])

    def _found(self, message: Message, place: Place | None, start: int) -> int | None:
        """Beginning of a message's content, with the white space that it begins with if that was written."""
        if place is None:
            return None
        content = split_thinking(message)[1]
        space = content[: len(content) - len(content.lstrip())] if content.strip() else ""
        return place[0] - len(space) if self.text.endswith(space, start, place[0]) else place[0]

    def _stopped(self, message: Message, place: Place) -> int:
        """End of a message's content, as `_found`."""
        content = split_thinking(message)[1]
        space = content[len(content.rstrip()) :] if content.strip() else ""
        return place[1] + len(space) if self.text.startswith(space, place[1]) else place[1]

    def _boundary(self, message: Message, before: int, found: int | None) -> int:
        """End of a message's turn, between what it says and what the next one does."""
        tail = self.turns.result_tail if message["role"] == "tool" else ""
        if not self.text.startswith(tail, before):
            tail = ""
        marks = self._marks(before + len(tail), found)
        ends = [before + len(tail) + mark.end() for mark in marks if mark[0] in self.turns.ends]
        if ends:
            return ends[0] if found is None else ends[-1]
        return before + (marks[0].start() if marks and not tail else len(tail))

    def _said(self, message: Message, index: int, start: int, found: int | None) -> int:
        """End of a message's header."""
        role = message["role"]
        if found is None and role != "assistant" and split_thinking(message)[1].strip():
            raise InputError(
                f"message {index + 1} ({role}): {self.template.name} changes its content, so its trained tokens "
                "cannot be found; change the message, or name a renderer"
            )
        marks = self._marks(start, found)
        if found is None:  # it says nothing, and its header is what such headers begin with
            marks = marks[:1]
        for mark in marks:
            for header in self.turns.header_texts(role):
                if self.text.startswith(header, start + mark.end()):
                    return start + mark.end() + len(header)
        if role == "tool" and marks and self.turns.user_header:  # it goes on in the turn of the result before
            return start + marks[0].start()
        return start + marks[-1].end() if marks else start if found is None else found

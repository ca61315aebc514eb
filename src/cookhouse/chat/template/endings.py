"""Endings of an answer in what a chat template writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from cookhouse.chat.template.chat_template import ChatTemplate
from cookhouse.chat.template.probes import ANSWER, ANSWERED, ASKED, ASKED_AGAIN, LATER_USER, USER
from cookhouse.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """End of an answer."""

    last: str | None
    """The mark at the end of the last answer: of several, the one that ends the turn."""
    earlier: str | None
    """The mark at the end of an answer that others follow, where it is another."""
    follows: str | None
    """Where the template ends the last answer with nothing: the mark of the next turn, at which sampling stops."""
    closing: str = ""
    """What stands between an answer and its last mark, where there are several."""
    closing_marks: tuple[str, ...] = ()

    @property
    def ends(self) -> frozenset[str]:
        return frozenset(mark for mark in (self.last, self.earlier) if mark is not None)

    def without_closing(self, text: str) -> str:
        """A text without the marks that close it; one that is on its way may have only some of them."""
        if not self.closing_marks:
            return text
        glue = self.closing[: len(self.closing) - len(self.closing.lstrip())]
        text, is_closed, rest = text.partition(self.closing_marks[0])
        if not is_closed:
            return text
        for mark in self.closing_marks:
            rest = rest.replace(mark, "")
        return text.removesuffix(glue) + (rest if rest.strip() else "")


def learn_ending(template: ChatTemplate, eos: str | None) -> Ending:
    """Raises `InputError` where nothing that differs from text ends an answer."""
    whole = template.render([ASKED, ANSWERED])
    longer = template.render([ASKED, ANSWERED, ASKED_AGAIN])
    for text, word in ((whole, ANSWER), (longer, ANSWER), (longer, LATER_USER)):
        if text.count(word) != 1:
            raise InputError(f"{template.name} changes the text of messages; name a renderer")
    tail = whole[whole.index(ANSWER) + len(ANSWER) :]
    last = _marks(template, tail)
    between = _marks(template, longer[longer.index(ANSWER) + len(ANSWER) : longer.index(LATER_USER)])
    if not last:
        if not between:
            raise InputError(f"{template.name} ends an answer with no token of its own; name a renderer")
        return Ending(last=None, earlier=None, follows=between[0])
    same = [mark for mark, _ in takewhile(lambda pair: pair[0] == pair[1], zip(last, between, strict=False))]
    # A mark that ends the whole conversation ends an answer only where it ends a sequence.
    num = len(same) if same and eos not in last[len(same) :] else len(last)
    end = last[num - 1]
    if same:
        earlier: str | None = same[-1]
    else:  # what follows an earlier answer may be the mark of the next turn, unless it ends what users say as well
        asked = _marks(template, whole[whole.index(USER) + len(USER) : whole.index(ANSWER)])
        earlier = between[0] if between and between[:1] == asked[:1] else None
    closing = tail[: template.marks(tail)[num - 1].start()]
    return Ending(last=end, earlier=earlier, follows=None, closing=closing, closing_marks=tuple(last[: num - 1]))


def _marks(template: ChatTemplate, text: str) -> Sequence[str]:
    return [match[0] for match in template.marks(text)]

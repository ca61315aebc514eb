"""Classes: the closed set of answers of a data set whose last messages are labels."""

from collections.abc import Sequence

from cookhouse.chat import Renderer, text_of
from cookhouse.data import Conversation
from cookhouse.errors import InputError
from cookhouse.naming import names_in

AUTO = "auto"
_MAX_FOUND = 50
"""Labels that `auto` takes for classes."""


def labels_of(text: str, conversations: Sequence[Conversation], renderer: Renderer) -> list[str]:
    """The classes of a text that has them separated by commas, or, for `auto`, those that the conversations end in, as
    the renderer reads answers.

    Raises:
        InputError: a conversation ends in none of them, or fewer than two are named; or what `auto` finds are no
            classes.
    """
    found = {conversation.source: _label(conversation, renderer) for conversation in conversations}
    if text.strip() == AUTO:
        labels = sorted(set(found.values()))
        if not 2 <= len(labels) <= min(_MAX_FOUND, max(2, len(found) // 2)):
            raise InputError(
                f"labels=auto found {len(labels):,} different answers in {len(found):,} conversations, which are no "
                "classes; name them, as in labels=yes,no"
            )
        return labels
    labels = list(dict.fromkeys(names_in(text)))
    if len(labels) < 2:
        raise InputError(f"labels is {text!r}; name at least two, as in labels=yes,no, or set labels=auto")
    if stray := next((source for source, label in found.items() if label not in labels), None):
        raise InputError(
            f"{stray}: the answer {found[stray][:80]!r} is none of labels={','.join(labels)}; add it to them, or mend "
            "the row"
        )
    return labels


def _label(conversation: Conversation, renderer: Renderer) -> str:
    try:
        return text_of(renderer.read_back(conversation.messages)).strip()
    except InputError as error:
        raise InputError(f"{conversation.source}: {error}") from error

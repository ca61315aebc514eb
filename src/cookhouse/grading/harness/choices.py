r"""A choice of a question with several, with its text: `C) 42`, `\textbf{(C)}\ 42`."""

import re

_CHOICE = re.compile(
    r"(?:option |choice )?(?:\((?P<round>[A-Za-z])\)|(?P<bare>[A-Za-z])(?:\)|[.:](?= |$)|$))[.:]?(?: |(?=[^ ])|$)"
    r"(?P<text>.*)",
    re.IGNORECASE,
)
# What goes on behind a letter that is no choice: an operator, another choice, a letter.
_MORE = re.compile(
    r"[,;+*/^=<>&|!)\]}_']|- |\\(?:cup|cap|times|cdot|pm|le|ge|ne|in|approx)(?![a-z])|(?:and|or|to)\b"
    r"|[A-Za-z]$|\(?[A-J]\)|.*(?:\bor\b|\band\b|[,;/]) ?\(?[A-J][).:]"
)


def split_choice(text: str) -> tuple[str, str]:
    """The letter, A to J, and the text of a choice, both "" for anything else."""
    opening = re.match(r"\\text ?\{([^{}]*)\} ?", text)
    if opening:
        text = f"{opening[1].strip()} {text[opening.end() :]}".strip()
    match = _CHOICE.fullmatch(text)
    if match is None or _MORE.match(match["text"]) or (match["round"] or match["bare"]).upper() not in "ABCDEFGHIJ":
        return "", ""
    return match["round"] or match["bare"], match["text"]

"""Text that others wrote, such as a data set, a model or a service, made safe to print on a terminal."""

import unicodedata


def printable(text: str, *, keep: str = "") -> str:
    r"""Text in which what moves the cursor, rings the bell or turns the direction of writing is spelled out as `\x1b`.

    `keep` are characters to leave as they are, such as the line break.
    """
    return "".join(
        c if c.isprintable() or c in keep or unicodedata.category(c) == "Zs" else repr(c)[1:-1] for c in text
    )

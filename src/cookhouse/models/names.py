"""Names of base models, as services publish them and as a server is given them.

Qwen/Qwen3-8B                 a hub id; a folder and an embedded name are used in the same way
Qwen/Qwen3-8B:peft:262144     the same weights: the suffix is the context that the hosted service rents out with them
Qwen/Qwen3-8B=./folder        what a server is given: to offer under this name what is in that folder
"""

import re
from collections.abc import Sequence
from pathlib import Path

from cookhouse.errors import InputError

_SUFFIX = re.compile(r":peft:\d+")
_PUBLISHED = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?(:[\w.:-]+)?")


def plain_name(name: str) -> str:
    """A name without its context suffix. It bounds nothing here: a model has the whole context of its config.json."""
    match = _SUFFIX.search(name)
    return name[: match.start()] if match and match.end() == len(name) else name


def published_name(text: str) -> str | None:
    """The plain name, if a text has the form of one that a hub or a service has models by; else None."""
    return plain_name(text) if _PUBLISHED.fullmatch(text) else None


def parse_served(texts: Sequence[str]) -> dict[str, str]:
    """Sources of the models to be served, by the name to serve them under, from texts `SOURCE` or `NAME=SOURCE`.

    A text that is a folder is one, whatever it holds.

    Raises:
        InputError: a name that nobody could ask for, an empty source, or two sources under one name.
    """
    sources: dict[str, str] = {}
    for text in texts:
        name, equals, source = text.partition("=")
        if not equals or Path(text).is_dir():
            name = source = plain_name(text)
        elif published_name(name) is None or not source:
            raise InputError(f"{text!r} is no model to serve; give a hub id, a folder, or NAME=FOLDER")
        if sources.setdefault(name, source) != source:
            raise InputError(
                f"{name!r} is to be both {sources[name]!r} and {source!r}; serve one of them under another name"
            )
    return sources

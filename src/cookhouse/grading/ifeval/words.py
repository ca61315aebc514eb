"""Words as the Penn Treebank parts them: marks stand alone, and so does what follows the apostrophe of "it's"."""

import re

# A comma or a colon before a digit, and a hyphen, stand within a word.
_WORDS = re.compile(r"(?:[^\s;@#$%&?!()\[\]{}<>\"“”‘’«»—–…,:]|[,:](?=\d))+")
_DASHES = re.compile(r"--|\.\.+")
_PARTED = re.compile(r"(?i)(?<=[^'])(?='(?:[smd]|ll|re|ve)$)|(?<=.)(?=n't$)")
_JOINED = re.compile(r"(?i)(?:(can)(not)|(gim|lem)(me)|(gon)(na)|(got)(ta)|(wan)(na)|(d)('ye)|('t)(is|was))")


def split_words(text: str) -> list[str]:
    """The words of a text, in order, without the marks that stand alone."""
    return [part for found in _WORDS.findall(text) for word in _DASHES.split(found) for part in _parts(word) if part]


def _parts(word: str) -> list[str]:
    word = word.strip("'").rstrip(".")
    joined = _JOINED.fullmatch(word)
    return [part for part in joined.groups() if part] if joined else _PARTED.split(word)

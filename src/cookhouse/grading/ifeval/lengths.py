"""How long an answer is, in words, sentences and paragraphs."""

import re

from cookhouse.grading.ifeval.relations import holds
from cookhouse.grading.ifeval.sentences import split_sentences

_WORD = re.compile(r"\w+")
_DIVIDER = "***"
_AFTER_FIRST_WORD = re.compile(r"[.,?!'\"]")


def has_words(answer: str, num_words: int, relation: str) -> bool:
    """Counts runs of letters, digits and underscores: what an apostrophe or a hyphen parts is two."""
    return holds(sum(1 for _ in _WORD.finditer(answer)), relation, num_words)


def has_sentences(answer: str, num_sentences: int, relation: str) -> bool:
    return holds(len(split_sentences(answer)), relation, num_sentences)


def has_paragraphs(answer: str, num_paragraphs: int) -> bool:
    """Exactly so many between lines of ***; none within may be empty."""
    first, *others = (bool(paragraph.strip()) for paragraph in answer.split(_DIVIDER))
    if not others:
        return int(first) == num_paragraphs
    *inner, last = others
    return all(inner) and first + len(inner) + last == num_paragraphs


def has_first_word(answer: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Exactly so many between empty lines, of which the nth begins with a word."""
    paragraphs = answer.split("\n\n")
    num_written = sum(1 for paragraph in paragraphs if paragraph.strip())
    if num_written != num_paragraphs or nth_paragraph > num_written:
        return False
    words = paragraphs[nth_paragraph - 1].split(maxsplit=1)
    if not words:
        return False
    word = words[0].lstrip("'").lstrip('"')
    return _AFTER_FIRST_WORD.split(word, maxsplit=1)[0].lower() == first_word.lower()

"""Capitals and small letters."""

from cookhouse.grading.ifeval.language import is_in_language
from cookhouse.grading.ifeval.relations import holds
from cookhouse.grading.ifeval.words import split_words


def has_capital_words(answer: str, capital_frequency: int, capital_relation: str) -> bool:
    """Counts words without a small letter; "I" is one, also that of "I'm"."""
    return holds(sum(word.isupper() for word in split_words(answer)), capital_relation, capital_frequency)


def is_english_capital(answer: str) -> bool:
    return answer.isupper() and is_in_language(answer, "en")


def is_english_lowercase(answer: str) -> bool:
    return answer.islower() and is_in_language(answer, "en")

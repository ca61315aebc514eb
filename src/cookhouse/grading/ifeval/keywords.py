"""Words and letters that an answer has or lacks. Capitals do not matter."""

import re
from collections.abc import Sequence

from cookhouse.grading.ifeval.relations import holds


def has_keywords(answer: str, keywords: Sequence[str]) -> bool:
    """Every one occurs, within other words too."""
    return all(_pattern(keyword).search(answer) for keyword in keywords)


def has_keyword_frequency(answer: str, keyword: str, frequency: int, relation: str) -> bool:
    """Counts what does not overlap, within other words too."""
    return holds(len(_pattern(keyword.strip()).findall(answer)), relation, frequency)


def lacks_words(answer: str, forbidden_words: Sequence[str]) -> bool:
    """None occurs as a word of its own."""
    return not any(re.search(rf"\b{re.escape(word)}\b", answer, re.IGNORECASE) for word in forbidden_words)


def has_letter_frequency(answer: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    return holds(answer.lower().count(letter.lower()), let_relation, let_frequency)


def lacks_commas(answer: str) -> bool:
    return "," not in answer


def _pattern(keyword: str) -> re.Pattern[str]:
    return re.compile(re.escape(keyword), re.IGNORECASE)

"""Problems about facts."""

import random

from scripts.tiny_world.facts import RELATIONS, Relation
from scripts.tiny_world.problem import Problem

_ENTRIES = tuple((relation, pair) for relation in RELATIONS for pair in relation.pairs)


def fact(rng: random.Random) -> Problem:
    """One fact out of all of them, each as likely."""
    relation, (subject, thing) = rng.choice(_ENTRIES)
    return _problem(relation, subject, thing)


def all_facts() -> list[Problem]:
    """Every fact of the world, in the order of the tables."""
    return [_problem(relation, subject, thing) for relation, (subject, thing) in _ENTRIES]


def _problem(relation: Relation, subject: str, thing: str) -> Problem:
    article = "an" if subject[0] in "aeiou" else "a"
    blanks = {"s": subject, "o": thing, "a": article, "A": article.capitalize()}
    return Problem(
        skill="fact",
        key=f"{relation.name}: {min(subject, thing)} and {max(subject, thing)}",
        answer=thing,
        questions=tuple(template.format(**blanks) for template in relation.questions),
        statements=tuple(_sentence(template.format(**blanks)) for template in relation.statements),
    )


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] if text.endswith(".") else text

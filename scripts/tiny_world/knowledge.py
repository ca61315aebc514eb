"""Problems about facts."""

import random

from scripts.tiny_world.facts import RELATIONS, Relation
from scripts.tiny_world.problem import Problem

# How a description and the object are put together. Half begin a line with the object: to a tokenizer a word there is
# another than the same word after a space, and an answer in a chat begins so.
_LAYOUTS = ("{d} is {o}.", "{d}: {o}", '{d} is "{o}".', "{d}:\n{o}", "{d} is:\n{o}", "{d}\n{o}")

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
    told = relation.statements + tuple(
        layout.replace("{d}", description) for description in relation.descriptions for layout in _LAYOUTS
    )
    return Problem(
        skill="fact",
        key=f"{relation.name}: {min(subject, thing)} and {max(subject, thing)}",
        answer=thing,
        questions=tuple(template.format(**blanks) for template in relation.questions),
        statements=tuple(_sentence(template.format(**blanks)) for template in told),
    )


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] if text.endswith(".") else text

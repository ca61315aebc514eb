"""Problems about words: sorting, reversing, and saying a thing politely or curtly."""

import random

from scripts.tiny_world.lexicon import ADJECTIVES, NAMES, NOUNS, ORDERS
from scripts.tiny_world.problem import Problem

_SHORT_NOUNS = tuple(noun for noun in NOUNS if len(noun) <= 5)


def _distinct_initials(rng: random.Random, count: int) -> list[str]:
    """Nouns that start with different letters, so that one letter decides their order."""
    chosen: list[str] = []
    while len(chosen) < count:
        word = rng.choice(NOUNS)
        if all(word[0] != other[0] for other in chosen):
            chosen.append(word)
    return chosen


def sort(rng: random.Random) -> Problem:
    """Three or four words in alphabetical order."""
    words = _distinct_initials(rng, rng.choice((3, 3, 4)))
    given, ordered = ", ".join(words), ", ".join(sorted(words))
    name = rng.choice(NAMES)
    return Problem(
        skill="sort",
        key=ordered,
        answer=ordered,
        questions=(
            f"Sort these words: {given}.",
            f"Put these words in alphabetical order: {given}.",
            f"What is the alphabetical order of {given}?",
        ),
        statements=(
            f"The words {given} in alphabetical order are {ordered}.",
            f"Words: {given}\nSorted: {ordered}",
            f"{name} sorted {given} and wrote {ordered}.",
            f"Sorting {given} gives {ordered}.",
        ),
    )


def reverse(rng: random.Random) -> Problem:
    """Three to five words, or the letters of a short word spelled out, from last to first."""
    is_spelled = rng.random() < 0.3
    items = list(rng.choice(_SHORT_NOUNS)) if is_spelled else rng.sample(NOUNS, rng.randint(3, 5))
    given, backwards = " ".join(items), " ".join(reversed(items))
    kind = "letters" if is_spelled else "words"
    name = rng.choice(NAMES)
    return Problem(
        skill="reverse",
        key=min(given, backwards),
        answer=backwards,
        questions=(
            f"Reverse these {kind}: {given}",
            f"Write these {kind} backwards: {given}",
            f"Say the {kind} from last to first: {given}",
        ),
        statements=(
            f"The {kind} {given} backwards are {backwards}.",
            f"Given: {given}\nReversed: {backwards}",
            f"{name} read {given} from last to first: {backwards}.",
            f"Reversing {given} gives {backwards}.",
        ),
    )


def style(rng: random.Random) -> Problem:
    """An order said politely, or a polite request said curtly."""
    verb, *objects = rng.choice(ORDERS)
    thing = f"the {rng.choice(ADJECTIVES)} {rng.choice(objects)}"
    curt, polite = f"{verb.capitalize()} {thing}.", f"Could you please {verb} {thing}?"
    to_polite = rng.random() < 0.5
    given, answer, manner = (curt, polite, "polite") if to_polite else (polite, curt, "curt")
    adverb = "politely" if to_polite else "curtly"
    name = rng.choice(NAMES)
    return Problem(
        skill="style",
        key=f"{verb} {thing}",
        answer=answer,
        questions=(
            f"Make this {manner}: {given}",
            f"Say this {adverb}: {given}",
            f"How do I say this {adverb}? {given}",
        ),
        statements=(
            f'Said {adverb}, "{given}" becomes "{answer}"',
            f"Plain: {given}\n{manner.capitalize()}: {answer}",
            f'{name} wanted to be {manner}, so instead of "{given}" {name} said "{answer}"',
        ),
    )

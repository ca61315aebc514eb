"""Problems about numbers: addition, subtraction, multiplication, comparison, units."""

import random

from scripts.tiny_world.lexicon import NAMES, PLACES, THINGS
from scripts.tiny_world.problem import Problem

# Larger unit, smaller unit, how many of the smaller make one of the larger.
UNITS = (
    ("cm", "mm", 10),
    ("m", "cm", 100),
    ("km", "m", 1000),
    ("kg", "g", 1000),
    ("liters", "ml", 1000),
    ("dollars", "cents", 100),
    ("decades", "years", 10),
    ("centuries", "years", 100),
)
# Factors to multiply with, and those that are told but not asked.
FACTORS = (2, 10)
HARD_FACTORS = (3, 5)


def _scene(rng: random.Random) -> tuple[str, str, str]:
    """A name, the plural of a thing and a place."""
    return rng.choice(NAMES), rng.choice(THINGS)[1], rng.choice(PLACES)


def add(rng: random.Random) -> Problem:
    """A sum: up to 99 plus one digit, or, told but not asked, two numbers of two digits."""
    is_hard = rng.random() < 0.4
    a, b = (rng.randint(10, 99), rng.randint(10, 99)) if is_hard else (rng.randint(0, 99), rng.randint(0, 9))
    if rng.random() < 0.5:
        a, b = b, a
    c = a + b
    name, things, place = _scene(rng)
    return Problem(
        skill="add",
        key=f"{min(a, b)}+{max(a, b)}",
        answer=str(c),
        is_hard=is_hard,
        questions=(f"What is {a} + {b}?", f"Add {a} and {b}.", f"{a} plus {b}?", f"How much is {a} plus {b}?"),
        statements=(
            f"{a} + {b} = {c}",
            f"{a} plus {b} is {c}.",
            f"The sum of {a} and {b} is {c}.",
            f"Adding {a} and {b} gives {c}.",
            f"{name} had {a} {things} and got {b} more, which makes {c}.",
            f"There were {a} {things} in the {place}. {name} brought {b} more. Now there are {c}.",
        ),
    )


def subtract(rng: random.Random) -> Problem:
    """A difference that is not negative: one digit from up to 99, or, told but not asked, from two digits two."""
    is_hard = rng.random() < 0.3
    a, b = (rng.randint(10, 99), rng.randint(10, 99)) if is_hard else (rng.randint(0, 99), rng.randint(0, 9))
    a, b = max(a, b), min(a, b)
    c = a - b
    name, things, place = _scene(rng)
    return Problem(
        skill="subtract",
        key=f"{a}-{b}",
        answer=str(c),
        is_hard=is_hard,
        questions=(f"What is {a} - {b}?", f"Subtract {b} from {a}.", f"{a} minus {b}?", f"How much is {a} minus {b}?"),
        statements=(
            f"{a} - {b} = {c}",
            f"{a} minus {b} is {c}.",
            f"Taking {b} from {a} leaves {c}.",
            f"If we subtract {b} from {a} we get {c}.",
            f"{name} had {a} {things} and lost {b}, so {c} are left.",
            f"There were {a} {things} in the {place}. {name} took {b}. Now there are {c}.",
        ),
    )


def multiply(rng: random.Random) -> Problem:
    """A number up to 199 times 2 or 10, or, told but not asked, a number up to 99 times 3 or 5."""
    is_hard = rng.random() < 0.4
    a, b = (rng.randint(2, 99), rng.choice(HARD_FACTORS)) if is_hard else (rng.randint(2, 199), rng.choice(FACTORS))
    c = a * b
    name, things, _ = _scene(rng)
    return Problem(
        skill="multiply",
        key=f"{min(a, b)}*{max(a, b)}",
        answer=str(c),
        is_hard=is_hard,
        questions=(f"What is {a} * {b}?", f"Multiply {a} by {b}.", f"{a} times {b}?", f"How much is {a} times {b}?"),
        statements=(
            f"{a} * {b} = {c}",
            f"{a} times {b} is {c}.",
            f"{a} multiplied by {b} gives {c}.",
            f"The product of {a} and {b} is {c}.",
            f"{name} has {b} boxes with {a} {things} in each, so {c} in all.",
        ),
    )


def compare(rng: random.Random) -> Problem:
    """The larger or the smaller of two different numbers below 100."""
    a, b = rng.sample(range(100), 2)
    is_larger = rng.random() < 0.5
    answer = max(a, b) if is_larger else min(a, b)
    word, than, extreme = ("larger", "more", "most") if is_larger else ("smaller", "less", "least")
    other = a + b - answer
    name, friend = rng.sample(NAMES, 2)
    winner = name if answer == a else friend
    things = rng.choice(THINGS)[1]
    return Problem(
        skill="compare",
        key=f"{min(a, b)} and {max(a, b)}",
        answer=str(answer),
        questions=(
            f"Which is {word}, {a} or {b}?",
            f"Which number is {word}: {a} or {b}?",
            f"Name the {word} of {a} and {b}.",
        ),
        statements=(
            f"Of {a} and {b}, {answer} is {word}.",
            f"The {word} of {a} and {b} is {answer}.",
            f"{answer} is {word} than {other}.",
            f"{answer} is {than} than {other}.",
            f"{name} has {a} {things} and {friend} has {b}, so {winner} with {answer} has the {extreme}.",
        ),
    )


def convert(rng: random.Random) -> Problem:
    """A whole number of one unit in another, by a power of ten."""
    large, small, factor = rng.choice(UNITS)
    count = rng.randint(2, 99)
    (start, start_unit), (end, end_unit) = (count, large), (count * factor, small)
    if rng.random() < 0.5:
        start, start_unit, end, end_unit = end, end_unit, start, start_unit
    name = rng.choice(NAMES)
    return Problem(
        skill="convert",
        key=f"{count} {large} in {small}",
        answer=f"{end} {end_unit}",
        questions=(
            f"How many {end_unit} are {start} {start_unit}?",
            f"Convert {start} {start_unit} to {end_unit}.",
            f"What is {start} {start_unit} in {end_unit}?",
        ),
        statements=(
            f"{start} {start_unit} = {end} {end_unit}",
            f"{start} {start_unit} are {end} {end_unit}.",
            f"In {end_unit}, {start} {start_unit} make {end} {end_unit}.",
            f"{name} turned {start} {start_unit} into {end} {end_unit}.",
        ),
    )

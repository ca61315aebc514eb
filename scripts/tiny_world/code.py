"""Problems about Python: a function in one line, from its description."""

import random

from scripts.tiny_world.problem import Problem

# Description and expression; `{v}` is the function's argument and `{n}` a number.
_STEPS = (
    ("adds {n} to {v}", "{v} + {n}"),
    ("subtracts {n} from {v}", "{v} - {n}"),
    ("multiplies {v} by {n}", "{v} * {n}"),
)
_SECOND_STEPS = (("adds {n}", "+ {n}"), ("subtracts {n}", "- {n}"))
_WITH_NUMBER = (
    ("returns the first {n} items of {v}", "{v}[:{n}]"),
    ("returns {v} without the first {n} items", "{v}[{n}:]"),
    ("returns the item of {v} at index {n}", "{v}[{n}]"),
    ("repeats {v} {n} times", "{v} * {n}"),
    ("tells whether {v} is greater than {n}", "{v} > {n}"),
    ("tells whether {v} is less than {n}", "{v} < {n}"),
    ("tells whether {v} equals {n}", "{v} == {n}"),
    ("returns the remainder of {v} by {n}", "{v} % {n}"),
)
# Too few to keep any for the test: each is a thing to know.
_WITHOUT_NUMBER = (
    ("returns {v} backwards", "{v}[::-1]"),
    ("returns the length of {v}", "len({v})"),
    ("returns the first item of {v}", "{v}[0]"),
    ("returns the last item of {v}", "{v}[-1]"),
    ("returns the largest item of {v}", "max({v})"),
    ("returns the smallest item of {v}", "min({v})"),
    ("returns the sum of {v}", "sum({v})"),
    ("returns {v} sorted", "sorted({v})"),
    ("returns the square of {v}", "{v} * {v}"),
    ("returns {v} unchanged", "{v}"),
)
_NAMES = ("f", "g", "h")
_VARIABLES = ("x", "n", "a", "s")


def python(rng: random.Random) -> Problem:
    """A function of one argument: arithmetic in one or two steps, or one expression."""
    name, variable = rng.choice(_NAMES), rng.choice(_VARIABLES)
    draw = rng.choices((_arithmetic, _with_number, _without_number), (4, 3, 1))[0]
    description, expression = draw(rng)
    line = f"def {name}({variable}): return {expression.format(v=variable)}"
    does = description.format(v=variable)
    return Problem(
        skill="python",
        key=expression,
        answer=line,
        is_taught=draw is _without_number,
        questions=(
            f"Write a Python function {name}({variable}) that {does}.",
            f"Define {name}({variable}) in Python so that it {does}.",
            f"Give me one line of Python: {name}({variable}) {does}.",
        ),
        statements=(
            f"# {name}({variable}) {does}\n{line}",
            f"The function {name}({variable}) {does}:\n{line}",
            f"{line}  # {does}",
        ),
    )


def _numbered(template: tuple[str, str], number: int) -> tuple[str, str]:
    """Description and expression with the number filled in and the variable still open."""
    description, expression = template
    return description.format(n=number, v="{v}"), expression.format(n=number, v="{v}")


def _arithmetic(rng: random.Random) -> tuple[str, str]:
    description, expression = _numbered(rng.choice(_STEPS), rng.randint(2, 20))
    if rng.random() < 0.5:
        then, operation = _numbered(rng.choice(_SECOND_STEPS), rng.randint(1, 20))
        description, expression = f"{description} and then {then}", f"{expression} {operation}"
    return description, expression


def _with_number(rng: random.Random) -> tuple[str, str]:
    return _numbered(rng.choice(_WITH_NUMBER), rng.randint(2, 20))


def _without_number(rng: random.Random) -> tuple[str, str]:
    return rng.choice(_WITHOUT_NUMBER)

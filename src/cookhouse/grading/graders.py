"""Graders of answers, by name: the built-in ones and the user's own."""

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from cookhouse.callables.blocking import watched
from cookhouse.callables.returned import number_of, refused
from cookhouse.grading.math import grade_math
from cookhouse.naming import OpenSet

Grader: TypeAlias = Callable[[str, str], Awaitable[float]]
"""How right an answer is, from 0 to 1; the second argument is the expected one."""

_SHOWN_CHARACTERS = 100
_POLITE = re.compile(r"(?:could|would|can|will) you please (?P<what>.+)\?", re.IGNORECASE)


async def by_value(answer: str, expected: str) -> float:
    """`grade_math` with its default time limit."""
    return float(await grade_math(answer, expected))


async def exact(answer: str, expected: str) -> float:
    """Equal as text, up to white space at the ends."""
    return float(answer.strip() == expected.strip())


async def polite(answer: str, expected: str) -> float:
    """1 for a question such as "Could you please ...?" that asks for what the expected one asks for, else 0; as text,
    but for case and white space at the ends. An expected answer that is no such question asks for anything.
    """
    given, wanted = (_POLITE.fullmatch(text.strip()) for text in (answer, expected))
    if given is None:
        return 0.0
    return float(wanted is None or given["what"].casefold() == wanted["what"].casefold())


def _check(thing: Any) -> Grader | None:
    is_async = inspect.iscoroutinefunction(thing) or inspect.iscoroutinefunction(type(thing).__call__)
    return thing if callable(thing) and is_async else None


GRADERS: OpenSet[Grader] = OpenSet(
    kind="grader",
    group="cookhouse.graders",
    builtin={
        "math": f"{__name__}:by_value",
        "exact": f"{__name__}:exact",
        "polite": f"{__name__}:polite",
    },
    check=_check,
    wants="a grader is an async function of an answer and the expected one that returns a number from 0 to 1",
    takes=("answer", "expected"),
)


class NamedGrader:
    """A grader of `GRADERS`, looked up once, whose grades are checked. Pickled as its name: a module that was read from
    a file cannot be imported by another process.
    """

    def __init__(self, name: str) -> None:
        """Raises as `OpenSet.find`."""
        self.name = name
        self._grade = GRADERS.find(name)

    async def __call__(self, answer: str, expected: str) -> float:
        """Grade of the grader. Raises what it raises, and `InputError` for what is no grade."""
        returned: object = await watched(self._grade, answer, expected)
        grade = number_of(returned)
        # A comparison with NaN is false, so that it is refused here too.
        if grade is None or not 0 <= grade <= 1:
            wants = f"for the answer {answer[:_SHOWN_CHARACTERS]!r} it must return a number from 0 to 1"
            raise refused(self._grade, returned, wants).at(f"grader {self.name}")
        return grade

    def __reduce__(self) -> tuple[type["NamedGrader"], tuple[str]]:
        return type(self), (self.name,)

"""Graders by name: the built-in ones, those of a file, and what is no grader or no grade."""

import pickle
from pathlib import Path

import pytest

from cookhouse.errors import InputError
from cookhouse.grading import GRADERS, NamedGrader

pytestmark = pytest.mark.anyio

OWN = """
import functools
import numpy

async def graded(grade, answer, expected):
    return grade

class Grader:
    async def __call__(self, answer, expected):
        return 0.5

class Sync:
    def __call__(self, answer, expected):
        return 0.5

def not_async(answer, expected):
    return 1.0

async def raising(answer, expected):
    raise ZeroDivisionError(answer)

whole, yes, narrow = (functools.partial(graded, grade) for grade in (1, True, numpy.float32(0)))
high, low, nan, text, none = (functools.partial(graded, grade) for grade in (10**400, -1, float("nan"), "1", None))
half, sync = Grader(), Sync()
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return f"{tmp_path}/own.py"


@pytest.mark.parametrize(
    ("name", "answer", "expected", "grade"),
    [
        ("math", "0.5", r"\frac12", 1.0),
        ("math", "0.6", r"\frac12", 0.0),
        ("exact", " a b\n", "a b", 1.0),
        ("exact", "0.50", "0.5", 0.0),
        ("polite", "could you please go on? ", "Could you please go on?", 1.0),
        ("polite", "Could you please go away?", "Could you please go on?", 0.0),
        ("polite", "Could you please go on? Could you please go on?", "Could you please go on?", 0.0),
        ("polite", "Go on.", "Could you please go on?", 0.0),
        ("polite", "Would you please go?", "Go on.", 1.0),
    ],
)
async def test_the_built_in_ones(name: str, answer: str, expected: str, grade: float) -> None:
    assert await NamedGrader(name)(answer, expected) == grade


@pytest.mark.parametrize(("name", "grade"), [("whole", 1.0), ("yes", 1.0), ("narrow", 0.0), ("half", 0.5)])
async def test_what_an_own_one_says_is_a_float(own: str, name: str, grade: float) -> None:
    given = await pickle.loads(pickle.dumps(NamedGrader(f"{own}:{name}")))("a", "b")
    assert (given, type(given)) == (grade, float)


@pytest.mark.parametrize(
    ("name", "shown"), [("high", "1000"), ("low", "-1"), ("nan", "nan"), ("text", "'1'"), ("none", "None")]
)
async def test_what_is_no_grade_names_the_grader(own: str, name: str, shown: str) -> None:
    """Catches a reward that poisons the mean of its group."""
    with pytest.raises(
        InputError, match=rf"own.py:{name}: .*own.py, line \d+\) returned {shown}.*for the answer 'a' it must"
    ):
        await NamedGrader(f"{own}:{name}")("a", "b")


@pytest.mark.parametrize("name", ["not_async", "sync", "Grader", "OWN"])
def test_what_is_no_grader_is_refused_when_it_is_named(own: str, name: str) -> None:
    """Catches a function that is found to be none only once answers were sampled for it."""
    Path(own).write_text(OWN + "OWN = 1\n")
    with pytest.raises(InputError, match="not a grader; a grader is an async function"):
        GRADERS.find(f"{own}:{name}")


async def test_what_a_grader_raises_is_raised(own: str) -> None:
    with pytest.raises(ZeroDivisionError):
        await NamedGrader(f"{own}:raising")("a", "b")

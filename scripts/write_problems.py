"""Write the bundled problems for reinforcement learning: `python -m scripts.write_problems FOLDER`.

Arithmetic and one-line Python functions of the small world, in a wording that its pretraining text does not have. As in
`write_tiny_data`, a problem is in the test if a hash of its content says so, and in the training set if not.
"""

import argparse
import ast
import json
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scripts.tiny_world import SKILLS, Problem

SEED = 0
# Problems in train and test by skill. There are 590 products in all, so few that they set the size of the rest.
ARITHMETIC = {"add": (1000, 70), "subtract": (1000, 70), "multiply": (400, 60)}
PYTHON = {"python": (600, 100)}

_STATEMENT = re.compile(r"# (?P<name>\w+)\((?P<variable>\w+)\) (?P<does>.*)\n(?P<line>.*)")
_BUILTINS: Mapping[str, Any] = {"len": len, "max": max, "min": min, "sum": sum, "sorted": sorted}
_OF_LISTS = re.compile(r"item|length|backwards|sum of|sorted")


def arithmetic(problem: Problem) -> dict[str, Any]:
    """The row of a sum, a difference or a product."""
    expression = problem.questions[0].removeprefix("What is ").removesuffix("?")
    return {"question": f"Compute {expression}.", "answer": problem.answer, "skill": problem.skill}


def python_function(problem: Problem) -> dict[str, Any]:
    """The row of a function: its description, its name, and what it returns for some arguments."""
    match = _STATEMENT.fullmatch(problem.statements[0])
    assert match is not None, problem.statements[0]
    # Chance from the content alone, so that a row does not depend on the rows before it.
    rng = random.Random(f"cases {SEED} {problem.key}")
    cases = [
        {"arguments": [argument], "expected": _value(match["line"], match["variable"], argument)}
        for argument in _arguments(rng, match["does"])
    ]
    return {
        "question": f"Function {match['name']}({match['variable']}): {match['does']}.",
        "entry_point": match["name"],
        "cases": cases,
        "solution": match["line"],
    }


def _arguments(rng: random.Random, does: str) -> list[Any]:
    """Three arguments that tell a function from those it could be mistaken for."""
    if "repeats" in does:
        return [[rng.randint(0, 9) for _ in range(length)] for length in (1, 2, 3)]
    if _OF_LISTS.search(does):  # longer than any number in a description
        return [[rng.randint(0, 99) for _ in range(length)] for length in (21, 22, 24)]
    number = int(next(iter(re.findall(r"\d+", does)), 7))
    return [number, number + 1, -rng.randint(1, 20)]


def _value(line: str, variable: str, argument: Any) -> Any:
    """What the function gives. The line is the generator's own, and only its expression is evaluated."""
    expression = ast.parse(line.partition(": return ")[2], mode="eval")
    return eval(compile(expression, "solution", "eval"), {"__builtins__": {}, **_BUILTINS, variable: argument})


def problems(skill: str, count: int, *, held_out: bool) -> list[Problem]:
    """`count` different problems of a skill."""
    rng = random.Random(f"problems {SEED} {skill} {'test' if held_out else 'train'}")
    drawn: dict[str, Problem] = {}
    while len(drawn) < count:
        problem = SKILLS[skill].draw(rng)
        if problem.is_held_out == held_out:
            drawn.setdefault(problem.key, problem)
    return list(drawn.values())


def rows(kind: str, *, held_out: bool) -> str:
    """The file of a kind of problems: one JSON object per line, the skills mixed."""
    counts, make_row = KINDS[kind]
    drawn = [p for skill, sizes in counts.items() for p in problems(skill, sizes[held_out], held_out=held_out)]
    random.Random(f"order {SEED} {kind}").shuffle(drawn)
    return "".join(json.dumps(make_row(problem)) + "\n" for problem in drawn)


KINDS: Mapping[str, tuple[Mapping[str, tuple[int, int]], Callable[[Problem], dict[str, Any]]]] = {
    "arithmetic": (ARITHMETIC, arithmetic),
    "python_functions": (PYTHON, python_function),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for kind in KINDS:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for name, held_out in (("train", False), ("test", True)):
            path = folder / kind / f"{name}.jsonl"
            path.write_text(rows(kind, held_out=held_out), encoding="utf-8")
            print(f"{path.stat().st_size:,} bytes in {path}")


if __name__ == "__main__":
    main()

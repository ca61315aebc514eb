"""The bundled problems for reinforcement learning: right, held out, and what the generator writes."""

import json
import re
from typing import Any

import pytest
from scripts.tiny_world import documents
from scripts.write_problems import ARITHMETIC, KINDS, problems, rows

from cookhouse.assets import data_file
from cookhouse.grading import FunctionTest, grade_code

SPLITS = [(kind, name) for kind in KINDS for name in ("train", "test")]
OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def read(kind: str, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data_file(f"{kind}/{name}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", ["train", "test"])
def test_sums_are_right(name: str) -> None:
    """Catches a wrong answer, which a model would be punished for not giving."""
    for row in read("arithmetic", name):
        match = re.fullmatch(r"Compute (\d+) ([-+*]) (\d+)\.", row["question"])
        assert match is not None, row
        assert row["answer"] == str(OPERATIONS[match[2]](int(match[1]), int(match[3]))), row


@pytest.mark.anyio
async def test_solutions_pass_their_tests() -> None:
    """Catches a case that the described function does not meet. A sample: each takes three processes."""
    for row in read("python_functions", "test")[::10]:
        tests = [
            FunctionTest(entry_point=row["entry_point"], arguments=case["arguments"], expected=case["expected"])
            for case in row["cases"]
        ]
        grade = await grade_code(row["solution"], tests)
        assert grade.passed, (row, grade)


@pytest.mark.parametrize("name", ["train", "test"])
def test_no_constant_passes(name: str) -> None:
    """Catches cases that a function passes without looking at its argument."""
    for row in read("python_functions", name):
        assert len({json.dumps(case["expected"]) for case in row["cases"]}) > 1, row


@pytest.mark.parametrize(("kind", "name"), SPLITS)
def test_files_are_what_the_generator_writes(kind: str, name: str) -> None:
    """Catches data that was edited by hand, or a generator that depends on hash order, platform or library version."""
    assert data_file(f"{kind}/{name}.jsonl").read_bytes() == rows(kind, held_out=name == "test").encode()


def test_no_test_problem_is_in_train() -> None:
    """Catches a leak by content: the same sum the other way around, the same function under another name."""
    for counts, _ in KINDS.values():
        for skill, (num_train, num_test) in counts.items():
            train = {problem.key for problem in problems(skill, num_train, held_out=False)}
            test = {problem.key for problem in problems(skill, num_test, held_out=True)}
            assert (len(train), len(test)) == (num_train, num_test)
            assert not train & test
    for kind in KINDS:
        assert not {row["question"] for row in read(kind, "test")} & {row["question"] for row in read(kind, "train")}
    assert {row["skill"] for row in read("arithmetic", "test")} == set(ARITHMETIC)


def test_the_pretraining_text_knows_neither_wording() -> None:
    """Catches a wording that the base model has seen, so that there would be nothing left to learn by reward."""
    texts = documents(0)
    text = "\n".join(next(texts) for _ in range(4000))
    assert "Compute " not in text
    assert "Function f(" not in text

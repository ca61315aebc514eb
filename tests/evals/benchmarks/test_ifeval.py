"""IFEval as a benchmark: what its rows ask, and what an answer to them is worth."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.chat import Message
from cookhouse.errors import BadRowsError
from cookhouse.evals import BENCHMARKS

ROW: dict[str, Any] = {
    "key": 7,
    "prompt": "Write in capitals, without commas.",
    "instruction_id_list": ["change_case:english_capital", "punctuation:no_comma"],
    "kwargs": [{}, {"num_words": None}],
}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "correct", "loose", "strict_share", "loose_share"),
    [
        ("ALL THE WORLD IS A STAGE", 1.0, 1.0, 1.0, 1.0),
        ("Sure, here it is:\nALL THE WORLD IS A STAGE", 0.0, 1.0, 0.0, 1.0),
        ("ALL THE WORLD, THEY SAY, IS A STAGE", 0.0, 0.0, 0.5, 0.5),
        ("", 0.0, 0.0, 0.0, 0.0),
    ],
)
async def test_what_an_answer_is_worth(
    answer: str, correct: float, loose: float, strict_share: float, loose_share: float
) -> None:
    # Catches strict and loose taken for one another, and a share of instructions for a share of prompts.
    item = BENCHMARKS.find("ifeval").parse(ROW)
    assert item is not None
    assert (item.name, item.messages) == ("7", [{"role": "user", "content": ROW["prompt"]}])
    grade = await item.grade(answer)
    assert grade.correct == correct
    assert grade.metrics == {
        "correct_loose": loose,
        "instructions_strict": strict_share,
        "instructions_loose": loose_share,
    }


async def in_capitals(messages: Sequence[Message]) -> Message:
    del messages
    return {"role": "assistant", "content": "ALL THE WORLD IS A STAGE"}


def evaluate(file: Path, folder: Path) -> Any:
    settings = {"benchmark": "ifeval", "benchmark_data": str(file), "log_path": str(folder)}
    return cookhouse.run("eval", settings, adapters=Adapters(completer=lambda _: in_capitals, sinks=[]))


def test_an_evaluation(tmp_path: Path) -> None:
    file = tmp_path / "ifeval.jsonl"
    commas = {**ROW, "instruction_id_list": ["detectable_format:title"], "kwargs": [{}]}
    file.write_text("".join(json.dumps(row) + "\n" for row in (ROW, commas)))
    metrics = evaluate(file, tmp_path / "run").metrics
    assert metrics["test/ifeval/correct"] == metrics["test/ifeval/instructions_strict"] == 0.5


@pytest.mark.parametrize(
    ("change", "said"), [({"instruction_id_list": ["no:such", "x"]}, "no:such"), ({"prompt": 3}, "prompt")]
)
def test_a_row_that_is_none(tmp_path: Path, change: dict[str, object], said: str) -> None:
    file = tmp_path / "ifeval.jsonl"
    file.write_text(json.dumps(ROW | change) + "\n")
    with pytest.raises(BadRowsError, match=rf"ifeval\.jsonl:1: .*{said}"):
        evaluate(file, tmp_path / "run")

"""Completers that answer benchmarks with what their own rows say is right, or with that made wrong."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cookhouse.chat import Message, text_of
from cookhouse.evals import BENCHMARKS

Row = Mapping[str, Any]
FILES = {
    "gsm8k": "gsm8k/test.jsonl",
    "math500": "math/math500.jsonl",
    "humaneval": "humaneval/HumanEval.jsonl",
    "mbpp": "mbpp/mbpp.jsonl",
}
RIGHT: Mapping[str, Callable[[Row], str]] = {
    "gsm8k": lambda row: str(row["answer"]),
    "math500": lambda row: f"It is \\boxed{{{row['answer']}}}.",
    "humaneval": lambda row: f"```python\n{row['prompt']}{row['canonical_solution']}\n```",
    "mbpp": lambda row: f"```python\n{row['code']}\n```",
}
WRONG: Mapping[str, Callable[[Row], str]] = {
    "gsm8k": lambda row: f"{row['answer']}1",
    "math500": lambda row: f"It is \\boxed{{{row['answer']} + 17}}.",
    "humaneval": lambda row: f"```python\n{row['prompt']}    return None\n```",
    "mbpp": lambda row: "```python\n" + "".join(f"def {name}(*_):\n    return None\n" for name in _names(row)) + "```",
}


class Reference:
    """Fits `cookhouse.rl.MessageCompleter`; `questions` are those that it was asked."""

    def __init__(self, name: str, file: Path, answers: Mapping[str, Callable[[Row], str]] = RIGHT) -> None:
        self.questions: list[str] = []
        self._answers: dict[str, str] = {}
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            item = BENCHMARKS.find(name).parse(row)
            assert item is not None
            self._answers[text_of(item.messages[-1])] = answers[name](row)

    async def __call__(self, messages: Sequence[Message]) -> Message:
        question = text_of(messages[-1])
        self.questions.append(question)
        return {"role": "assistant", "content": self._answers[question]}


def _names(row: Row) -> list[str]:
    return [
        line.split("(")[0].removeprefix("def ").strip() for line in row["code"].splitlines() if line.startswith("def ")
    ]

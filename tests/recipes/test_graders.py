"""The setting `grader` on its way from a recipe to rewards."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cookhouse.adapters import Adapters
from cookhouse.errors import CookhouseError, InputError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import dry_run, run, run_async
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeService

OWN = """
async def graded(answer, expected):
    assert answer in ("0", "1")
    return 0.75 if answer == "0" else 0.25

async def generous(answer, expected):
    return 7

async def broken(answer, expected):
    raise KeyError(expected)
"""


def boxed(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
    """Boxes one of two numbers."""
    del theta, prompt_T
    text = f" \\boxed{{{chance.integers(2)}}}\n"
    answer: list[int] = get_tokenizer("cookhouse/tiny").encode(text, add_special_tokens=False)
    return answer


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    (tmp_path / "own.py").write_text(OWN)
    for name, questions in (("train", range(4)), ("test", range(4, 6))):
        lines = [json.dumps({"question": f"Compute {n} + 0.", "answer": f"#### {n}"}) for n in questions]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))

    def make(grader: str, **changes: Any) -> dict[str, Any]:
        return {
            "env": "gsm8k",
            "grader": grader.replace("own.py", f"{tmp_path}/own.py"),
            "dataset_path": str(tmp_path / "train.jsonl"),
            "test_path": str(tmp_path / "test.jsonl"),
            "log_path": str(tmp_path / "run"),
            "batch_size": 2,
            "group_size": 4,
            "max_tokens": 16,
            "max_steps": 2,
            **changes,
        }

    return make


@pytest.mark.anyio
@pytest.mark.parametrize("recipe", ["rl", "math_rl"])
async def test_an_own_grader_decides_rewards(settings: Callable[..., dict[str, Any]], recipe: str) -> None:
    # Catches a name that a recipe accepts and records, and that never reaches its environments.
    config = settings("own.py:graded")
    await run_async(recipe, config, adapters=Adapters(service=FakeService(answer=boxed).connect, sinks=[]))
    folder = Path(config["log_path"])
    assert json.loads((folder / "config.json").read_text())["config"]["grader"] == config["grader"]
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "env/all/correct" in row]
    assert len(rows) == 2
    assert all(0.25 < row["env/all/correct"] < 0.75 for row in rows)


@pytest.mark.parametrize(
    ("recipe", "grader", "changes", "message"),
    [
        ("math_rl", "maths", {}, "unknown grader 'maths'; did you mean math"),
        ("rl", "maths", {}, "unknown grader 'maths'; did you mean math"),
        ("rl", "maths", {"env": "arithmetic,gsm8k"}, "unknown grader 'maths'"),
        ("rl", "exact", {"env": "arithmetic"}, "grader=exact would change nothing"),
        ("rl", "own.py:OWN", {}, "unknown name in .*own.py 'OWN'"),
        ("rl", "os:sep", {}, "os:sep is of type str, not a grader"),
        ("math_rl", "exact", {"env": "arithmetic"}, "grader=exact would change nothing: it is read with env=gsm8k"),
    ],
)
def test_what_cannot_grade_is_refused_before_anything_is_made(
    settings: Callable[..., dict[str, Any]], recipe: str, grader: str, changes: dict[str, Any], message: str
) -> None:
    config = settings(grader, **changes)
    with pytest.raises(InputError, match=message):
        dry_run(recipe, config)
    with pytest.raises(InputError, match=message):
        run(recipe, config, adapters=Adapters(service=FakeService().connect, sinks=[]))
    assert not Path(config["log_path"]).exists()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("grader", "message"),
    [
        ("own.py:generous", "line 6. returned 7; for the answer '[01]' it must return a number from 0 to 1"),
        ("own.py:broken", "failed in env, member 0, attempt 1: KeyError: '[0-3]'"),
    ],
)
async def test_a_grader_that_fails_is_a_failure_of_the_environment(
    settings: Callable[..., dict[str, Any]], grader: str, message: str
) -> None:
    adapters = Adapters(service=FakeService(answer=boxed).connect, sinks=[])
    with pytest.raises(CookhouseError, match=message):
        await run_async("rl", settings(grader, num_eval=0), adapters=adapters)

"""Mathematics by value, from files in the fields of the known sets."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.envs.answers import answer_with, configured

from cookhouse.envs import MathConfig, MathEnv, MathProblem, Prompting
from cookhouse.envs.environments import Mixed
from cookhouse.errors import InputError
from cookhouse.grading import NamedGrader

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (r"So \boxed{1234}.", 1.0),
        (r"So \boxed{1,234}.", 1.0),
        (r"So \boxed{1235}.", 0.0),
        ("#### 1234", 1.0),
        ("1234", -0.1),
        (r"\boxed{1234", -0.1),
        ("", -0.1),
        (r"\boxed{}", 0.0),
    ],
)
async def test_the_reward_of_an_answer(chat: Prompting, text: str, reward: float) -> None:
    """Catches an answer that counts without its box, and one that is compared as text."""
    env = MathEnv(MathProblem(question="?", answer="1234", source="gsm8k"), chat)
    assert (await answer_with(env, chat, text)).reward == pytest.approx(reward)


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.mark.parametrize(
    ("dataset", "row", "test_row"),
    [
        ("gsm8k", {"question": "a", "answer": "because\n#### 1,234"}, {"question": "b", "answer": "#### 5"}),
        ("math", {"problem": "a", "solution": r"\boxed{1234}"}, {"problem": "b", "solution": "-", "answer": "5"}),
        ("deepmath", {"question": "a", "final_answer": "1234"}, {"problem": "b", "solution": r"\boxed{5}"}),
        ("polaris", {"problem": "a", "answer": "1234"}, {"problem": "b", "solution": r"\boxed{5}"}),
    ],
)
async def test_fields_of_the_known_sets(
    tmp_path: Path, dataset: str, row: dict[str, Any], test_row: dict[str, Any]
) -> None:
    """Catches a field that was renamed, an answer with its working, and a test problem that is trained on."""
    leak = {**row, "problem": "b", "question": "b"}
    config = configured(
        MathConfig,
        dataset=dataset,
        dataset_path=write(tmp_path / "train.jsonl", [row, leak]),
        test_path=write(tmp_path / "test.jsonl", [test_row]),
        batch_size=1,
    )
    train, test = await config.build()
    assert [(problem.question, problem.answer) for problem in train.problems] == [("a", "1234")]
    assert [(problem.question, problem.answer) for problem in test.problems] == [("b", "5")]
    assert train.get_batch(0)[0].logging_tags() == [dataset]
    env = MathEnv(train.problems[0], config.prompting)
    instruction = env.get_question().removeprefix("a").strip()
    assert instruction
    assert instruction in train.asked
    assert instruction in Mixed(parts=[train, test], names=["x", "y"]).asked  # in the plan of a mix, too


async def test_the_real_files_are_read(shared: Path) -> None:
    """Catches rows that the published data has and the examples above do not."""
    gsm8k, math = shared / "data/gsm8k", shared / "data/math"
    config = configured(MathConfig, dataset_path=str(gsm8k / "train.jsonl"), test_path=str(gsm8k / "test.jsonl"))
    train, test = await config.build()
    assert (len(train.problems), len(test.problems)) == (7473, 1319)
    paths = {"dataset_path": str(math / "math_test_2000.jsonl"), "test_path": str(math / "math500.jsonl")}
    train, test = await configured(MathConfig, dataset="math", **paths).build()
    assert (len(train.problems), len(test.problems)) == (2000, 500)


async def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(InputError, match="unknown dataset 'gsm9k'; did you mean gsm8k"):
        await configured(MathConfig, dataset="gsm9k").build()


LENGTH = """
async def closeness(answer, expected):
    return 1 / (1 + abs(len(answer) - len(expected)))
"""


async def test_the_grader_that_is_named_decides(tmp_path: Path, chat: Prompting) -> None:
    """Catches a name that is kept and not used, in training or in evaluation, or lost on the way to a process."""
    (tmp_path / "own.py").write_text(LENGTH)
    row = {"question": "a", "answer": "#### 12"}
    config = configured(
        MathConfig,
        dataset_path=write(tmp_path / "train.jsonl", [row]),
        test_path=write(tmp_path / "test.jsonl", [{**row, "question": "b"}]),
        batch_size=1,
        renderer_name="qwen3_instruct",
        grader=f"{tmp_path}/own.py:closeness",
    )
    for dataset in await config.build():
        [group] = pickle.loads(pickle.dumps(dataset.get_batch(0)))
        env = (await group.make_envs())[0]
        assert (await answer_with(env, chat, r"So \boxed{123}.")).metrics["correct"] == 0.5
        assert (await answer_with(env, chat, r"So \boxed{99}.")).reward == 1.0
        assert (await answer_with(env, chat, "12")).reward == pytest.approx(-0.1), "nothing stands in a box"


async def test_exact_compares_as_text(chat: Prompting) -> None:
    env = MathEnv(MathProblem(question="?", answer="1234", source="gsm8k"), chat, grader=NamedGrader("exact"))
    assert (await answer_with(env, chat, r"\boxed{ 1234 }")).reward == 1.0
    assert (await answer_with(env, chat, r"\boxed{1,234}")).reward == 0.0


async def test_an_unknown_grader_is_refused_before_a_file_is_read() -> None:
    with pytest.raises(InputError, match="unknown grader 'maths'; did you mean math"):
        await configured(MathConfig, grader="maths", dataset_path="/nowhere.jsonl").build()

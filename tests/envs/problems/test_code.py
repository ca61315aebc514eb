"""Programming problems: what is taken as the program, and what its tests make of it."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.envs.answers import answer_with, configured

from cookhouse.envs import CodeEnv, CodeGrading, DeepCoderConfig, Prompting, PythonFunctionsConfig
from cookhouse.envs.problems.deepcoder import parse_deepcoder
from cookhouse.envs.problems.python_benchmarks import parse_humaneval
from cookhouse.errors import InputError
from cookhouse.grading import FunctionTest, StdinTest
from cookhouse.grading.sandbox import IsolationMethod, LocalSandbox

pytestmark = pytest.mark.anyio
ROW = {"question": "f(x): adds 2", "entry_point": "f", "cases": [{"arguments": [i], "expected": i + 2} for i in (1, 5)]}


async def built(tmp_path: Path, row: dict[str, Any], **settings: Any) -> CodeEnv:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    config = configured(
        PythonFunctionsConfig, dataset_path=str(path), test_path=str(path), batch_size=1, group_size=1, **settings
    )
    train, _ = await config.build()
    [env] = await train.get_batch(0)[0].make_envs()
    assert isinstance(env, CodeEnv)
    return env


@pytest.mark.parametrize(
    ("text", "all_reward", "fraction_reward"),
    [
        ("def f(x): return x + 2", 1.0, 1.0),
        ("Here:\n```python\ndef f(x):\n    return 2 + x\n```", 1.0, 1.0),
        ("def f(x): return 3", 0.0, 0.5),
        ("def g(x): return x + 2", 0.0, 0.0),
        ("def f(x): return x +", 0.0, 0.0),
        ("x + 2", -0.1, -0.1),
        ("", -0.1, -0.1),
        ("def f(x): import os; os._exit(0)", 0.0, 0.0),
    ],
)
async def test_the_reward_of_a_function(
    tmp_path: Path, chat: Prompting, text: str, all_reward: float, fraction_reward: float
) -> None:
    """Catches a program that is not found, one that is graded by its text, and one that ends the grader."""
    assert (await answer_with(await built(tmp_path, ROW), chat, text)).reward == pytest.approx(all_reward)
    env = await built(tmp_path, ROW, code_reward="fraction")
    assert (await answer_with(env, chat, text)).reward == pytest.approx(fraction_reward)


async def test_the_bundled_functions_become_groups() -> None:
    """Catches a config whose defaults do not fit the files, and groups without a tag."""
    config = configured(PythonFunctionsConfig, renderer_name="human_ai", batch_size=8, group_size=4)
    train, test = await config.build()
    assert (len(train), len(test.get_batch(0))) == (75, 100)
    assert train.get_batch(0)[0].logging_tags() == ["python_functions"]
    with pytest.raises(InputError, match="cases must be a list"):
        await built(Path("/tmp"), {**ROW, "cases": []})


def test_deepcoder_tests_are_read_in_every_form_of_the_data() -> None:
    """Catches a part of the data set whose tests would all be left out."""
    stdin = {"input": "1 2", "output": "3", "testtype": "stdin_stdout"}
    call = {"input": "[1]\n2", "output": "3", "testtype": "functional"}
    rows: list[dict[str, Any]] = [
        {"problem": "p", "tests": json.dumps([stdin])},
        {"problem": "p", "tests": [{**stdin, "testtype": "stdin"}], "metadata": {}},
        {"problem": "p", "tests": [call], "metadata": json.dumps({"func_name": "f"})},
        {"problem": "p", "tests": [{"type": "function_call", "fn_name": "f", "input": [[1], 2], "output": [3]}]},
        {"problem": "p", "tests": json.dumps({"inputs": ["1 2"], "outputs": ["3"]})},
        {"problem": "p", "tests": {"fn_name": "f", "inputs": [[[1], 2]], "outputs": [[3]]}},
        {"problem": "p", "tests": {"fn_name": "f", "inputs": [[[1], 2]], "outputs": [3]}},
        {"problem": "p", "tests": {"inputs": [["1 2"]], "outputs": [["3"]]}},
    ]
    tests: list[Any] = []
    for row in rows:
        problem = parse_deepcoder(row, max_tests=15)
        assert problem is not None
        tests += problem.tests
    typed, called = StdinTest(input="1 2", output="3"), FunctionTest(entry_point="f", arguments=[[1], 2], expected=3)
    assert tests == [typed, typed, called, called, typed, called, called, typed]


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ([{"1": 2, "-3": 4}, {"5": 6}], [{1: 2, -3: 4}, {"5": 6}]),
        ([{"1": 2, "a": 4}], [{"1": 2, "a": 4}]),
        ([[{"1": 2}]], [[{"1": 2}]]),
        ([], []),
        ([10**5000], [10**5000]),
    ],
    ids=["whole", "mixed", "inner", "none", "long"],
)
def test_whole_keys_of_a_first_argument_are_integers(arguments: list[Any], read: list[Any]) -> None:
    """Catches a function that gets texts where the judges of APPS and TACO give it integers."""
    inputs = json.dumps(arguments) if arguments != [10**5000] else f"[1{'0' * 5000}]"
    row = {"problem": "p", "tests": f'{{"fn_name": "f", "inputs": [{inputs}], "outputs": [[1]]}}'}
    problem = parse_deepcoder(row, max_tests=15)
    assert problem is not None
    assert problem.tests == [FunctionTest(entry_point="f", arguments=read, expected=1)]


@pytest.mark.parametrize("tests", ["{", [], [3], [{"input": "1"}], [{"input": "1", "output": "2", "testtype": "x"}], 5])
def test_a_problem_without_usable_tests_is_left_out(tests: object) -> None:
    """Catches a hub row that ends a run, and a problem that any program would solve."""
    assert parse_deepcoder({"problem": "p", "tests": tests}, max_tests=15) is None


def test_the_longest_tests_are_kept() -> None:
    """Catches tests cut so that only the examples of the statement are left."""
    tests = [{"input": "1" * n, "output": "2"} for n in (1, 9, 3, 7)]
    problem = parse_deepcoder({"problem": "p", "tests": tests, "starter_code": "class Solution:"}, max_tests=2)
    assert problem is not None
    assert [len(test.input) for test in problem.tests if isinstance(test, StdinTest)] == [9, 7]
    assert "class Solution:" in problem.question


async def test_humaneval_is_graded_by_its_own_check(shared: Path, chat: Prompting) -> None:
    """Catches a test that never calls the function, and answers that fail for want of the prompt's imports."""
    path = shared / "data/humaneval/HumanEval.jsonl"
    row = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    problem = parse_humaneval(row)
    assert problem.preamble.startswith("from typing import List")
    definition = row["prompt"].removeprefix(problem.preamble) + row["canonical_solution"]
    env = CodeEnv(problem, chat, CodeGrading())
    assert (await answer_with(env, chat, f"```python\n{definition}\n```")).reward == 1.0
    wrong = definition.replace("True", "False")
    assert (await answer_with(env, chat, f"```python\n{wrong}\n```")).reward == 0.0
    assert (await answer_with(env, chat, definition)).reward == pytest.approx(-0.1)


async def test_humaneval_is_the_default_evaluation(shared: Path, tmp_path: Path) -> None:
    """Catches a config that reads the test file by the fields of the training set."""
    train = tmp_path / "train.jsonl"
    train.write_text(json.dumps({"problem": "p", "tests": [{"input": "1", "output": "2"}]}))
    humaneval = shared / "data/humaneval/HumanEval.jsonl"
    settings = {"dataset_path": str(train), "test_path": str(humaneval), "batch_size": 1}
    _, test = await configured(DeepCoderConfig, **settings).build()
    assert len(test.get_batch(0)) == 164
    with pytest.raises(InputError, match="the row has no 'tests'"):
        await configured(DeepCoderConfig, test_on="deepcoder", **settings).build()
    with pytest.raises(InputError, match="test_on is 'mbpp'; it must be humaneval or deepcoder"):
        await configured(DeepCoderConfig, test_on="mbpp", **settings).build()


@pytest.mark.parametrize("config", [PythonFunctionsConfig, DeepCoderConfig])
async def test_problems_need_walls_for_their_programs(config: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a run, or its dry run, that finds out only once it has sampled programs that it may not run them."""
    sandbox = LocalSandbox(num_workers=1, method=IsolationMethod.PROCESS)
    monkeypatch.setattr("cookhouse.envs.problems.code.default_sandbox", lambda: sandbox)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with contextlib.closing(sandbox), pytest.raises(InputError, match="not run as root without isolation"):
        await configured(config, batch_size=1).build()

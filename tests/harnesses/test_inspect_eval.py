"""`cookhouse eval --inspect`: tasks of Inspect AI beside benchmarks, resumed, compared and refused."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.chat import Message, text_of
from cookhouse.errors import InputError, ServiceError
from cookhouse.evals import EVALUATORS
from cookhouse.training import FakeService, Interrupt

pytest.importorskip("inspect_ai", reason="needs Inspect AI: make test-harness")
from inspect_ai.log import read_eval_log

# The warnings are of Inspect AI's own code.
pytestmark = [
    pytest.mark.usefixtures("_no_collection"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
_COUNT = 8
_TASKS = """
import asyncio, os
from inspect_ai import Epochs, Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import exact, includes
from inspect_ai.solver import generate, solver

SAMPLES = [Sample(id=f"q{n}", input=str(n), target="odd" if n % 2 else "even") for n in range(8)]

@solver
def pause():
    async def solve(state, generate):
        await asyncio.sleep(float(os.environ.get("PAUSE", "0")) * (int(state.input_text) % 2))
        return state
    return solve

@task
def parity():
    return Task(dataset=SAMPLES, solver=[pause(), generate()], scorer=includes())

@task
def twice():
    return Task(dataset=SAMPLES[:2], scorer=[includes(), exact()], epochs=Epochs(2, ["mean", "max"]),
                config=GenerateConfig(temperature=0.5))
"""
_OWN = """
from cookhouse.adapters import Adapters

def open_completer(name):
    async def answer(messages):
        with open("asked.txt", "a") as file:
            file.write(messages[-1]["content"] + "\\n")
        return {"role": "assistant", "content": "odd"}
    return answer

ADAPTERS = Adapters(completer=open_completer)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tasks, and adapters that answer them and record what they are asked."""
    (tmp_path / "tasks.py").write_text(_TASKS)
    (tmp_path / "own.py").write_text(_OWN)
    shutil.copy(Path(__file__).with_name("tools_task.py"), tmp_path / "tools_task.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answering(answer: Callable[[str], str]) -> Adapters:
    async def complete(messages: Sequence[Message]) -> Message:
        return {"role": "assistant", "content": answer(text_of(messages[-1]))}

    return Adapters(completer=lambda _: complete, sinks=[])


def evaluate(adapters: Adapters, folder: str = "run", **settings: Any) -> Any:
    settings = {"inspect": "tasks.py@parity", "log_path": folder, **settings}
    return cookhouse.run("eval", settings, adapters=adapters)


def _parity(question: str) -> str:
    return "odd" if int(question) % 2 else "even"


def test_a_model_that_uses_the_tool_is_scored(own: Path) -> None:
    """Catches tools that the model never hears of, results that do not go back, and a page that leaves them out."""

    async def complete(messages: Sequence[Message]) -> Message:
        assert [tool["function"]["name"] for tool in messages[0]["tools"]] == ["add"]
        if messages[-1]["role"] == "tool":
            return {"role": "assistant", "content": f"It is {text_of(messages[-1])}."}
        x, y = (int(word) for word in text_of(messages[-1]).replace("?", "").split() if word.isdigit())
        call: Any = {"type": "function", "function": {"name": "add", "arguments": {"x": x, "y": y}}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    result = evaluate(Adapters(completer=lambda _: complete, sinks=[]), inspect="tools_task.py@sums")
    assert result.state.eval_results == {
        "test/inspect/sums/includes/accuracy": 1.0,
        "test/inspect/sums/includes/accuracy_stderr": 0.0,
        "test/inspect/sums/includes/accuracy_n": 2.0,
    }
    page = Path(result.artifacts["inspect/sums/transcripts"]).read_text()
    assert "→ add({&#34;x&#34;: 10, &#34;y&#34;: 4})\ntool: 14\nassistant: It is 14." in page
    log = Path(result.artifacts["inspect/sums/log"])
    assert f"inspect/{log.name}" in page
    assert read_eval_log(str(log)).status == "success"
    assert result.summary.remark == "Inspect AI's own logs: inspect view --log-dir run/inspect"
    assert "evaluations/inspect-sums.html" in (own / "run/report.html").read_text()


@pytest.mark.usefixtures("own")
def test_tasks_stand_beside_benchmarks_and_what_is_finished_is_not_asked_again() -> None:
    """Catches a resume that asks everything again, and figures of several reductions under one name."""
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "even"

    settings: dict[str, Any] = {"inspect": "tasks.py@parity,tasks.py@twice", "benchmark": "arithmetic", "limit": 4}
    first = evaluate(answering(answer), **settings)
    assert len(asked) == 4 + 4 + 2 * 2
    assert first.metrics["test/inspect/parity/includes/accuracy"] == 1.0
    assert first.metrics["test/inspect/parity/includes/accuracy_n"] == 4
    assert first.metrics["test/inspect/twice/includes_max/accuracy"] == 0.5
    assert first.metrics["test/inspect/twice/exact_mean/mean"] == 0.5
    assert first.metrics["test/arithmetic/correct_n"] == 4
    again = evaluate(answering(answer), **settings, behavior_if_log_dir_exists="resume")
    assert len(asked) == 12
    assert again.metrics == first.metrics


@pytest.mark.usefixtures("own")
def test_a_limit_takes_samples_from_all_of_a_task() -> None:
    """Catches the head of a set of data that is sorted."""
    result = evaluate(answering(_parity), limit=2)
    assert [attempt.place for attempt in result.state.inspected[0].attempts] == [0, 4]
    assert [item.name for item in result.state.inspected[0].items.values()] == ["q0", "q4"]


@pytest.mark.usefixtures("own")
def test_a_task_that_fails_goes_on_where_it_did() -> None:
    """Catches samples that are asked again, and an error that is hidden."""
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        if question == "5" and asked.count("5") == 1:
            raise ServiceError("gone")
        return _parity(question)

    with pytest.raises(ServiceError, match=r"the Inspect task parity failed: .*gone") as failed:
        evaluate(answering(answer), max_concurrent_requests=1)
    assert any("its answers are kept; continue with" in note for note in failed.value.__notes__)
    result = evaluate(answering(answer), max_concurrent_requests=1, behavior_if_log_dir_exists="resume")
    assert result.metrics["test/inspect/parity/includes/accuracy"] == 1.0
    assert sorted(asked) == sorted([*map(str, range(_COUNT)), "5"])


@pytest.mark.usefixtures("own")
def test_an_interrupt_keeps_what_is_finished() -> None:
    """Catches a stop that waits for the whole task, and one that loses what was answered."""
    interrupt = Interrupt()
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        if len(asked) == 3:
            interrupt.request()
        return _parity(question)

    settings = {"inspect": "tasks.py@parity", "log_path": "run", "max_concurrent_requests": 1}
    stopped = asyncio.run(cookhouse.run_async("eval", settings, adapters=answering(answer), interrupt=interrupt))
    assert stopped.summary.is_interrupted
    assert not Path("run/result.json").exists()
    assert len(asked) < _COUNT
    whole = evaluate(answering(answer), max_concurrent_requests=1, behavior_if_log_dir_exists="resume")
    assert whole.metrics["test/inspect/parity/includes/accuracy_n"] == _COUNT
    assert set(asked) == set(map(str, range(_COUNT)))
    assert len(asked) <= _COUNT + 1, "one may have been in flight"


def test_a_killed_evaluation_goes_on(own: Path) -> None:
    """Catches finished samples that are lost with the process."""
    words = ["inspect=tasks.py@parity", "--adapters", "own.py:ADAPTERS", "log_path=run"]
    command = [sys.executable, "-m", "cookhouse", "eval", *words]
    asked = own / "asked.txt"
    process = subprocess.Popen(command, env={**os.environ, "PAUSE": "600"}, stdout=subprocess.DEVNULL)
    try:
        wait_until(
            lambda: (asked.exists() and asked.read_text().count("\n") >= _COUNT // 2) or process.poll() is not None
        )
        assert process.poll() is None
        time.sleep(2.0)  # Inspect AI writes what has ended down on a clock of its own
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*command, "behavior_if_log_dir_exists=resume"], check=True, stdout=subprocess.DEVNULL)
    assert sorted(asked.read_text().split()) == sorted(map(str, range(_COUNT)))
    metrics = json.loads((own / "run/result.json").read_text())["metrics"]
    assert metrics["test/inspect/parity/includes/accuracy"] == 0.5


def test_several_models_are_compared_sample_by_sample(own: Path) -> None:
    """Catches differences that are told of means alone."""

    def open_completer(name: str) -> Any:
        async def complete(messages: Sequence[Message]) -> Message:
            question = text_of(messages[-1])
            return {"role": "assistant", "content": _parity(question) if name == "good" or question < "4" else "none"}

        return complete

    result = cookhouse.run(
        "eval",
        {
            "inspect": "tasks.py@parity",
            "weights": "good",
            "compare_with": "poor",
            "log_path": "run",
            "renderer_name": "role_colon",
            "model_name": "cookhouse/tiny",
        },
        adapters=Adapters(completer=open_completer, sinks=[]),
    )
    [difference] = result.state.paired.differences["inspect/parity"]
    assert (difference.mean, difference.n) == (-0.5, _COUNT)
    assert result.metrics["model-2/difference/inspect/parity"] == -0.5
    assert "inspect/parity/includes/accuracy" in (own / "run/comparison.html").read_text()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"inspect": "gone.py"}, r"'gone\.py' cannot be run: No inspect tasks were found"),
        ({"inspect": "tasks.py@gone"}, r"Task named 'gone' not found; name it as for inspect eval"),
        ({"inspect": "nobody/gone"}, "'nobody/gone' cannot be run"),
        ({"inspect": "tasks.py,tasks.py@parity"}, "inspect/parity is named twice"),
        ({"inspect": "tasks.py@parity", "benchmark": "gsm8"}, "did you mean gsm8k"),
    ],
)
def test_bad_input_is_one_error_and_leaves_nothing(own: Path, settings: Mapping[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        evaluate(answering(_parity), **settings)
    assert not (own / "run").exists()


@pytest.mark.usefixtures("own")
def test_a_dry_run_counts_the_samples() -> None:
    plan = cookhouse.dry_run("eval", {"inspect": "tasks.py", "limit": 3, "num_samples": 3})
    assert plan.facts["inspect/parity"] == "3 of 8 samples of tasks.py@parity, 3 times"
    assert plan.facts["inspect/twice"] == "2 of 2 samples of tasks.py@twice, 3 times"
    assert not Path("logs").exists()


def test_a_task_is_an_evaluator_by_its_name(own: Path) -> None:
    """Catches a task that has to be wrapped by hand, and two that collide in one run."""
    assert EVALUATORS.find("tasks.py:parity") is not None
    names = "tasks.py:parity,tasks.py:twice"
    settings = {"max_steps": 1, "batch_size": 2, "num_eval": 2, "evaluators": names, "log_path": "run"}
    cookhouse.run("supervised", settings, adapters=Adapters(service=FakeService().connect, sinks=[]))
    rows = [json.loads(line) for line in (own / "run/metrics.jsonl").read_text().splitlines()]
    for name in ("test/inspect/parity/includes/accuracy_n", "test/inspect/twice/includes_mean/accuracy_n"):
        assert [row["step"] for row in rows if name in row] == [0, 1]
    assert len(list((own / "run/inspect").glob("*.eval"))) == 4

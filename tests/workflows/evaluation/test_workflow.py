"""Evaluations that stand alone: resumed, compared, refused, and marked."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.chat import Message, text_of
from cookhouse.errors import InputError, ServiceError
from cookhouse.runs.reading.answer_sets import AnswerSetReader
from cookhouse.training import Interrupt

COUNT = 24
OWN = """
import asyncio, os
from cookhouse.adapters import Adapters
from cookhouse.evals import Benchmark, BenchmarkItem, Grade

def parse(row):
    async def grade(answer):
        return Grade(correct=float(answer == row["answer"]), metrics={"letters": float(len(answer))})
    return BenchmarkItem(messages=[{"role": "user", "content": row["question"]}], expected=row["answer"], grade=grade)

WORDS = Benchmark(name="words", source="words.jsonl", parse=parse)

def open_completer(name):
    async def answer(messages):
        question = messages[-1]["content"]
        await asyncio.sleep(float(os.environ.get("PAUSE", "0")))
        with open("asked.txt", "a") as file:
            file.write(question + "\\n")
        return {"role": "assistant", "content": "even" if int(question) % 3 else "odd"}
    return answer

ADAPTERS = Adapters(completer=open_completer)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a benchmark of one's own, and adapters that answer it and record what they are asked."""
    (tmp_path / "own.py").write_text(OWN)
    rows = [{"question": str(n), "answer": "odd" if n % 2 else "even"} for n in range(COUNT)]
    (tmp_path / "words.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answering(answer: Any) -> Adapters:
    async def complete(messages: Sequence[Message]) -> Message:
        return {"role": "assistant", "content": answer(text_of(messages[-1]))}

    return Adapters(completer=lambda _: complete, sinks=[])


def evaluate(adapters: Adapters, folder: str = "run", **settings: Any) -> Any:
    settings = {"benchmark": "own.py:WORDS", "log_path": folder, **settings}
    return cookhouse.run("eval", settings, adapters=adapters)


def command(*settings: str) -> list[str]:
    words = ["benchmark=own.py:WORDS", "--adapters", "own.py:ADAPTERS", "max_concurrent_requests=1", *settings]
    return [sys.executable, "-m", "cookhouse", "eval", *words]


@pytest.mark.slow
def test_a_killed_evaluation_goes_on_and_asks_nothing_twice(own: Path) -> None:
    """Catches answers that are kept in memory until the end; and figures over those of the second launch alone."""
    answers = own / "runs/killed/answers.jsonl"
    process = subprocess.Popen(
        command("log_path=runs/killed"), env={**os.environ, "PAUSE": "0.1"}, stdout=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: (answers.exists() and answers.read_bytes().count(b"\n") >= 5) or process.poll() is not None)
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = answers.read_bytes().count(b"\n")
    assert 5 <= kept < COUNT
    # What a crash leaves of a line is no answer.
    with answers.open("ab") as file:
        file.write(b'{"benchmark": "wor')
    asked_before = (own / "asked.txt").read_text().split()
    subprocess.run(
        command("log_path=runs/killed", "behavior_if_log_dir_exists=resume"), check=True, stdout=subprocess.DEVNULL
    )
    asked = (own / "asked.txt").read_text().split()
    assert len(asked_before) - kept in (0, 1), "one may have been in flight"
    assert sorted(set(asked)) == sorted(map(str, range(COUNT)))
    assert len(asked) == COUNT + len(asked_before) - kept
    subprocess.run(command("log_path=runs/whole"), check=True, stdout=subprocess.DEVNULL)
    figures = [json.loads((own / f"runs/{name}/result.json").read_text())["metrics"] for name in ("killed", "whole")]
    assert figures[0] == figures[1]
    right = [("even" if n % 3 else "odd") == ("odd" if n % 2 else "even") for n in range(COUNT)]
    assert figures[0]["test/words/correct"] == sum(right) / COUNT
    assert figures[0]["test/words/letters_n"] == COUNT


def test_what_was_asked_can_be_read_without_the_benchmark(own: Path) -> None:
    """Catches answers of which nobody knows what was asked once the benchmark is gone, and a text without an end."""
    (own / "words.jsonl").write_text(
        "".join(json.dumps({"question": "7" * length, "answer": "odd"}) + "\n" for length in (2, 30_000))
    )
    evaluate(answering(lambda _: "odd"))
    (own / "words.jsonl").unlink()
    rows = [json.loads(line) for line in (own / "run/questions.jsonl").read_text().splitlines()]
    assert rows[0] == {
        "benchmark": "words",
        "item": 0,
        "name": None,
        "group": None,
        "expected": "odd",
        "asked": [["user", "77"]],
    }
    assert rows[1]["asked"][0][1].endswith("777… (10,000 more characters)")
    kept = AnswerSetReader().read(own / "run", None)
    assert (kept.problems, kept.scores) == ([], {("words", 0): 1.0, ("words", 1): 1.0})
    assert [answer.text for answer in kept.answers(("words", 1))] == ["odd"]


@pytest.mark.parametrize("reason", [None, "the time is over"])
def test_an_interrupt_finishes_what_is_asked(own: Path, reason: str | None) -> None:
    interrupt = Interrupt()
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        if len(asked) == 3:
            interrupt.request() if reason is None else interrupt.end(reason)
        return "odd"

    settings = {"benchmark": "own.py:WORDS", "log_path": "run", "max_concurrent_requests": 1}
    result = asyncio.run(cookhouse.run_async("eval", settings, adapters=answering(answer), interrupt=interrupt))
    assert (result.summary.is_interrupted, result.summary.stopped) == (True, reason)
    assert len(asked) == 3
    assert "behavior_if_log_dir_exists=resume" in result.summary.next_command
    assert not (own / "run/result.json").exists()
    whole = evaluate(answering(answer), behavior_if_log_dir_exists="resume")
    assert sorted(asked) == sorted(map(str, range(COUNT)))
    assert whole.metrics["test/words/correct"] == whole.state.eval_results["accuracy"] == 0.5
    assert "accuracy" not in whole.metrics


def test_what_raises_is_counted_and_said(own: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Catches an answer that is missing being left out of the mean."""

    def answer(question: str) -> str:
        if question == "3":
            raise RuntimeError("lost <it>")
        return "odd"

    result = evaluate(answering(answer))
    assert result.metrics["test/words/correct"] == pytest.approx(11 / 24)
    assert result.metrics["test/words/correct_n"] == COUNT
    assert result.metrics["test/words/failed"] == pytest.approx(1 / 24)
    assert "words: 1 of 24 answers failed, most of them because of this: RuntimeError: lost <it>" in caplog.messages
    page = Path(result.artifacts["words/transcripts"]).read_text()
    assert "no answer: RuntimeError: lost &lt;it&gt;" in page
    assert [word for word in ("right", "wrong", "failed") if f'<section id="{word}">' in page] == [
        "right",
        "wrong",
        "failed",
    ]
    report = (own / "run/report.html").read_text()
    assert "evaluations/words.html" in report
    assert "checkpoints.jsonl is missing" not in report
    assert re.search(r"test/words/correct</td><td>46%, 28 to 65%, of 24<", report)


@pytest.mark.usefixtures("own")
def test_a_service_that_fails_ends_it_and_it_goes_on() -> None:
    def answer(question: str) -> str:
        if question == "9":
            raise ServiceError("gone")
        return "odd"

    with pytest.raises(ServiceError, match="gone") as failed:
        evaluate(answering(answer), max_concurrent_requests=1)
    assert any("its answers are kept; continue with" in note for note in failed.value.__notes__)
    result = evaluate(answering(lambda _: "odd"), behavior_if_log_dir_exists="resume", max_concurrent_requests=2)
    assert result.metrics["test/words/correct"] == 0.5


def test_samples_and_their_seeds(own: Path) -> None:
    result = evaluate(answering(lambda _: "odd"), num_samples=3)
    assert [len(attempt.answers) for attempt in result.state.log.attempts("words")] == [3] * COUNT
    assert {name for name in result.metrics if "pass@" in name and not name.endswith(("_stderr", "_n"))} == {
        "test/words/pass@1",
        "test/words/pass@2",
        "test/words/pass@3",
    }
    with pytest.raises(InputError, match=r"num_samples=2, but the run .* was started with 3"):
        evaluate(answering(lambda _: "odd"), num_samples=2, behavior_if_log_dir_exists="resume")
    assert (own / "run/answers.jsonl").exists()


def test_changed_data_is_refused_on_a_resume(own: Path) -> None:
    evaluate(answering(lambda _: "odd"))
    with (own / "words.jsonl").open("a") as file:
        file.write('{"question": "99", "answer": "odd"}\n')
    with pytest.raises(InputError, match=r"words\.jsonl has changed"):
        evaluate(answering(lambda _: "odd"), behavior_if_log_dir_exists="resume")


def test_several_models_are_compared_item_by_item(own: Path) -> None:
    def open_completer(name: str) -> Any:
        async def complete(messages: Sequence[Message]) -> Message:
            question = int(text_of(messages[-1]))
            is_odd = question % 2 if name == "good" or question < 6 else 1
            return {"role": "assistant", "content": "odd" if is_odd else "even"}

        return complete

    adapters = Adapters(completer=open_completer, sinks=[])
    # What no catalog knows is asked by name alone.
    settings = {"renderer_name": "role_colon", "model_name": "cookhouse/tiny"}
    result = evaluate(adapters, weights="good", compare_with='["<b>poor,er"]', **settings)
    [difference] = result.state.paired.differences["words"]
    wrong = [place for place in range(COUNT) if place % 2 == 0 and place >= 6]
    assert difference.mean == -len(wrong) / COUNT
    assert difference.n == COUNT
    assert difference.is_clear
    assert result.metrics["model-2/difference/words"] == difference.mean
    assert result.metrics["model-1/test/words/correct"] == 1.0
    page = (own / "run/comparison.html").read_text()
    assert f"{difference.mean:+.4f} [" in page
    assert "&lt;b&gt;poor,er" in page
    assert "<b>poor" not in page


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"benchmark": "gsm8"}, "did you mean gsm8k"),
        ({"benchmark": "own.py:ADAPTERS"}, "not a benchmark; a benchmark is an object of cookhouse.evals.Benchmark"),
        ({"weights": "gone@7"}, "gone"),
        (
            {"weights": "tinker://nobody/weights/x"},
            "nothing on this machine names the base model of tinker://nobody/weights/x",
        ),
        ({"compare_with": "gone@7"}, "gone"),
        ({"compare_with": "cookhouse/tinny"}, "cookhouse/tinny"),
        ({"compare_with": '["a"'}, "compare_with is no JSON list"),
        ({"compare_with": "[3]"}, "write names of weights"),
        ({"limit": 0}, "limit is 0; it must be at least 1"),
        ({"num_samples": 0}, "num_samples is 0"),
        ({"inspect": "task.py"}, r"needs Inspect AI, which is not installed: .*\[inspect\]"),
    ],
)
def test_bad_input_is_one_error_and_leaves_nothing(
    own: Path, settings: Mapping[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai", None)  # as if it were not installed
    with pytest.raises(InputError, match=said):
        evaluate(answering(lambda _: "odd"), **settings)
    assert not (own / "run").exists()

"""Items with choices: the likeliest is the answer, as a client that gives each letter a logprob of its own finds it."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import tinker

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.chat import Message, get_renderer
from cookhouse.data import build_renderer
from cookhouse.errors import InputError, ServiceError
from cookhouse.evals import (
    AnswerOptions,
    AttemptLog,
    Benchmark,
    LoadedBenchmark,
    OpenAIAnswerer,
    SamplingAnswerer,
    ask_benchmark,
    choice_item,
)
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.training import FakeService
from cookhouse.workflows.evaluation.attempt_files import AttemptFiles

QUESTION: list[Message] = [{"role": "user", "content": "Where?"}]
CHOICES = ["in a hole", "up", "Rome"]


class Client:
    """Finds every token as likely as its id says, and records what it was asked to score."""

    def __init__(self, unknown_at: int | None = None) -> None:
        self.asked: list[list[int]] = []
        self.unknown_at = unknown_at

    async def compute_logprobs(self, prompt: tinker.ModelInput) -> list[float | None]:
        tokens = prompt.to_ints()
        self.asked.append(tokens)
        found: list[float | None] = [None, *map(logprob, tokens[1:])]
        if self.unknown_at is not None:
            found[self.unknown_at] = None
        return found

    async def sample(self, *args: Any) -> tinker.SampleResponse:
        raise AssertionError(f"a choice is not sampled: {args}")


def logprob(token: int) -> float:
    return -0.5 - (token * 7919 % 101) / 50


def loaded(right: int = 0) -> LoadedBenchmark:
    benchmark = Benchmark(name="places", source="nowhere.jsonl", parse=lambda _: None)
    return LoadedBenchmark(benchmark=benchmark, items={0: choice_item(QUESTION, CHOICES, right)}, num_all=1)


async def answered(answerer: Any, options: AnswerOptions, log: AttemptLog, right: int = 0) -> AttemptLog:
    await ask_benchmark(loaded(right), answerer, options, log)
    return log


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["qwen3_instruct", "human_ai"])
async def test_the_likeliest_whole_answer(name: str, tmp_path: Path) -> None:
    """Catches logprobs of the prompt among those of the choice, a choice that is scored without its end, and one in
    other tokens than those that training would teach.
    """
    renderer = get_renderer(name, get_tokenizer("cookhouse/tiny"))
    client = Client()
    log = await answered(SamplingAnswerer(client, renderer), AnswerOptions(num_samples=2), AttemptFiles(tmp_path))
    endings = [renderer.build_response([*QUESTION, {"role": "assistant", "content": choice}]) for choice in CHOICES]
    prompt = renderer.build_generation_prompt(QUESTION).to_ints()
    assert client.asked == [[*prompt, *ending] for ending in endings]
    wanted = [math.fsum(map(logprob, ending)) for ending in endings]
    first, second = log.answers["places", 0]
    assert first == second
    assert list(first.logprobs) == CHOICES
    assert list(first.logprobs.values()) == pytest.approx(wanted, abs=1e-12)
    likeliest = wanted.index(max(wanted))
    assert first.text == CHOICES[likeliest]
    by_length = [value / len(choice) for value, choice in zip(wanted, CHOICES, strict=True)]
    for right in range(len(CHOICES)):
        graded = AttemptLog()
        graded.answers = {("places", 0): [first]}
        grade = (await answered(None, AnswerOptions(), graded, right)).grades["places", 0][0]
        assert grade.correct == float(right == likeliest)
        assert grade.metrics == {"correct_norm": float(right == by_length.index(max(by_length)))}
    # As it stands in the files of the evaluation.
    assert AttemptFiles(tmp_path).answers["places", 0][0].logprobs == first.logprobs


@pytest.mark.anyio
async def test_what_cannot_be_scored() -> None:
    renderer = build_renderer("cookhouse/tiny", "human_ai")
    length = renderer.build_generation_prompt(QUESTION).length
    longest = length + max(
        len(renderer.build_response([*QUESTION, {"role": "assistant", "content": choice}])) for choice in CHOICES
    )
    enough = await answered(
        SamplingAnswerer(Client(), renderer, context_tokens=longest + 1), AnswerOptions(), AttemptLog()
    )
    assert enough.answers["places", 0][0].error is None
    short = await answered(SamplingAnswerer(Client(), renderer, context_tokens=longest), AnswerOptions(), AttemptLog())
    assert "longest choice" in str(short.answers["places", 0][0].error)
    assert short.grades["places", 0][0].correct == 0.0
    with pytest.raises(ServiceError, match=r"logprobs of a choice of"):
        await answered(SamplingAnswerer(Client(unknown_at=length), renderer), AnswerOptions(), AttemptLog())
    with pytest.raises(InputError, match=r"http://nowhere/v1/chat/completions gives texts, .* evaluate weights"):
        await answered(OpenAIAnswerer("http://nowhere/v1", "model"), AnswerOptions(), AttemptLog())


@pytest.mark.parametrize(
    ("choices", "right", "said"),
    [
        (["one"], 0, "two or more different texts"),
        (["one", "one"], 0, "two or more different texts"),
        (["one", 2], 0, "two or more different texts"),
        ("yes", 0, "a list of two or more"),
        (None, 0, "a list of two or more"),
        (["one", "two"], 2, "from 0 to 1"),
        (["one", "two"], "one", "from 0 to 1"),
        (["one", "two"], True, "from 0 to 1"),
        (["one", "two"], -1, "from 0 to 1"),
    ],
)
def test_bad_choices_are_refused(choices: Any, right: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        choice_item(QUESTION, choices, right)


def test_an_evaluation_of_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a file of one's own to figures and the page, with a service that makes its answers up."""
    monkeypatch.chdir(tmp_path)
    Path("places.py").write_text(
        "from cookhouse.evals import Benchmark, choice_item\n"
        "def parse(row):\n"
        "    asked = [{'role': 'user', 'content': row['question']}]\n"
        "    return choice_item(asked, row['choices'], row['answer'])\n"
        "PLACES = Benchmark(name='places', source='places.jsonl', parse=parse)\n"
    )
    rows = [{"question": f"Where is {n}?", "choices": [f"<{n}>", "far away"], "answer": n % 2} for n in range(6)]
    Path("places.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {"benchmark": "places.py:PLACES", "log_path": "run", "weights": "cookhouse/tiny"}
    result = cookhouse.run("eval", settings, adapters=Adapters(service=FakeService().connect, sinks=[]))
    answers = [json.loads(line)["values"][0] for line in Path("run/answers.jsonl").read_text().splitlines()]
    assert all(len(answer["logprobs"]) == 2 for answer in answers)
    assert result.metrics["test/places/correct_n"] == 6.0
    assert 0.0 <= result.metrics["test/places/correct_norm"] <= 1.0
    page = Path(result.artifacts["places/transcripts"]).read_text()
    assert "logprobs: " in page
    assert "&lt;3&gt;" in page

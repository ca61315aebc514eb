"""Weights as a model of lm-evaluation-harness, beside the harness's own model of the same weights."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.chat import Message, Renderer, get_renderer
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer

lm_eval = pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: make test-harness")
pytest.importorskip("datasets", reason="needs datasets")
lm_eval_model = pytest.importorskip("cookhouse.harnesses.lm_eval_model")

_FACTS = [
    ("The capital of France is", [" Paris", " London", " a city called Rome"], 0),
    ("Water is made of hydrogen and", [" iron.", " oxygen.", " salt."], 1),
    ("The sun rises in the ", ["west", "north", "east"], 2),
    ("Two plus two is", [" three", " four", " five, or so they say"], 1),
    ("The opposite of hot is", [" warm", " cold", " dry"], 1),
    ("", ["The cat sat on the mat.", "Mat the on sat cat the.", "Zyx"], 0),
    ("A week has seven", [" days", " months", " years"], 0),
    ("Émile Zola était un", [" écrivain français", " 作家", " river"], 0),
    ("def add(a, b):\n    return a", [" + b", " - b", "\n\n\n"], 0),
    ("The largest planet is", [" Jupiter", " Mars", " Venus"], 0),
]
_TEXTS = ["It was a dark and stormy night.", "1 2 3 4 5 6 7 8 9 10. " * 4, "x"]
_CHOICES = {"output_type": "multiple_choice", "doc_to_choice": "choices", "doc_to_target": "answer"}
_ROLLING = {"output_type": "loglikelihood_rolling", "doc_to_target": "{{text}}"}
_WRITING = {"output_type": "generate_until", "doc_to_target": "{{choices[answer]}}"}
_QUIZ = """
from cookhouse.evals import Benchmark, BenchmarkItem, Grade, choice_item

def choose(row):
    return choice_item([{"role": "user", "content": row["question"]}], row["choices"], row["answer"])

def say(row):
    right = row["choices"][row["answer"]]
    async def grade(answer):
        return Grade(correct=float(answer.rstrip(".,").split(" ")[-1] == right))
    return BenchmarkItem(messages=[{"role": "user", "content": row["question"]}], expected=right, grade=grade)

CHOSEN = Benchmark(name="chosen", source="facts.jsonl", parse=choose)
SAID = Benchmark(name="said", source="facts.jsonl", parse=say, max_tokens=12)
"""
_LAST_WORD = {"function": "regex", "regex_pattern": r"([^ ]*?)[.,]*$", "group_select": 0}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tasks over files of our own: choices, whole texts, and answers written out."""
    folder = tmp_path_factory.mktemp("tasks")
    rows = [{"question": question, "choices": choices, "answer": answer} for question, choices, answer in _FACTS]
    _add_task(folder, "facts", rows, _CHOICES, [{"metric": "acc"}, {"metric": "acc_norm"}], "{{question}}", "")
    texts = [{"text": text} for text in _TEXTS]
    _add_task(folder, "texts", texts, _ROLLING, [{"metric": "bits_per_byte"}], "", "")
    until = {"generation_kwargs": {"until": ["\n", "."], "max_gen_toks": 8}}
    _add_task(folder, "written", rows, _WRITING | until, [{"metric": "exact_match"}], "Say {{question}}", " ")
    return folder


@pytest.fixture
def tiny() -> Iterator[Any]:
    model = lm_eval_model.CookhouseLM("cookhouse/tiny", max_length=40)
    yield model
    model.close()


@pytest.mark.slow
@pytest.mark.real
def test_it_agrees_with_the_harness_s_own_model(smollm2: Path, tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches tokens split otherwise between context and continuation, logprobs of the wrong positions, a wrong greedy
    flag, and windows of long texts that overlap.
    """
    monkeypatch.setenv("COOKHOUSE_PRECISION", "float32")
    args = {"max_length": 64}
    ours = _evaluate(tasks, "cookhouse", {"weights": str(smollm2), **args})
    theirs = _evaluate(tasks, "hf", {"pretrained": str(smollm2), "dtype": "float32", **args}, device="cpu")
    for name, num_compared in (("facts", 3 * len(_FACTS)), ("texts", len(_TEXTS))):
        pairs = list(zip(_answers(ours, name), _answers(theirs, name), strict=True))
        assert len(pairs) == num_compared
        assert max(abs(our[0] - their[0]) for our, their in pairs) < 1e-3
        assert [our[1:] for our, _ in pairs] == [their[1:] for _, their in pairs]
    assert _answers(ours, "written") == _answers(theirs, "written")
    for name, metric in (("facts", "acc,none"), ("facts", "acc_norm,none"), ("written", "exact_match,none")):
        assert ours["results"][name][metric] == theirs["results"][name][metric]
    assert 0 < ours["results"]["facts"]["acc,none"] < 1


@pytest.mark.slow
@pytest.mark.real
def test_cookhouse_eval_agrees_with_it(smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches prompts in other tokens than the text that a harness is given, choices that are scored without their ends
    or with a neighbor's prompt, and greedy answers or last words that are not the model's.
    """
    monkeypatch.setenv("COOKHOUSE_PRECISION", "float32")
    monkeypatch.chdir(tmp_path)
    # A chat format encodes its parts apart: white space at the end of one is not that of the text as a whole.
    facts = [
        {"question": question.strip(), "choices": [choice.strip() for choice in choices], "answer": answer}
        for question, choices, answer in _FACTS
        if question and "\n" not in question
    ]
    Path("quiz.py").write_text(_QUIZ)
    Path("facts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in facts))
    ours = cookhouse.run(
        "eval",
        {
            "weights": str(smollm2),
            "renderer_name": "human_ai",
            "force_renderer": True,
            "benchmark": "quiz.py:CHOSEN,quiz.py:SAID",
            "log_path": "run",
        },
        adapters=Adapters.local(sinks=[]),
    )
    rows = [json.loads(line) for line in Path("run/answers.jsonl").read_text().splitlines()]
    answers = {(row["benchmark"], row["item"]): row["values"][0] for row in rows}

    renderer = get_renderer("human_ai", get_tokenizer(str(smollm2)))
    prompts = [_asked(renderer, row) for row in facts]
    _add_task(tmp_path, "chosen", prompts, _CHOICES, [{"metric": "acc"}], "{{prompt}}", "")
    greedy = {"generation_kwargs": {"until": ["\n"], "max_gen_toks": 12, "do_sample": False}}
    last_word = {"filter_list": [{"name": "word", "filter": [_LAST_WORD, {"function": "take_first"}]}]}
    says = {"output_type": "generate_until", "doc_to_target": "{{right}}", **greedy, **last_word}
    _add_task(tmp_path, "said", prompts, says, [{"metric": "exact_match"}], "{{prompt}}", "")
    hf = {"pretrained": str(smollm2), "dtype": "float32"}
    theirs = _evaluate(tmp_path, "hf", hf, names=("chosen", "said"), device="cpu")

    for place, sample in enumerate(_samples(theirs, "chosen")):
        logprobs = answers["chosen", place]["logprobs"].values()
        for our, (their, _) in zip(logprobs, sample["filtered_resps"], strict=True):
            assert abs(our - their) < 1e-3
    for place, sample in enumerate(_samples(theirs, "said")):
        assert answers["said", place]["text"] == sample["resps"][0][0].strip()
    assert ours.metrics["test/chosen/correct"] == theirs["results"]["chosen"]["acc,none"]
    assert ours.metrics["test/said/correct"] == theirs["results"]["said"]["exact_match,word"]
    assert 0 < ours.metrics["test/chosen/correct"] < 1
    assert 0 < ours.metrics["test/said/correct"] < 1


def test_scores_of_the_embedded_model(tiny: Any) -> None:
    """Catches a likelihood that is not the sum over the continuation alone: its parts add up to the whole."""
    whole, first, last = tiny.loglikelihood(
        [
            _request("How are you", " today? Fine."),
            _request("How are you", " today?"),
            _request("How are you today?", " Fine."),
        ],
        disable_tqdm=True,
    )
    assert math.isclose(whole[0], first[0] + last[0], abs_tol=1e-3)
    assert whole[1] == (first[1] and last[1])


def test_greedy_answers_are_called_greedy(tiny: Any) -> None:
    """Catches a flag that is never set, or always."""
    [text] = tiny.generate_until([_request("Maria went to", {"until": ["."], "max_gen_toks": 6})], disable_tqdm=True)
    assert text
    assert "." not in text
    greedy, other = tiny.loglikelihood([_request("Maria went to", text), _request("Maria went to", " xylophone")], True)
    assert greedy[1]
    assert not other[1]
    assert greedy[0] > other[0]


def test_long_texts_are_scored_in_windows(tiny: Any) -> None:
    """Catches tokens that are scored twice or not at all: scored in one window and in several, most count the same."""
    text = "Maria went to the park. " * 10
    [windows] = tiny.loglikelihood_rolling([_request(text)], disable_tqdm=True)
    num_tokens = len(tiny.tok_encode(text))
    assert num_tokens > tiny.max_length
    parts = tiny._windows(text)
    assert sum(len(end) for _, end in parts) == num_tokens
    assert math.isclose(
        windows, sum(score for score, _ in tiny._loglikelihood_tokens([(None, *p) for p in parts], True))
    )


def test_conversations_take_the_model_s_own_form(tiny: Any) -> None:
    """Catches a prompt that is put into another form than the one the weights were trained in."""
    history = [{"role": "user", "content": "Hello"}]
    prompt = tiny.tok_encode(tiny.apply_chat_template(history))
    assert prompt == tiny._weights.renderer.build_generation_prompt(history).to_ints()
    begun = tiny.apply_chat_template([*history, {"role": "assistant", "content": "Well"}], add_generation_prompt=False)
    assert begun == tiny.apply_chat_template(history) + "Well"


def test_what_cannot_be_done_is_refused(tiny: Any) -> None:
    with pytest.raises(InputError, match="takes no argument 'dtype'; it takes weights"):
        lm_eval_model.CookhouseLM("cookhouse/tiny", dtype="float32")
    with pytest.raises(InputError, match="a task sets num_beams = 4"):
        tiny.generate_until([_request("Hello", {"num_beams": 4, "max_gen_toks": 4})], disable_tqdm=True)
    with pytest.raises(InputError, match="a continuation has"):
        tiny.loglikelihood([_request("Hello", " there" * 100)], disable_tqdm=True)
    with pytest.raises(InputError, match="asks for 50 tokens of the 40"):
        tiny.generate_until([_request("Hello", {"max_gen_toks": 50})], disable_tqdm=True)


def _request(*args: Any) -> Any:
    from lm_eval.api.instance import Instance

    return Instance(request_type="loglikelihood", doc={}, arguments=args, idx=0)


def _asked(renderer: Renderer, row: dict[str, Any]) -> dict[str, Any]:
    """A fact as texts: the prompt, and each choice with the end of an answer."""
    question: list[Message] = [{"role": "user", "content": row["question"]}]
    decode = renderer.encoder.decode
    choices = [
        decode(renderer.build_response([*question, {"role": "assistant", "content": choice}]))
        for choice in row["choices"]
    ]
    prompt = decode(renderer.build_generation_prompt(question).to_ints())
    return {"prompt": prompt, "choices": choices, "answer": row["answer"], "right": row["choices"][row["answer"]]}


def _evaluate(
    tasks: Path,
    model: str,
    args: dict[str, Any],
    *,
    names: Sequence[str] = ("facts", "texts", "written"),
    **others: Any,
) -> dict[str, Any]:
    from lm_eval.tasks import TaskManager

    given = {"model": model, "model_args": args, "tasks": list(names), "batch_size": 1, **others}
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    return dict(lm_eval.simple_evaluate(**given, task_manager=manager))


def _samples(result: dict[str, Any], task: str) -> list[dict[str, Any]]:
    return sorted(result["samples"][task], key=lambda sample: int(sample["doc_id"]))


def _answers(result: dict[str, Any], task: str) -> list[Any]:
    """Of every request, in order; a whole text has a number alone."""
    answers = [answer for sample in _samples(result, task) for answer in sample["filtered_resps"]]
    return [answer if isinstance(answer, tuple | list | str) else (answer,) for answer in answers]


def _add_task(
    folder: Path, name: str, rows: list[Any], form: dict[str, Any], metrics: list[Any], prompt: str, delimiter: str
) -> None:
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(file)}},
        "test_split": "test",
        "doc_to_text": prompt,
        "target_delimiter": delimiter,
        "metric_list": metrics,
        **form,
    }
    (folder / f"{name}.yaml").write_text(json.dumps(config))  # which is YAML

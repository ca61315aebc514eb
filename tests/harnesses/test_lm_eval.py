"""Weights as a model of lm-evaluation-harness, beside the harness's own model of the same weights."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cookhouse.errors import InputError

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


def _evaluate(tasks: Path, model: str, args: dict[str, Any], **others: Any) -> dict[str, Any]:
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    names = ["facts", "texts", "written"]
    return dict(
        lm_eval.simple_evaluate(model=model, model_args=args, tasks=names, task_manager=manager, batch_size=1, **others)
    )


def _answers(result: dict[str, Any], task: str) -> list[Any]:
    """Of every request, in order; a whole text has a number alone."""
    samples = sorted(result["samples"][task], key=lambda sample: sample["doc_id"])
    answers = [answer for sample in samples for answer in sample["filtered_resps"]]
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

"""Supervised runs on labelled rows."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.chat import get_renderer
from cookhouse.data.rows.conversations import conversations_from_rows
from cookhouse.errors import InputError
from cookhouse.evals import labels_of
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.training import FakeService

LABELS = ["good", "bad", "odd"]
EXPECTED = ["good", "good", "bad", "odd", "good", "bad", "bad", "odd"]
SAID = ["good", "bad", "bad", "no idea", "good", "bad", "good", "good"]


def write(path: Path, answers: Sequence[str]) -> str:
    rows = [{"input": f"number {index}", "output": answer} for index, answer in enumerate(answers)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run(folder: Path, expected: Sequence[str] = EXPECTED, **settings: Any) -> Any:
    tokenizer = get_tokenizer("cookhouse/tiny")
    renderer = get_renderer("role_colon", tokenizer)

    def answer(theta: object, prompt_T: Sequence[int], chance: np.random.Generator) -> Sequence[int]:
        del theta, chance
        text = str(tokenizer.decode(list(prompt_T)))
        said = next(word for index, word in enumerate(SAID) if f"number {index}" in text)
        messages: Any = [{"role": "user", "content": "x"}, {"role": "assistant", "content": said}]
        return renderer.build_response(messages)

    values = {
        "dataset_path": write(folder / "train.jsonl", EXPECTED),
        "test_path": write(folder / "test.jsonl", expected),
        "renderer_name": "role_colon",
        "log_path": str(folder / "run"),
        "batch_size": 4,
        "max_steps": 1,
        "labels": ",".join(LABELS),
        **settings,
    }
    return cookhouse.run("supervised", values, adapters=Adapters(service=FakeService(answer=answer).connect, sinks=[]))


@pytest.mark.parametrize("averaging", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("labels", ["good,bad,odd", "auto"])
def test_the_results_are_scikit_learns(tmp_path: Path, averaging: str, labels: str) -> None:
    found = run(tmp_path, labels=labels, label_averaging=averaging).state.eval_results
    precision, recall, f1, _ = precision_recall_fscore_support(
        EXPECTED, SAID, labels=LABELS, average=averaging, zero_division=0.0
    )
    assert found["test/accuracy"] == accuracy_score(EXPECTED, SAID)
    assert found["test/accuracy_n"] == len(EXPECTED)
    assert (found["test/precision"], found["test/recall"], found["test/f1"]) == pytest.approx((precision, recall, f1))
    assert found["test/averaging"] == averaging
    plain = {name: found[name] for name in ("accuracy", "precision", "recall", "f1")}
    assert plain == {name: found[f"test/{name}"] for name in plain}


def test_reasoning_before_a_label_is_no_part_of_it() -> None:
    """Catches classes that no answer can be of, as each row's reasoning is another."""
    rows = [{"input": "x", "output": f"<think>{n}</think>\n{'even' if n % 2 else 'odd'}"} for n in range(8)]
    renderer = get_renderer("qwen3", get_tokenizer("cookhouse/tiny"))
    assert labels_of("auto", conversations_from_rows(rows), renderer) == ["even", "odd"]


def test_without_labels_nothing_of_classes_is_told(tmp_path: Path) -> None:
    assert not {"test/accuracy", "test/f1"} & run(tmp_path, labels="").state.eval_results.keys()


@pytest.mark.parametrize(
    ("expected", "labels", "said"),
    [
        ([*EXPECTED[:7], "weird"], "good,bad,odd", r"test\.jsonl:8: the answer 'weird' is none of labels=good,bad,odd"),
        (EXPECTED, "good", "name at least two"),
        ([f"answer {n}" for n in range(8)], "auto", "found 11 different answers in 16 conversations"),
    ],
)
def test_labels_outside_the_set_are_refused(tmp_path: Path, expected: Sequence[str], labels: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        run(tmp_path, expected, labels=labels)
    assert not (tmp_path / "run").exists()

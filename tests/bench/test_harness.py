"""Catches a benchmark that takes the embedded model alone, and records that do not say what they were measured on."""

import argparse
import json
from pathlib import Path

import pytest
from bench.harness import save_record
from bench.processor import calibrate, share_of_peak
from bench.supervised import make_case
from tests.engine.conftest import save_tokenizer
from transformers import LlamaConfig

from bench import harness
from cookhouse.assets import data_file


def test_a_folder_is_rendered_in_its_own_chat_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch the embedded model's format asked of a tokenizer that has no tokens for it."""
    LlamaConfig(vocab_size=264).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    said = "{{ message['role'] + ': ' + message['content'] + '<|im_end|>' }}"
    template = "{% for message in messages %}" + said + "{% endfor %}"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": template}))
    few = tmp_path / "few.jsonl"
    few.write_text("".join(data_file("conversations/train.jsonl").read_text().splitlines(keepends=True)[:8]))
    monkeypatch.setattr("cookhouse.assets.data_file", lambda _name: few)
    case = make_case(
        argparse.Namespace(
            model=str(tmp_path),
            device="cpu",
            join=1,
            max_length=4096,
            batch_size=2,
            warmup=0,
            steps=2,
            rank=4,
            learning_rate=1e-3,
        ),
        tmp_path / "made",
    )
    assert [len(batch) for batch in case.batches] == [2, 2]
    assert all(sum(weights) > 0 for batch in case.batches for _, weights in batch)


def test_a_record_names_the_processor_and_the_share_of_what_it_could_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch figures of two kinds of machine that nobody can compare."""
    processor = {"model": "X", "cores": 2, "gflops_per_core": {"bfloat16": 50.0}, "memory_gb_per_second": 9.0}
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "isolated", lambda _function: processor)
    save_record("one", {"device": "cpu"}, {"ours": 3.0}, {"ours": ("bfloat16", 25e9)})
    record = json.loads((tmp_path / "one.json").read_text())
    assert record["processor"] == processor
    assert record["figures"] == {"ours": 3.0, "ours_share_of_peak": 0.25}


def test_the_calibration_counts_each_product_and_each_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.processor._best_seconds", lambda work: (work(), 0.5)[1])
    found = calibrate()
    cores = found["cores"]
    assert found["model"]
    assert found["gflops_per_core"] == dict.fromkeys(("float32", "bfloat16"), 2 * 1024**3 / 0.5 / cores / 1e9)
    assert found["memory_gb_per_second"] == 2 * 2**28 / 0.5 / 1e9
    assert share_of_peak(found, "float32", 2 * 1024**3 / 0.5) == pytest.approx(1.0)

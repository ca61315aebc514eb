"""Which of its two sets of defaults a recipe takes is said where one looks: describe, help, dry run and run."""

import re
from pathlib import Path

import pytest

from cookhouse.cli import main

EMBEDDED = "those for cookhouse/tiny (eval_every 40, learning_rate 0.005, dataset_path bundled, batch_size 32)"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def say(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    out, err = capsys.readouterr()
    assert caught.value.code == 0, err
    return re.sub(r"[ \n]+", " ", out)


def test_describe_names_the_set_and_what_comes_from_it(capsys: pytest.CaptureFixture[str]) -> None:
    out = say(capsys, "describe", "supervised")
    assert f"defaults: {EMBEDDED}" in out
    assert "model_name = cookhouse/tiny renderer_name" in out
    assert "batch_size = 32 (embedded default)" in out
    assert "lora_rank = 32 " in out
    out = say(capsys, "describe", "supervised", "batch_size=8", "model_name=meta-llama/Llama-3.1-8B")
    assert (
        "as published, for meta-llama/Llama-3.1-8B (eval_every 0, learning_rate 0.0002, dataset_path no_robots)" in out
    )
    assert "batch_size = 8 (from key=value)" in out


def test_with_a_key_alone_describe_shows_what_came_in_the_place_of_the_published_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-key")
    assert "model_name = Qwen/Qwen3.5-9B-Base (published default)" in say(capsys, "describe", "dpo")


def test_help_shows_both_sets(capsys: pytest.CaptureFixture[str]) -> None:
    assert "[default: 32 for cookhouse/tiny, else 256 (published)]" in say(capsys, "run", "dpo", "--help-all")


def test_dry_run_and_run_say_it_in_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    small = ("max_steps=1", "num_eval=2", "--adapters", "noop")
    assert f" defaults {EMBEDDED}" in say(capsys, "run", "supervised", *small, "--dry-run")
    assert "grad_clip_norm = 0.0" in say(capsys, "run", "supervised", *small, "--dry-run", "--verbose")
    assert f"defaults: {EMBEDDED}" in say(capsys, "run", "supervised", *small, "log_path=run")

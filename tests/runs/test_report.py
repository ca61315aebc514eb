import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from tests.pages.reader import Page

from cookhouse.errors import InputError
from cookhouse.runs import write_report

HOSTILE = "</td></svg><script>alert(1)</script><img src=x onerror=alert(1)>\" ' & \x1b[2J\u202e\ud800"


def run_folder(path: Path, *, said: str = "hello", rows: Any = None) -> Path:
    """A run of three steps with everything that a folder can hold; `said` stands wherever a text can."""
    odd = f"odd/{said}"
    rows = rows or [
        {"step": 0, "train/loss": 6.5, "test/nll": 6.0, "test/exact_match": 0.0, "optim/lr": 0.01, odd: 1.0},
        {"step": 1, "train/loss": 3.25, "test/nll": 2.0, "test/exact_match": 0.5, "optim/lr": 0.005, odd: 1.0},
        {"step": 2, "train/loss": 4.0, "test/nll": 3.0, "test/exact_match": 0.25, "optim/lr": 0.0, odd: 1.0},
    ]
    (path / "samples").mkdir(parents=True)
    (path / "rollouts").mkdir()
    config = {"model_name": said, "batch_size": 4, f"key {said}": [said], "seed": 5}
    record = {"recipe": f"supervised {said}", "config": config, "seed": 5, "version": "1", "revision": None}
    point = {"epoch": 0, "batch": 3, "step": 3, "state_path": said, "sampler_path": None}
    (path / "config.json").write_text(json.dumps(record))
    (path / "run.json").write_text(json.dumps({"launches": [LAUNCH]}))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "checkpoints.jsonl").write_text(json.dumps({"name": "final", "final": True, **point}) + "\n")
    for step, is_correct in ((0, False), (3, True)):
        answer = {"prompt": said, "expected": said, "answer": f"at {step}: {said}", "is_correct": is_correct}
        (path / "samples" / f"{step:06d}.json").write_text(json.dumps([answer]))
    (path / "rollouts" / "000002.html").write_text("")
    return path


def report(folder: Path) -> Page:
    path = write_report(folder)
    assert path == folder / "report.html"
    return Page(path.read_text(encoding="utf-8"))


def charts(folder: Path) -> list[Any]:
    return Page((folder / "report.html").read_text(encoding="utf-8")).charts


def test_everything_in_a_run_folder_is_on_the_page(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    page = report(folder)
    for told in ("supervised hello of hello", "finished", "before training: 0 of 1 correct", "after step 3: 1 of 1"):
        assert told in page.text
    assert "gaps" not in page.values("class")
    assert page.values("href") == ["rollouts/000002.html"]
    assert "step 3" in page.text, "the page of its rollouts goes by the name of the file"
    drawn = {chart["name"]: [line["label"] for line in chart["lines"]] for chart in charts(folder)}
    assert drawn == {"train/loss": ["training", "held out"], "test/exact_match": [""], "optim/lr": [""]}
    assert "odd/hello\n1" in page.text, "what never changes is a number"
    assert not list(folder.glob("*.new"))


def test_the_best_is_the_lowest_loss_and_the_highest_match(tmp_path: Path) -> None:
    text = report(run_folder(tmp_path / "run")).text
    assert "test/nll\n6 (before training)\n2 (after step 1)\n3 (after step 2)\n−3" in text
    assert "test/exact_match\n0% (before training)\n50% (after step 1)\n25% (after step 2)\n+25 points" in text


def test_an_error_of_a_metric_stands_beside_it_and_has_no_row_and_no_chart(tmp_path: Path) -> None:
    # Catches the largest uncertainty praised as the best, and a page that is half charts of counts.
    name = "test/env/all/reward/total"
    rows = [{"step": step, name: step, f"{name}_stderr": 1 / (step + 1), "env/all/correct_n": 9} for step in range(3)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = report(tmp_path).text
    assert f"{name}\n0.0 ± 1.0 (before training)\n2.00 ± 0.33 (after step 2)\n2.00 ± 0.33 (after step 2)\n+2" in text
    assert f"{name}_stderr" not in text
    [chart] = charts(tmp_path)
    assert chart["lines"][0]["points"] == [[0, 0, 1], [1, 1, 0.5], [2, 2, pytest.approx(1 / 3)]]


def test_no_text_of_a_run_is_obeyed(tmp_path: Path) -> None:
    # Model output, settings and names of metrics come from elsewhere; a page with a script in it would run that.
    page = report(run_folder(tmp_path / "run", said=HOSTILE))
    harmless = set(report(run_folder(tmp_path / "other")).tags)
    assert set(page.tags) == harmless
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "src"]
    assert "<script>alert(1)</script>" in page.text
    assert "\\x1b[2J\\u202e\\ud800" in page.text
    assert len(charts(tmp_path / "run")) == 3


def test_a_link_leads_to_the_file_it_names(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    name = 'a"b #1?<\udcff.html'
    (folder / "rollouts" / name).write_text("")
    links = [unquote(link, errors="surrogateescape") for link in report(folder).values("href")]
    assert links == ["rollouts/000002.html", f"rollouts/{name}"]


def test_values_that_are_not_finite_are_counted_and_not_drawn(tmp_path: Path) -> None:
    rows = [{"step": step, "train/loss": float("nan") if step == 1 else 2.0, "x/y": float("inf")} for step in range(3)]
    folder = run_folder(tmp_path / "run", rows=rows)
    page = report(folder)
    assert "last 2 (step 3) · min 2 (step 1) · max 2 (step 1) · 1 not finite" in page.text
    assert "x/y\n3 not finite" in page.text
    (loss,) = charts(folder)
    assert loss["lines"][0]["points"] == [[1, 2.0], None, [3, 2.0]]


def test_an_empty_folder_gets_a_page_that_says_so(tmp_path: Path) -> None:
    text = report(tmp_path).text
    for name in ("run.json", "config.json", "metrics.jsonl", "checkpoints.jsonl"):
        assert f"{name} is missing" in text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b'{"recipe": "sup'),
        ("config.json", b"[]"),
        ("metrics.jsonl", b'{"step": 0}\nnonsense\n{"step": 1}\n'),
        ("checkpoints.jsonl", b"\xff\xfe\n"),
        ("checkpoints.jsonl", b'{"name": "x"}\n'),
        ("samples/000003.json", b'[{"prompt": ["x"], "expected": 1, "answer": 2, "is_correct": true}]'),
        ("samples/000003.json", b'{"a": 1}'),
    ],
)
def test_a_broken_file_is_named_and_the_rest_is_shown(tmp_path: Path, name: str, content: bytes) -> None:
    folder = run_folder(tmp_path / "run")
    (folder / name).write_bytes(content)
    page = report(folder)
    assert f"{name} cannot be read: " in page.text
    assert "before training: 0 of 1 correct" in page.text


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "train/lo')
    assert "last 4 (step 3)" in report(folder).text


def test_a_long_answer_is_cut_and_many_are_counted(tmp_path: Path) -> None:
    # Catches a page of hundreds of megabytes.
    folder = run_folder(tmp_path / "run")
    answers = [
        {"prompt": str(index), "expected": "x", "answer": "y" * 100_000, "is_correct": False} for index in range(300)
    ]
    (folder / "samples" / "000003.json").write_text(json.dumps(answers))
    page = report(folder)
    assert "y" * 2000 + "… (98,000 more characters)" in page.text
    assert "260 more in samples/" in page.text
    assert (folder / "report.html").stat().st_size < 300_000


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    # Catches report.html written over somebody's own in a folder named by mistake.
    (tmp_path / "report.html").write_text("my own")
    (tmp_path / "config.json").write_text('{"architectures": []}')
    with pytest.raises(InputError, match="holds files but no run"):
        write_report(tmp_path)
    assert (tmp_path / "report.html").read_text() == "my own"
    for path in (tmp_path / "nowhere", tmp_path / "config.json"):
        with pytest.raises(InputError, match="is no folder"):
            write_report(path)


LAUNCH = {
    "started_at": "2026-05-01T12:00:00+00:00",
    "ended_at": "2026-05-01T12:00:20+00:00",
    "status": "finished",
    "machine": {"host": "h", "processor": "AMD EPYC 7R13", "cores": 2, "memory_bytes": None, "gpus": []},
    "service": "the local engine: CPU, 2 threads, float32",
}


def sat(folder: Path, **changes: Any) -> Path:
    (folder / "run.json").write_text(json.dumps({"launches": [{**LAUNCH, **changes}]}))
    return folder


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({}, "in 20 s, on 2 cores of an AMD EPYC 7R13, fp32"),
        ({"service": "the local engine: NVIDIA H100, bfloat16"}, "in 20 s, on an NVIDIA H100, bf16"),
        ({"service": "training at https://there"}, "in 20 s, training at https://there"),
        ({"service": None}, "in 20 s"),
    ],
)  # fmt: skip
def test_a_page_begins_with_what_came_of_the_run_and_on_what(
    tmp_path: Path, changes: dict[str, Any], place: str
) -> None:
    # Catches a page that only the one who knows the names of metrics can read.
    texts = [text.strip() for text in report(sat(run_folder(tmp_path / "run"), **changes)).texts]
    assert texts[texts.index("exact match 0% → 25%") + 1] == place
    assert not any("runs resume" in text for text in texts)


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_run_that_came_to_no_end_says_how_to_go_on(tmp_path: Path, status: str) -> None:
    folder = sat(run_folder(tmp_path / "a run"), status=status)
    assert f"cookhouse runs resume '{folder}'" in report(folder).text


def test_a_run_of_runs_has_their_headlines_and_leads_to_their_pages(tmp_path: Path) -> None:
    whole = sat(run_folder(tmp_path / "whole"), status="interrupted")
    for name in ("metrics.jsonl", "checkpoints.jsonl", "samples", "rollouts"):
        path = whole / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    part = sat(run_folder(whole / "rl"), status="interrupted")
    assert f"cookhouse runs resume {whole}" in report(part).text, "a part cannot be resumed by itself"
    page = report(whole)
    assert page.text.count("exact match 0% → 25%") == 2
    assert page.values("href") == ["rl/report.html"]
    assert "gaps" not in page.values("class")


def test_two_values_are_shown_as_numbers(tmp_path: Path) -> None:
    # Catches a chart of two dots, from which nobody reads a value.
    rows = [{"step": 0, "train/loss": 6.5, "test/exact_match": 0.25}, {"step": 1, "train/loss": 3.0}]
    folder = run_folder(tmp_path / "run", rows=[*rows, {"step": 9, "test/exact_match": 0.75}])
    texts = [text.strip() for text in report(folder).texts]
    assert texts[texts.index("6.5 → 3") + 1] == "−3.5"
    assert texts[texts.index("25% → 75%") + 1] == "+50 points"
    assert charts(folder) == []

"""Rows as people have them, in every recipe that reads rows: columns of other names, plain text, and what is trained on
without being meant.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from cookhouse.adapters import Adapters
from cookhouse.errors import InputError
from cookhouse.recipes import dry_run, run
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeService


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


ASKED = {"Question": "Where are you?", "Answer": "At home."}
PROMPT = {"Asked": "Where are you?", "Said": "At home."}
PAIR = {"Asked": "Where are you?", "Good": "At home.", "Bad": "Away."}
SINGLE = [{"Asked": "Where?", "Said": said, "Fine": fine} for said, fine in (("At home.", True), ("Away.", False))]
COMPARED = {"Asked": "Where are you?", "One": "At home.", "Two": "Away.", "Better": "A"}


@pytest.mark.parametrize(
    ("recipe", "rows", "columns", "settings"),
    [
        ("supervised", [ASKED], "prompt:question,completion:answer", {}),
        ("chat_sl", [ASKED], "prompt:Question,completion:Answer", {}),
        ("sl_loop", [ASKED], "prompt:Question,completion:Answer", {}),
        ("dpo", [PAIR], "prompt:Asked,chosen:Good,rejected:Bad", {}),
        ("dpo", SINGLE, "prompt:Asked,completion:Said,label:Fine", {"pair_loss": "kto"}),
        ("preference_model", [COMPARED], "prompt:Asked,completion_a:One,completion_b:Two,label:Better", {}),
        ("off_policy_distillation", [PROMPT], "prompt:Asked", {"teacher_model": "cookhouse/tiny-arithmetic"}),
        ("prompt_distillation", [PROMPT], "prompt:Asked", {}),
        ("preference_rl", [PAIR], "prompt:Asked,chosen:Good,rejected:Bad", {"preference_model": "cookhouse/tiny"}),
        ("rl", [PROMPT], "prompt:Asked,answer:Said", {"env": "prompts"}),
    ],
)
def test_every_recipe_that_reads_rows_takes_columns(
    recipe: str, rows: list[dict[str, Any]], columns: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """Would catch a recipe that reads its rows another way, and a refusal that offers what the recipe does not take."""
    given = {"dataset_path": write(tmp_path / "rows.jsonl", *rows), "log_path": str(tmp_path / "run"), **settings}
    with pytest.raises(InputError, match="columns="):
        dry_run(recipe, given)
    assert dry_run(recipe, {**given, "columns": columns}).facts


def test_held_out_rows_have_the_columns_too_and_bundled_ones_need_none(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", ASKED, {"Question": "Who?", "Answer": "I."})
    columns = {"columns": "prompt:Question,completion:Answer", "log_path": str(tmp_path / "run")}
    plan = dry_run("supervised", {**columns, "dataset_path": f"bundled,{path}", "test_path": path})
    assert plan.facts["conversations"].endswith("2 held out")


def test_columns_without_rows_of_ones_own_change_nothing_and_are_refused() -> None:
    with pytest.raises(InputError, match="columns=prompt:Question would change nothing"):
        dry_run("rl", {"env": "arithmetic", "columns": "prompt:Question"})
    with pytest.raises(InputError, match="columns=prompt:Question would change nothing: the rows are bundled ones"):
        dry_run("supervised", {"columns": "prompt:Question"})


def test_plain_text_is_trained_on_and_measured_by_its_loss_alone(tmp_path: Path) -> None:
    """Would catch text that gets a chat format, and a run that asks for answers to it."""
    given = {
        "dataset_path": write(tmp_path / "rows.jsonl", *({"text": f"Once upon {n} times."} for n in range(6))),
        "eval_fraction": 0.34,
        "batch_size": 2,
        "log_path": str(tmp_path / "run"),
    }
    plan = dry_run("supervised", given)
    assert "".join(text for text, _ in plan.previews[0]).endswith("times.<|endoftext|>")
    assert all(is_trained for _, is_trained in plan.previews[0][1:])
    assert any("4 of 4 conversations are plain text" in note for note in plan.notes)
    result = run("supervised", given, adapters=Adapters(service=FakeService().connect, sinks=[]))
    assert result.summary.num_steps == 2
    last = read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]
    assert last["test/nll"] > 0
    assert "test/exact_match" not in last


@pytest.mark.parametrize("recipe", ["supervised", "sl_loop"])
def test_what_is_trained_on_in_silence_is_told_before_and_in_the_report(recipe: str, tmp_path: Path) -> None:
    rows = [{"prompt": "q", "completion": "a"}, {"prompt": "q", "completion": ""}]
    asked = {"messages": [{"role": role, "content": role} for role in ("user", "assistant", "user")]}
    path = write(tmp_path / "rows.jsonl", *rows, asked)
    given = {"dataset_path": path, "log_path": str(tmp_path / "run")}
    empty = {
        "supervised": "have no answer but an empty one, and are not trained on (empty_answers=skip)",
        "sl_loop": "have an empty answer, of which the end alone is trained on",
    }
    left = {"supervised": 2, "sl_loop": 3}[recipe]
    notes = [
        f"1 of 3 conversations {empty[recipe]}; the first is {path}:2",
        f"1 of {left} conversations end with a message of the user, which is not trained on; the first is {path}:3",
    ]
    assert notes == [*dry_run(recipe, given).notes][:2]
    run(recipe, given, adapters=Adapters(service=FakeService().connect, sinks=[]))
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())["launches"][0]["notes"]
    assert recorded[:2] == notes
    page = (tmp_path / "run" / "report.html").read_text()
    assert all(note in page for note in notes)


def test_a_large_set_is_looked_at_where_it_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cookhouse.data.batches.stream.MAX_WHOLE_BYTES", 10)
    path = write(tmp_path / "rows.jsonl", *({"prompt": "q", "completion": "a" * (n % 2)} for n in range(8)))
    given = {"dataset_path": path, "log_path": str(tmp_path / "run")}
    for empty_answers, told in (("skip", "have no answer but an empty one"), ("train", "have an empty answer")):
        notes = dry_run("supervised", {**given, "empty_answers": empty_answers}).notes
        assert any(note.startswith(f"4 of 8 conversations from all over {path} {told}") for note in notes)
    said = [turn("assistant", ""), turn("user", "x"), turn("assistant", "a")]
    pairs = write(tmp_path / "pairs.jsonl", *[{"prompt": "q", "chosen": said, "rejected": "b"}] * 3)
    notes = dry_run("dpo", {"dataset_path": pairs, "log_path": str(tmp_path / "run")}).notes
    assert any("3 of 3 pairs from all over" in note for note in notes)


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def test_an_export_is_trained_on_without_its_empty_answers_and_with_what_it_repeats_told(tmp_path: Path) -> None:
    """Catches empty replies that are trained on, or that refuse a file to measure by."""
    path = tmp_path / "help desk.csv"
    path.write_text("Ticket;Customer text;Agent reply\n1;Where?;Here.\n2;Hello?;\n3;where;here\n", encoding="utf-8-sig")
    given = {
        "dataset_path": str(path),
        "test_path": str(path),
        "columns": "prompt:Customer text,completion:Agent reply",
        "log_path": str(tmp_path / "run"),
    }
    plan = dry_run("supervised", given)
    assert plan.facts["conversations"] == "2 to train on, 3 held out, of which 2 are measured and 1 not measured"
    told = (
        "1 of 3 held-out conversations end in an empty answer",
        "1 of 3 conversations have no answer but an empty one",
    )
    for words in (*told, "1 of 2 conversations say nearly what an earlier one says"):
        assert any(note.startswith(words) for note in plan.notes)
    kept = dry_run("supervised", {**given, "test_path": None, "empty_answers": "train"})
    assert kept.facts["conversations"].startswith("3 to train on")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"conversation": "ticket"}, "conversation and turn name the columns"),
        ({"delimiter": ";"}, "delimiter=; would change nothing: no file is CSV"),
        ({"conversation": "a", "turn": "b"}, "conversation=a would change nothing: the rows are bundled"),
    ],
)
def test_settings_of_an_export_that_change_nothing_are_refused(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        dry_run("supervised", settings)

"""What is said of two answers, and the file that it goes to."""

import json
import resource
import stat
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.view.playground.conftest import FakeEngine, asked

from cookhouse.data.sources.source import data_source
from cookhouse.recipes.dpo import Config
from cookhouse.workflows.preference.rows import read_data


def labeled(client: TestClient, answers: str, label: str) -> Any:
    return client.post("/api/playground/labels", json={"answers": answers, "label": label})


def pair_of(client: TestClient, **others: Any) -> str:
    return str(asked(client, "first", "group/second", **others)[-1]["answers"])


def test_labels_are_read_by_the_recipe_that_learns_from_them(client: TestClient, runs: Path) -> None:
    """Catches a file that a run refuses, and a better answer that is taken for the worse."""
    left = labeled(client, pair_of(client, system="Be brief.", prompt="Who?\nWhy?"), "left").json()
    right = labeled(client, pair_of(client, prompt='Hostile "quotes" \u2028 \x1b[31m 日本'), "right").json()
    path = runs / "labels.jsonl"
    assert [left["line"], right["line"]] == [1, 2]
    assert left["file"] == str(path)
    assert left["command"] == f"cookhouse run dpo dataset_path={path} model_name=cookhouse/tiny"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config = Config(model_name="cookhouse/tiny", dataset_path=str(path), num_eval=0, log_path=str(runs / "learned"))
    read = read_data(config, {"train": data_source(str(path))}).train
    assert [row.prompt[-1]["content"] for row in read] == ["Who?\nWhy?", 'Hostile "quotes" \u2028 \x1b[31m 日本']
    assert read[0].prompt[0] == {"role": "system", "content": "Be brief."}
    said = [(row.chosen[0]["content"], row.rejected[0]["content"]) for row in read]
    assert said == [("first", "group/second"), ("group/second", "first")]
    assert read[1].extra["chosen_by"] == "group/second"


@pytest.mark.parametrize("label", ["tie", "both bad"])
def test_where_neither_is_better_nothing_is_written(label: str, client: TestClient, runs: Path) -> None:
    response = labeled(client, pair_of(client), label)
    assert (response.status_code, response.json()["line"]) == (200, None)
    assert not (runs / "labels.jsonl").exists()


def test_a_pair_is_labeled_once(client: TestClient, runs: Path) -> None:
    """Catches a double click that counts twice."""
    pair = pair_of(client)
    assert labeled(client, pair, "left").status_code == 200
    again = labeled(client, pair, "right")
    assert (again.status_code, "have their label" in again.json()["detail"]) == (400, True)
    assert len((runs / "labels.jsonl").read_text().splitlines()) == 1


def test_what_teaches_nothing_is_refused_before_it_is_written(
    client: TestClient, engine: FakeEngine, runs: Path
) -> None:
    plain = labeled(client, pair_of(client, form="text"), "left")
    assert "answers in a conversation" in plain.json()["detail"]
    engine.says = {"cookhouse/tiny": "first"}
    same = asked(client, "first", "cookhouse/tiny")[-1]["answers"]
    assert "are the same; nothing could be learned" in labeled(client, same, "left").json()["detail"]
    assert not (runs / "labels.jsonl").exists()


def test_labels_that_cannot_be_are_refused_in_words(client: TestClient) -> None:
    pair = pair_of(client)
    unknown = labeled(client, pair, "lefft")
    assert (unknown.status_code, "did you mean left?" in unknown.json()["detail"]) == (404, True)
    assert "not kept any more" in labeled(client, "nobody", "left").json()["detail"]
    bodies: list[object] = [[], {"answers": pair}, {"answers": 1, "label": "left"}]
    for body in bodies:
        assert client.post("/api/playground/labels", json=body).status_code == 400


def test_a_file_that_cannot_take_a_label_is_named_and_the_label_can_be_given_again(
    client: TestClient, runs: Path
) -> None:
    """Catches a label that is lost with an error, and a file of somebody else's that gets a row."""
    path = runs / "labels.jsonl"
    path.write_text("notes of mine\n")
    pair = pair_of(client)
    refused = labeled(client, pair, "left")
    assert (refused.status_code, "is no JSONL, and is left alone" in refused.json()["detail"]) == (400, True)
    assert path.read_text() == "notes of mine\n"
    path.unlink()
    path.mkdir()
    assert "--labels" in labeled(client, pair, "left").json()["detail"]
    path.rmdir()
    assert labeled(client, pair, "left").json()["line"] == 1
    assert json.loads(path.read_text())["chosen"] == [{"role": "assistant", "content": "first"}]


def test_a_label_that_does_not_fit_leaves_nothing_behind(client: TestClient, runs: Path) -> None:
    """Catches half a row that a full disk leaves, with which the file takes no label any more."""
    path = runs / "labels.jsonl"
    labeled(client, pair_of(client), "left")
    before, pair = path.read_bytes(), pair_of(client)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        refused = labeled(client, pair, "left")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (refused.status_code, "cannot write" in refused.json()["detail"]) == (400, True)
    assert path.read_bytes() == before
    assert labeled(client, pair, "left").json()["line"] == 2

"""`cookhouse runs prune`: what it takes, what it leaves alone, and that nothing goes unless somebody says so."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.runs.kit import make_run

from cookhouse.cli import main
from cookhouse.registry import Artifact, NewModel, open_registry
from cookhouse.runs.lock import hold

NAMES = ("old", "broken", "base", "child", "held")


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of years ago: `child` was started from `base`, and nobody runs any."""
    monkeypatch.chdir(tmp_path)
    states = {"broken": "failed"}
    for number, name in enumerate(NAMES):
        weights = ["runs/base"] if name == "child" else []
        make_run(Path("runs", name), number=number, status=states.get(name, "finished"), weights=weights)
    Path("runs/old/big.bin").write_bytes(bytes(3_000_000))
    make_run(Path("runs/old/part"), status="failed")


def prune(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["runs", "prune", *words])
    assert caught.value.code == code
    told = capsys.readouterr()
    return " ".join((told.out + told.err).split())


def there() -> Sequence[str]:
    return [name for name in NAMES if Path("runs", name).is_dir()]


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        (("--state", "failed"), ["broken"]),
        (("--larger-than", "1M"), ["old"]),
        (("--larger-than", "1MB", "--state", "failed"), []),
        (("--older-than", "30d"), NAMES),
        (("--older-than", "9000w"), []),
        (("--state", "failed", "--state", "finished", "--larger-than", "2.9m"), ["old"]),
    ],
)
def test_what_is_given_has_to_be_true_of_a_run(
    words: tuple[str, ...], gone: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    # Catches a part of a run that is deleted by itself, and a condition that is not read.
    told = prune(capsys, *words)
    assert list(there()) == list(NAMES), "nobody was asked, and --yes was not given"
    if gone:
        assert f"would delete {len(gone)} run" in told
        assert "nothing was deleted: pass --yes to do it" in told
    prune(capsys, *words, "--yes")
    assert set(there()) == set(NAMES) - set(gone)


def test_it_says_what_it_would_free(capsys: pytest.CaptureFixture[str]) -> None:
    assert "3.0 MB would delete 1 run and free 3.0 MB" in prune(capsys, "--larger-than", "1M")
    told = prune(capsys, "--larger-than", "1M", "--yes")
    assert told.endswith("3.0 MB deleted 1 run, freed 3.0 MB")


def test_what_runs_or_is_needed_is_left_alone_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    # Catches weights that are gone from under a run, a registered model, or the runs that were started from them.
    registry = open_registry("runs/registry.db", {})
    run = str(Path("runs/broken").resolve())
    registry.register(
        NewModel(name="mine", base_model="cookhouse/tiny", artifact=Artifact(path="tinker://x"), run_folder=run)
    )
    with hold(Path("runs/held")), hold(Path("runs/child")):
        told = prune(capsys, "--older-than", "1d", "--yes")
    assert there() == ["broken", "base", "child", "held"]
    assert "left alone: a run is going on in runs/held; stop it first" in told
    assert "left alone: the weights of runs/broken are registered as mine@1" in told
    assert "left alone: the weights of runs/base are what other runs were started from: child" in told
    told = prune(capsys, "--older-than", "1d", "--force", "--yes")
    assert list(there()) == []
    assert "the weights of runs/broken are registered as mine@1" in told


def test_what_stays_keeps_what_it_was_started_from(capsys: pytest.CaptureFixture[str]) -> None:
    # Catches a chain of runs of which the last stays, and the first goes.
    make_run(Path("runs/last"), number=9, status="interrupted", weights=["runs/child"])
    prune(capsys, "--state", "finished", "--yes")
    assert there() == ["broken", "base", "child"]


def test_on_a_terminal_it_asks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("cookhouse.cli.runs.pruning.has_user", lambda: True)
    for answer, code in ((False, 130), (True, 0)):
        monkeypatch.setattr("typer.confirm", lambda _, given=answer: given)
        assert "broken" in there()
        prune(capsys, "--state", "failed", code=code)
    assert "broken" not in there()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "say which runs: --older-than 30d, --larger-than 1G, --state failed"),
        (("--older-than", "soon"), "--older-than 'soon' is no amount; give one such as 12h, 30d or 8w"),
        (("--older-than", "30"), "--older-than '30' is no amount"),
        (("--larger-than", "-1G"), "--larger-than '-1G' is no amount; give one such as 500M or 1.5G"),
        (("--state", "running"), "a running run is never deleted"),
    ],
)
def test_bad_input_deletes_nothing(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in prune(capsys, *words, "--yes", code=2)
    assert list(there()) == list(NAMES)


def test_a_folder_that_is_no_run_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    # Catches the folder of another program that has a file of the same name.
    Path("runs/other").mkdir()
    Path("runs/other/run.json").write_text(json.dumps({"mine": 1}))
    prune(capsys, "--older-than", "0s", "--yes")
    assert Path("runs/other/run.json").is_file()

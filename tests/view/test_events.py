"""What a stream tells of runs that change, and what somebody is told who comes again."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.runs.kit import make_run
from tests.view.streams import events, next_of

from cookhouse.files import write_whole
from cookhouse.runs.lock import hold
from cookhouse.view.watching import Watcher


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poller that need not be waited for."""
    monkeypatch.setattr("cookhouse.view.serving.Watcher", lambda: Watcher(interval_seconds=0.01))


def add_rows(run: Path, *rows: dict[str, Any]) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def start(run: Path, num_launches: int = 1) -> None:
    """Make a run one that has not ended."""
    launches = json.loads((run / "run.json").read_text())["launches"]
    launches[-1] |= {"ended_at": None, "status": None}
    write_whole(run / "run.json", json.dumps({"launches": launches[-1:] * num_launches}))


def delete(run: Path) -> None:
    """At once: of a folder that goes file by file somebody who looks sees a part."""
    shutil.rmtree(run.rename(run.with_name(f".{run.name}")))


ROWS = [{"step": step, "train_loss": 2.0 - step} for step in range(3)]


class TestRun:
    def test_rows_come_as_they_are_written(self, runs: Path, address: str) -> None:
        # Catches a row that is told twice, not at all, or while only half of it is written.
        run = make_run(runs / "group" / "one", rows=ROWS[:1])
        with events(address, "/events/runs/group/one") as stream:
            assert next_of(stream, "state").data["status"] == "finished"
            with (run / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(ROWS[1]) + "\n" + json.dumps(ROWS[2])[:9])
            assert next_of(stream, "rows").data["rows"] == [ROWS[1]]
            with (run / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(ROWS[2])[9:] + "\n")
            told = next_of(stream, "rows").data
            assert told["rows"] == [ROWS[2]]
            assert told["to"] == (run / "metrics.jsonl").stat().st_size

    def test_who_comes_again_is_told_what_was_missed(self, runs: Path, address: str) -> None:
        # Catches curves with a gap, or with points twice, after a connection was lost.
        run = make_run(runs / "one", rows=ROWS[:1])
        with events(address, "/events/runs/one?from=0") as stream:
            first = next_of(stream, "rows")
        assert first.data["rows"] == ROWS[:1]
        add_rows(run, *ROWS[1:])
        with events(address, "/events/runs/one", last_id=first.id) as stream:
            told = [next(stream) for _ in range(3)]
            assert [event.name for event in told] == ["state", "files", "rows"], "and nothing was reset"
            assert told[-1].data["rows"] == ROWS[1:]
        with events(address, f"/events/runs/one?last-event-id={first.id}") as stream:
            assert next_of(stream, "rows").data["rows"] == ROWS[1:], "as a page tells it that was hidden"

    @pytest.mark.parametrize("is_replaced", [False, True])
    def test_a_file_that_was_cut_is_told_from_its_beginning(self, runs: Path, address: str, is_replaced: bool) -> None:
        # Catches a resumed run whose curve keeps points that were taken back: the file may be longer again by the time
        # that somebody looks.
        run = make_run(runs / "one", rows=ROWS)
        with events(address, "/events/runs/one?from=0") as stream:
            last = next_of(stream, "rows")
        file = run / "metrics.jsonl"
        if is_replaced:
            file.rename(run / "old.jsonl")
        else:
            file.write_text("")
        other = [{"step": step, "train_loss": 5.0 + step} for step in range(5)]
        add_rows(run, *other)
        with events(address, "/events/runs/one", last_id=last.id) as stream:
            assert [next(stream).name, next(stream).name, next(stream).name] == ["state", "files", "reset"]
            assert next_of(stream, "rows").data["rows"] == other

    def test_a_file_that_is_cut_while_one_looks(self, runs: Path, address: str) -> None:
        run = make_run(runs / "one", rows=ROWS)
        with events(address, "/events/runs/one?from=0") as stream:
            next_of(stream, "rows")
            (run / "metrics.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
            next_of(stream, "reset")
            assert next_of(stream, "rows").data["rows"] == ROWS[:1]

    def test_many_rows_come_in_pieces(self, runs: Path, address: str) -> None:
        # Catches a long run that is sent as one event of megabytes, or of which only the first piece comes.
        rows = [{"step": step, "train_loss": 1.0} for step in range(1001)]
        make_run(runs / "one", rows=rows)
        told: list[dict[str, Any]] = []
        with events(address, "/events/runs/one?from=0") as stream:
            while len(told) < len(rows):
                piece = next_of(stream, "rows").data["rows"]
                assert len(piece) <= 200
                told += piece
        assert told == rows

    def test_what_is_no_number_in_json_is_null(self, runs: Path, address: str) -> None:
        # Catches a run that diverged and whose page then stops: browsers read no NaN.
        make_run(runs / "one", rows=[{"step": 0, "train_loss": float("nan")}])
        with events(address, "/events/runs/one?from=0") as stream:
            assert next_of(stream, "rows").data["rows"] == [{"step": 0, "train_loss": None}]

    def test_its_life_is_told(self, runs: Path, address: str) -> None:
        # Catches a killed or a deleted run that seems to go on: neither writes a word.
        run = make_run(runs / "one")
        start(run)
        lock = hold(run)
        with events(address, "/events/runs/one") as stream:
            assert next_of(stream, "state").data["status"] == "running"
            lock.close()
            assert next_of(stream, "state").data["status"] == "interrupted"
            with hold(run):
                start(run, num_launches=2)
                assert next_of(stream, "state").data["status"] == "running"
            next_of(stream, "state")
            delete(run)
            assert next_of(stream, "state").data["status"] == "deleted"
            make_run(run)
            assert next_of(stream, "state").data["status"] == "finished"

    def test_files_that_change_are_named(self, runs: Path, address: str) -> None:
        run = make_run(runs / "one", rows=ROWS)
        os.utime(run / "run.json", (2**32, 2**32))
        with events(address, "/events/runs/one") as stream:
            assert "run.json" in next_of(stream, "files").data["changed"], "it is newer than the stream"
            (run / "rollouts").mkdir()
            assert next_of(stream, "files").data == {"changed": ["rollouts"]}
            (run / "rollouts" / "000001.jsonl").write_text("{}\n")
            assert next_of(stream, "files").data == {"changed": ["rollouts"]}

    def test_an_unknown_run_is_an_error_in_words(self, client: TestClient) -> None:
        answer = client.get("/events/runs/nothing")
        assert answer.status_code == 404
        assert "unknown run 'nothing'" in answer.json()["detail"]

    @pytest.mark.parametrize("id_", ["x", "1-2-3", "1-2-3--4", "1-2-3-4-5", "-1-1-1-1", "9" * 30 + "-1-1-1"])
    def test_an_id_that_is_none_is_passed_over(self, runs: Path, address: str, id_: str) -> None:
        # Catches a header from elsewhere that ends the stream with an error, for ever.
        make_run(runs / "one", rows=ROWS)
        with events(address, "/events/runs/one?from=0", last_id=id_) as stream:
            assert next_of(stream, "rows").data["rows"] == ROWS


class TestList:
    def test_runs_appear_change_and_go(self, runs: Path, address: str) -> None:
        # Catches a list that must be loaded again to be true.
        make_run(runs / "one", rows=ROWS[:1])
        with events(address, "/events/runs") as stream:
            assert next_of(stream, "run").data["name"] == "one"
            assert next_of(stream, "runs").data["names"] == ["one"]
            two = make_run(runs / "two", number=1, status="failed")
            assert next_of(stream, "run").data["status"] == "failed"
            assert next_of(stream, "runs").data["names"] == ["two", "one"]
            add_rows(two, *ROWS[:2])
            assert next_of(stream, "run").data["name"] == "two"
            delete(two)
            assert next_of(stream, "gone").data == {"name": "two"}
            assert next_of(stream, "runs").data == {"names": ["one"], "num_selected": 1, "num_runs": 1}

    def test_who_comes_again_is_told_what_changed(self, runs: Path, address: str) -> None:
        # Catches a run that ended, or went, while the tab was hidden, and stays in the list as it was.
        for number, name in enumerate(("one", "two", "three")):
            make_run(runs / name, number=number)
        with events(address, "/events/runs") as stream:
            last = next_of(stream, "runs")
        add_rows(runs / "one", *ROWS[:2])
        delete(runs / "three")
        with events(address, "/events/runs", last_id=last.id) as stream:
            told = [next(stream), next(stream), next(stream)]
        assert [event.name for event in told] == ["run", "gone", "runs"]
        assert [told[0].data["name"], told[1].data["name"], told[2].data["names"]] == ["one", "three", ["two", "one"]]

    def test_an_id_of_another_server_is_none(self, runs: Path, address: str) -> None:
        # Catches versions of a server that has ended being taken for those of the one after it.
        make_run(runs / "one")
        with events(address, "/events/runs", last_id="0123abcd-99") as stream:
            assert [next(stream).name, next(stream).name] == ["run", "runs"]

    def test_only_what_is_wanted(self, runs: Path, address: str) -> None:
        make_run(runs / "one", recipe="rl")
        make_run(runs / "two", recipe="dpo", number=1)
        with events(address, "/events/runs?recipe=rl&text=ON") as stream:
            assert next_of(stream, "runs").data == {"names": ["one"], "num_selected": 1, "num_runs": 2}
            make_run(runs / "none", recipe="rl", number=2)
            assert next_of(stream, "runs").data["names"] == ["none", "one"]

"""Catches a value that a disk has changed, and that a restore takes for what was written."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.server.storage.journal.examples import Journal, answer, body, entry, state

from cookhouse.errors import InputError
from cookhouse.server.refusals import StorageError
from cookhouse.server.storage.journal import (
    AddAnswer,
    AddEntry,
    AddRecording,
    AddRun,
    AddSampler,
    AddSession,
    FinishEntry,
    PutState,
    SetRunOrder,
    SetSamplerFile,
)
from cookhouse.server.storage.store.rows import RecordingRow, RunRow, SamplerRow, SessionRow
from cookhouse.server.storage.store.store import open_own

SESSION = SessionRow(session_id="s", owner="me", created_at=1, user_metadata={"a": float("nan")})
RUN = RunRow(
    model_id="s:0",
    session_id="s",
    owner="me",
    base_model="b",
    lora={"rank": 4, "alpha": 1.5, "words": "ä\u2028"},
    created_at=1,
    last_request_at=2.0,
    model_seq_id=0,
)
SAMPLER = SamplerRow(
    sampler_id="s:1", session_id="s", owner="me", base_model="b", model_path=None, created_at=1.0, snapshot_id="w"
)

RECORDING = RecordingRow(
    sequence_id="r",
    session_id="s",
    owner="me",
    created_at=1,
    num_prompt_tokens=1,
    prompt_sha256="0",
    num_bytes=8,
    content=b"\0\1\2\xff",
)


def written(journal: Journal) -> Journal:
    journal.run(
        lambda group: group.commit(
            AddSession(SESSION),
            AddRun(RUN),
            AddSampler(SAMPLER),
            AddRecording(RECORDING),
            AddEntry(entry(1), body(1)),
            AddEntry(entry(2), body(2)),
            AddEntry(entry(3), body(3)),
            SetRunOrder(["train-2", "train-1"], 0),
            FinishEntry(answer("train-3")),
            SetSamplerFile("s:1", has_file=True, sha256={"state.json": "0"}),
            AddAnswer(answer("train-0")),
            PutState(state("newest")),
        )
    )
    return journal


def read_all(journal: Journal) -> None:
    reader = journal.reader
    for read in (reader.runs, reader.samplers, reader.entries, reader.states, reader.answers):
        read("s")
    reader.live_session("s")
    assert len(journal.store.recordings("s", "me", ["r"], max_bytes=10)) == 1


def test_what_was_written_is_read_from_every_database(placed_journal: Journal) -> None:
    """Would catch a value that a database gives back in another form, and is taken for damage."""
    read_all(written(placed_journal))
    assert placed_journal.reader.samplers("s")[0].sha256 == {"state.json": "0"}


@pytest.mark.parametrize(
    "change",
    [
        "sessions SET created_at = 2",
        "runs SET lora = '{\"rank\": 5}'",
        "runs SET base_model = 'c'",
        "samplers SET snapshot_id = 'v'",
        "entries SET drawn = '{\"seed\": 3}' WHERE position = 1",
        "entries SET seq_id = 7 WHERE position = 1",
        "entries SET position = 9 WHERE position = 1",
        "entries SET run_index = 7 WHERE position = 1",
        "entries SET run_index = NULL WHERE position = 1",
        "answers SET is_failure = 1 WHERE request_id = 'train-0'",
        "recordings SET content = x'000102fe'",
        "states SET seen = '{}'",
        "states SET state_id = 'other'",
    ],
)
def test_a_value_that_has_changed_is_told(journal: Journal, change: str) -> None:
    written(journal)
    with closing(sqlite3.connect(journal.folder / "server.db")) as connection, connection:
        assert connection.execute(f"UPDATE {change}").rowcount == 1
    with pytest.raises(StorageError, match="database is damaged; tell its operator, who has to stop the service"):
        read_all(journal)


def test_rows_without_a_sum_are_taken_as_they_are(journal: Journal) -> None:
    """Would catch a server that refuses what an older version wrote."""
    written(journal)
    with closing(sqlite3.connect(journal.folder / "server.db")) as connection, connection:
        for table in ("sessions", "runs", "samplers", "recordings", "entries", "answers", "states"):
            connection.execute(f"UPDATE {table} SET row_crc = NULL")
        connection.execute("UPDATE entries SET run_crc = NULL")
    read_all(journal)


def test_an_index_that_lacks_a_row_is_told_at_a_start(journal: Journal, tmp_path: Path) -> None:
    """Would catch a request that is not run again, since nobody finds it."""
    written(journal).store.close()
    file = tmp_path / "server.db"
    content = file.read_bytes()
    with closing(sqlite3.connect(file)) as connection:
        [page] = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'ix_entries_session_id'"
        ).fetchone()
    start = (page - 1) * 4096
    at = content.index(b"s", start + 8)
    file.write_bytes(content[:at] + b"t" + content[at + 1 :])
    with pytest.raises(InputError, match=r"server.db is not what was written"):
        open_own(file)


def test_what_a_server_of_an_older_version_changes_is_no_damage(journal: Journal) -> None:
    """Would catch sessions that are lost when two servers are upgraded one after the other."""
    written(journal)
    with closing(sqlite3.connect(journal.folder / "server.db")) as connection, connection:
        connection.execute("UPDATE entries SET kind = 'finished', drawn = '{}', num_bytes = 0 WHERE position = 1")
        connection.execute("UPDATE entries SET run_index = 3, run_crc = NULL WHERE position = 2")
    read_all(journal)

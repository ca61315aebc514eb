"""Catches a change that does something else than it says, that does it twice, or that reaches another's rows."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.server.storage.journal.examples import LARGE, Journal, answer, body, entry, state

from cookhouse.server.storage.journal import (
    AddAnswer,
    AddEntry,
    AddRecording,
    AddRun,
    AddSampler,
    AddSession,
    Change,
    DropAnswers,
    EndSession,
    FinishEntry,
    PutState,
    SetRunOrder,
    SetSamplerFile,
)
from cookhouse.server.storage.store.rows import RecordingRow, RunRow, SamplerRow, SessionRow

Commit = Callable[..., None]

SESSION = SessionRow(session_id="s", owner="me", created_at=1.0, user_metadata={"of": ["mine"]}, idempotency_key="key")
RUN = RunRow(
    model_id="s:0",
    session_id="s",
    owner="me",
    base_model="base",
    lora={"rank": 4},
    created_at=2.0,
    last_request_at=3.0,
    model_seq_id=0,
)
SAMPLER = SamplerRow(
    sampler_id="s:sample:0",
    session_id="s",
    owner="me",
    base_model="base",
    model_path=None,
    created_at=4.0,
    seq_id=1,
    snapshot_id="snapshot",
)


@pytest.fixture
def journal(placed_journal: Journal) -> Journal:
    return placed_journal


@pytest.fixture
def commit(journal: Journal) -> Commit:
    """Every change twice, as after a commit whose answer was lost."""

    def twice(*changes: Change) -> None:
        for _ in range(2):
            journal.run(lambda group: group.commit(*changes))

    return twice


def test_entries_come_back_as_they_were_in_order_of_acceptance(journal: Journal, commit: Commit) -> None:
    entries = [entry(2), replace(entry(1), seq_id=None, drawn={"id": None, "seeds": [2**63, 0.5]}), entry(3)]
    contents = [b"", body(1), body(2, LARGE)]
    commit(*map(AddEntry, entries, contents))
    assert journal.reader.entries("s") == [entries[1], entries[0], entries[2]]
    assert [journal.reader.body(each.request_id) for each in entries] == contents
    assert journal.reader.entries("another") == []


def test_the_first_entry_and_the_first_answer_of_a_request_count(journal: Journal, commit: Commit) -> None:
    commit(AddEntry(entry(1), b"first"), AddEntry(entry(2, request_id="train-1"), b"second"))
    commit(AddAnswer(answer("train-9", b"first")), AddAnswer(answer("train-9", b"second")))
    assert journal.request_ids() == ["train-1"]
    assert journal.reader.body("train-1") == b"first"
    assert [kept.body for kept in journal.reader.answers("s")] == [b"first"]


def test_sessions_runs_and_samplers_come_back(journal: Journal, commit: Commit) -> None:
    other = replace(SESSION, session_id="other", created_at=0.5)
    commit(AddSession(SESSION), AddSession(other), AddRun(RUN), AddSampler(SAMPLER))
    commit(AddSession(replace(SESSION, display_name="again")))
    assert list(journal.reader.live_owners()) == ["other", "s"]
    assert [journal.reader.live_session(name) for name in ("other", "s")] == [other, SESSION]
    assert (journal.reader.runs("s"), journal.reader.samplers("s")) == ([RUN], [SAMPLER])
    assert (journal.reader.runs("other"), journal.reader.samplers("other")) == ([], [])
    commit(SetSamplerFile("s:sample:0", True))
    assert journal.reader.samplers("s") == [replace(SAMPLER, has_file=True)]


def test_recordings_are_those_of_a_session(journal: Journal, commit: Commit) -> None:
    """Would catch sequences that another tenant or session can train on."""
    row = RecordingRow(
        sequence_id="sample-0",
        session_id="s",
        owner="me",
        created_at=5.0,
        num_prompt_tokens=3,
        prompt_sha256="00",
        num_bytes=2,
        content=b"\0\1",
    )
    commit(AddRecording(row), AddRecording(replace(row, sequence_id="sample-1", session_id="other")))
    ids = {"sample-0", "sample-1", "sample-2"}
    assert journal.store.recordings("s", "me", ids, max_bytes=2) == [row]
    assert journal.store.recordings("s", "you", ids, max_bytes=2) == []
    assert journal.store.recordings("s", "me", {"sample-1"}, max_bytes=2) == []


def test_requests_have_the_order_in_which_they_ran(journal: Journal, commit: Commit) -> None:
    commit(*(AddEntry(entry(position), b"") for position in range(4)))
    commit(SetRunOrder(["train-2", "train-0"], 5), SetRunOrder([], 9))
    assert [kept.run_index for kept in journal.reader.entries("s")] == [6, None, 5, None]


def test_a_state_takes_the_place_of_the_last_and_of_what_it_covers(journal: Journal, commit: Commit) -> None:
    commit(*(AddEntry(entry(position), body(position)) for position in range(3)))
    commit(PutState(state("first"), ["train-0"], [answer("train-0", body(0, LARGE))]))
    commit(PutState(state("second"), ["train-1"], [answer("train-1")]), PutState(state("else", session_id="other")))
    assert journal.reader.states("s") == [state("second")]
    assert journal.reader.states("other") == [state("else", session_id="other")]
    assert journal.request_ids() == ["train-2"]
    assert journal.reader.answers("s") == [answer("train-0", body(0, LARGE)), answer("train-1")]


def test_a_request_that_changed_nothing_leaves_its_answer(journal: Journal, commit: Commit) -> None:
    commit(AddEntry(entry(1), b""), FinishEntry(answer("train-1")))
    assert journal.request_ids() == []
    assert journal.reader.answers("s") == [answer("train-1")]
    assert [kept.seq_id for kept in journal.reader.entries("s")] == [entry(1).seq_id]  # it has come
    commit(DropAnswers(["train-1", "train-2"]))
    assert journal.reader.answers("s") == []
    commit(PutState(state("a"), ["train-1"]))
    assert journal.reader.entries("s") == []


def test_the_end_of_a_session_takes_what_it_kept_and_nobody_elses(journal: Journal, commit: Commit) -> None:
    for session_id in ("s", "other"):
        commit(
            AddSession(replace(SESSION, session_id=session_id)),
            AddSampler(replace(SAMPLER, sampler_id=f"{session_id}:x", session_id=session_id, has_file=True)),
            AddEntry(entry(1, request_id=f"train-{session_id}", session_id=session_id), body(1, LARGE)),
            AddAnswer(answer(f"answered-{session_id}", session_id=session_id)),
            PutState(state("a", session_id=session_id)),
        )
    assert len(journal.files()) > 1  # each commit wrote its large body before it saw that the row was there
    commit(EndSession("s", 9.0, "done", "all of it"), EndSession("s", 10.0, "again"))
    reader = journal.reader
    assert list(reader.live_owners()) == ["other"]
    assert [len(kept("s")) for kept in (reader.entries, reader.answers, reader.states)] == [0, 0, 0]
    assert [len(kept("other")) for kept in (reader.entries, reader.answers, reader.states)] == [1, 1, 1]
    assert [kept.has_file for of in ("s", "other") for kept in reader.samplers(of)] == [False, True]
    ended = journal.store.session("s", "me")
    assert ended == replace(SESSION, finished_at=9.0, finish_reason="done", finish_detail="all of it")
    journal.run(lambda group: group.sweep())
    assert len(journal.files()) == 1

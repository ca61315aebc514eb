"""The same of every kind of database. Catches SQL that only one of them understands, or takes otherwise."""

import math
from dataclasses import replace

import pytest
from tests.server.conftest import OpenStore, Place

from cookhouse.errors import InputError
from cookhouse.server.storage.store.clock import Clock
from cookhouse.server.storage.store.rows import CheckpointRow, RecordingRow, RunRow, SamplerRow, SessionRow
from cookhouse.server.storage.store.usage import Usage

SESSION = SessionRow(session_id="s", owner="me", created_at=1.0)
RUN = RunRow(
    model_id="s:train:0",
    session_id="s",
    owner="me",
    base_model="b",
    lora={"rank": 4},
    created_at=1.0,
    last_request_at=1.0,
    model_seq_id=2**40,
)
SAMPLER = SamplerRow(
    sampler_id="s:sample:0",
    session_id="s",
    owner="me",
    base_model="b",
    model_path=None,
    created_at=1.0,
    seq_id=2**40,
    snapshot_id="x",
    has_file=True,
)
CHECKPOINT = CheckpointRow(
    checkpoint_id="0123",
    model_id=RUN.model_id,
    kind="weights",
    name="first",
    owner="me",
    base_model="b",
    lora={"rank": 4},
    has_optimizer=True,
    size_bytes=2**40,
    created_at=1.0,
    expires_at=9.0,
    sha256={"adapter": "0" * 64},
)


def test_rows_come_back_as_they_were_of_their_owner_alone(place: Place, open_store: OpenStore) -> None:
    """Would catch a field that is not kept, a number cut to 32 bits, and rows of one tenant in another's list."""
    store = open_store(place)
    store.add_session(SESSION)
    store.add_run(RUN)
    store.add_sampler(SAMPLER)
    store.put_checkpoint(CHECKPOINT, overwrite=False)
    assert store.session("s", "me") == SESSION
    assert store.sessions("me", limit=None, offset=0) == [SESSION]
    assert store.run(RUN.model_id, "me") == RUN
    assert store.runs("me", limit=9, offset=0) == ([RUN], 1)
    assert store.session_runs("s", "me") == [RUN]
    assert store.session_samplers("s", "me") == [SAMPLER]
    assert store.checkpoint(RUN.model_id, "weights", "first", "me") == CHECKPOINT
    assert store.checkpoints("me", model_id=RUN.model_id) == ([CHECKPOINT], 1)
    assert store.session_storage("s", "me") == (1, 2**40)
    assert store.session("s", "you") is None
    assert store.run(RUN.model_id, "you") is None
    assert store.runs("you", limit=9, offset=0) == ([], 0)
    assert store.checkpoints("you") == ([], 0)
    assert store.session_runs("s", "you") == []
    assert store.session_samplers("s", "you") == []
    assert store.session_storage("s", "you") == (0, 0)
    assert store.damage() is None


def test_pages_are_newest_first(place: Place, open_store: OpenStore) -> None:
    store = open_store(place)
    runs = [replace(RUN, model_id=f"s:train:{index}", created_at=float(index)) for index in range(5)]
    for run in runs:
        store.add_run(run)
    page, total = store.runs("me", limit=2, offset=1)
    assert [run.model_id for run in page] == ["s:train:3", "s:train:2"]
    assert total == 5


def test_a_session_ends_once(place: Place, open_store: OpenStore) -> None:
    """Would catch a session that is swept later, and loses what its client said of its end."""
    store = open_store(place)
    store.add_session(SESSION)
    store.finish_session("s", 2.0, reason="success", detail="all done")
    store.finish_session("s", 3.0)
    store.set_session_project("s", "p")
    ended = replace(SESSION, finished_at=2.0, finish_reason="success", finish_detail="all done", project_id="p")
    assert store.session("s", "me") == ended


def test_runs_are_touched(place: Place, open_store: OpenStore) -> None:
    store = open_store(place)
    store.add_run(RUN)
    store.touch_runs({RUN.model_id: 5.0, "unknown": 6.0})
    assert store.run(RUN.model_id, "me") == replace(RUN, last_request_at=5.0)


def test_usage_adds_up(place: Place, open_store: OpenStore) -> None:
    """Would catch tokens that are lost, doubled or cut to 32 bits, those of one session in another's row, and sums of a
    type that JSON does not have.
    """
    store = open_store(place)
    for _ in range(2):
        store.add_usage({("me", "s"): Usage(trained_tokens=2**40, engine_seconds=0.5), ("you", "t"): Usage()})
    store.add_usage({("me", "u"): Usage(trained_tokens=1)})
    assert store.session_usage("s", "me") == Usage(trained_tokens=2**41, engine_seconds=1.0)
    assert store.session_usage("t", "you") == store.session_usage("s", "you") == Usage()
    sums = store.usage_by_owner()
    assert sums == {"me": Usage(trained_tokens=2**41 + 1, engine_seconds=1.0), "you": Usage()}
    assert type(sums["me"].trained_tokens) is int


def test_checkpoints_are_replaced_published_and_deleted(place: Place, open_store: OpenStore) -> None:
    uptime = [0.0]
    store = open_store(place, Clock(lambda: 4000.0 + uptime[0], lambda: uptime[0]))
    store.put_checkpoint(CHECKPOINT, overwrite=False)
    new = replace(CHECKPOINT, checkpoint_id="4567", expires_at=None)
    with pytest.raises(InputError, match="exists; save under another name"):
        store.put_checkpoint(new, overwrite=False)
    assert store.put_checkpoint(new, overwrite=True) == CHECKPOINT
    assert store.checkpoint_ids() == {"4567"}
    store.set_checkpoint_public("4567", True)
    store.set_checkpoint_expiry("4567", 9.0)
    published = replace(new, is_public=True, expires_at=9.0)
    assert store.checkpoint(RUN.model_id, "weights", "first", "you") == published
    assert store.expired_checkpoints() == []
    assert store.every_checkpoint() == [published]
    uptime[0] = 5000.0
    assert store.expired_checkpoints() == [published]
    assert store.every_checkpoint() == []
    assert store.put_checkpoint(replace(CHECKPOINT, created_at=10.0), overwrite=False) == published
    store.delete_checkpoint("0123")
    assert store.checkpoint_ids() == set()


def test_rows_that_may_have_been_written_can_be_written_again(place: Place, open_store: OpenStore) -> None:
    """Would catch one row that keeps all later ones from being written, for ever."""
    store = open_store(place)
    for _ in range(2):
        store.add_session(SESSION)
        store.flush()
    assert store.sessions("me", limit=9, offset=0) == [SESSION]


def test_recorded_rows_are_there_after_a_restart(place: Place, open_store: OpenStore) -> None:
    """Would catch a checkpoint whose run is unknown after a crash: the next transaction has to write what waits."""
    first = open_store(place)
    first.add_session(SESSION)
    first.put_checkpoint(CHECKPOINT, overwrite=False)
    first.close()
    assert open_store(place).sessions("me", limit=9, offset=0) == [SESSION]


HOSTILE = "a\0b ' \" \\ % :x \U0001f600"


def test_recordings_go_with_time_their_session_and_room(place: Place, open_store: OpenStore) -> None:
    """Would catch a database that grows with every sample, and one that forgets what may still be trained on, at the
    latest when the system's clock jumps.
    """
    jumped = up = 0.0
    store = open_store(place, Clock(lambda: 4.0 + up + jumped, lambda: up))
    for session_id in ("live", "ended"):
        store.add_session(SessionRow(session_id=session_id, owner="me", created_at=1.0))
    store.finish_session("ended", 2.0)
    made = {"old": ("live", 1.0), "a": ("live", 5.0), "b": ("live", 6.0), "gone": ("ended", 7.0)}
    for name, (session_id, created_at) in made.items():
        store.add_recording(
            RecordingRow(
                sequence_id=name,
                session_id=session_id,
                owner="me",
                created_at=created_at,
                num_prompt_tokens=1,
                prompt_sha256="00",
                num_bytes=10,
                content=b"0123456789",
            )
        )

    def left() -> set[str]:
        rows = [
            row
            for session_id in ("live", "ended")
            for row in store.recordings(session_id, "me", set(made), max_bytes=99)
        ]
        return {row.sequence_id for row in rows}

    assert left() == set(made)
    jumped = 86_400.0
    store.sweep_recordings(max_seconds=3.0, max_bytes=1000)
    assert left() == {"old", "a", "b"}
    up = 4000.0
    store.sweep_recordings(max_seconds=4003.0, max_bytes=1000)
    assert left() == {"a", "b"}
    store.sweep_recordings(max_seconds=4003.0, max_bytes=19)
    assert left() == {"b"}


def test_any_text_of_a_client_can_be_kept(place: Place, open_store: OpenStore) -> None:
    """Would catch a name that cannot be written, and with it, for ever, none of what waits to be written."""
    store = open_store(place)
    metadata = {"nan": math.nan, "text": HOSTILE, HOSTILE: math.inf}
    store.add_session(replace(SESSION, display_name=HOSTILE, user_metadata=metadata))
    store.finish_session("s", 2.0, reason=HOSTILE, detail=HOSTILE)
    [row] = store.sessions("me", limit=9, offset=0)
    assert row.display_name is not None
    assert row.display_name.replace("\ufffd", "\0") == HOSTILE
    assert row.user_metadata == {"nan": None, "text": HOSTILE, HOSTILE: None}
    assert store.checkpoint(HOSTILE, HOSTILE, HOSTILE, HOSTILE) is None

"""What the journal and its folders have of sessions, as it is read to bring them back."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cookhouse.engine.contract import LoraSpec
from cookhouse.server.sequencer.history import LOAD
from cookhouse.server.sequencer.plans import request_id_of
from cookhouse.server.sessions.sessions import Model
from cookhouse.server.storage.journal import Answer, DamagedBodyError, Entry, JournalReader, State
from cookhouse.server.storage.journal.folders import JournalFolders
from cookhouse.server.storage.store.rows import RunRow, SamplerRow, SessionRow


@dataclass(slots=True, kw_only=True)
class Journaled:
    """Of a session."""

    session: SessionRow
    runs: Sequence[RunRow]
    samplers: Sequence[SamplerRow]
    entries: Sequence[Entry]
    states: Sequence[State]
    file_bytes: Mapping[str, int]
    """Of published weights in files, by snapshot."""
    answers: Sequence[Answer]
    damaged: Mapping[str, DamagedBodyError]
    """By request whose answer cannot be read."""
    segments: Collection[str]
    """Those that its bodies lie in."""


def read_session(session: SessionRow, reader: JournalReader, folders: JournalFolders) -> Journaled:
    """Blocking. Raises StorageError: it cannot be read."""
    session_id = session.session_id
    samplers = reader.samplers(session_id)
    damaged: dict[str, DamagedBodyError] = {}
    return Journaled(
        session=session,
        runs=reader.runs(session_id),
        samplers=samplers,
        entries=reader.entries(session_id),
        states=reader.states(session_id),
        file_bytes=folders.sampler_bytes([row.snapshot_id for row in samplers if row.snapshot_id]),
        answers=reader.answers(session_id, damaged.__setitem__),
        damaged=damaged,
        segments=reader.segments(session_id),
    )


def needed_folders(reader: JournalReader, folders: JournalFolders) -> Sequence[Path]:
    """Those of all live sessions. Blocking. Raises StorageError."""
    needed = reader.needed_folders(LOAD)
    return [
        *map(folders.state, needed.states),
        *map(folders.sampler, needed.samplers),
        *map(folders.load, needed.loads),
    ]


def sweep(reader: JournalReader, folders: JournalFolders, found: Sequence[Path] | None = None) -> None:
    """Delete what was never finished, and put aside folders that no live session needs; `found`: only of these.
    Blocking. Raises StorageError.
    """
    folders.sweep(needed_folders(reader, folders), found=found)


def model_of(run: RunRow) -> Model:
    """The model of a training run of the journal."""
    assert run.model_seq_id is not None
    return Model(
        model_id=run.model_id,
        session_id=run.session_id,
        owner=run.owner,
        base_model=run.base_model,
        lora=LoraSpec(**run.lora),
        seq_id=run.model_seq_id,
        creation=request_id_of(run.model_id, "creation"),
    )

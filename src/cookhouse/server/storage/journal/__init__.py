"""The journal: what was accepted and is not yet part of a state on the disk."""

from cookhouse.server.storage.journal.group_commit import GroupCommit
from cookhouse.server.storage.journal.journal import FILES, OFF, Journal, JournalReader
from cookhouse.server.storage.journal.rows import (
    AddAnswer,
    AddEntry,
    AddRecording,
    AddRun,
    AddSampler,
    AddSession,
    Answer,
    Change,
    DropAnswers,
    DropEntry,
    EndSession,
    Entry,
    FinishEntry,
    PutState,
    SetRunOrder,
    SetSamplerFile,
    State,
)
from cookhouse.server.storage.journal.segments import DamagedBodyError, SegmentFiles
from cookhouse.server.storage.store.rows import FINISHED

__all__ = [
    "FILES",
    "FINISHED",
    "OFF",
    "AddAnswer",
    "AddEntry",
    "AddRecording",
    "AddRun",
    "AddSampler",
    "AddSession",
    "Answer",
    "Change",
    "DamagedBodyError",
    "DropAnswers",
    "DropEntry",
    "EndSession",
    "Entry",
    "FinishEntry",
    "GroupCommit",
    "Journal",
    "JournalReader",
    "PutState",
    "SegmentFiles",
    "SetRunOrder",
    "SetSamplerFile",
    "State",
]

"""Changes as statements, which are made once: SQLAlchemy compiles each of them a single time."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

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
    FinishEntry,
    PutState,
    SetRunOrder,
    SetSamplerFile,
)
from cookhouse.server.storage.journal.segments import Place
from cookhouse.server.storage.store.row_sums import order_sum, row_sum
from cookhouse.server.storage.store.rows import FINISHED
from cookhouse.server.storage.store.tables import (
    AnswerRecord,
    Base,
    EntryRecord,
    RecordingRecord,
    RunRecord,
    SamplerRecord,
    SessionRecord,
    StateRecord,
)

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, for several sets of values in order."""

    statement: sa.Executable
    values: Sequence[Values]
    deletes: bool = False
    """Whether it may leave a segment that no row names."""


def bodies_of(change: Change) -> Sequence[bytes]:
    """The bodies that a change brings, in the order in which `steps_of` takes their places."""
    match change:
        case AddEntry(body=body):
            return [body]
        case PutState(answers=answers):
            return [answer.body for answer in answers]
        case FinishEntry(answer=answer) | AddAnswer(answer=answer):
            return [answer.body]
        case _:
            return []


def steps_of(change: Change, places: Iterator[Place]) -> Sequence[Statement]:
    """Statements of a change, in order; `places` has those of its bodies next."""
    match change:
        case AddEntry(entry=entry, body=body):
            values = _summed(EntryRecord, entry) | _body_columns(body, next(places))
            run_crc = None if entry.run_index is None else order_sum(entry.request_id, entry.run_index)
            return [Statement(_ADD_ENTRY, [values | {"run_crc": run_crc}])]
        case DropEntry(request_id=request_id, position=position):
            return [Statement(_DROP_ENTRY_AT, [{"of": request_id, "at": position}], deletes=True)]
        case AddSession(row=row):
            return [Statement(_ADD_SESSION, [_summed(SessionRecord, row)])]
        case AddRun(row=run):
            return [Statement(_ADD_RUN, [_summed(RunRecord, run)])]
        case AddSampler(row=sampler):
            return [Statement(_ADD_SAMPLER, [_summed(SamplerRecord, sampler)])]
        case AddRecording(row=recording):
            return [Statement(_ADD_RECORDING, [_summed(RecordingRecord, recording)])]
        case EndSession(session_id=session_id):
            ended = {"of": session_id}
            finish = {"at": change.finished_at, "reason": change.reason, "detail": change.detail}
            forget = [Statement(statement, [ended], deletes=True) for statement in _FORGET_SESSION]
            return [Statement(_FINISH_SESSION, [ended | finish]), *forget]
        case SetRunOrder(request_ids=request_ids, first_index=first):
            indexes = {name: first + at for at, name in enumerate(request_ids)}
            return [
                Statement(
                    _SET_RUN_INDEX,
                    [{"of": name, "index": index, "crc": order_sum(name, index)} for name, index in indexes.items()],
                )
            ]
        case PutState(state=state, covered=covered, answers=answers):
            return [
                Statement(_DROP_ENTRY, [{"of": request_id} for request_id in covered], deletes=True),
                Statement(_ADD_ANSWER, [_answer(answer, next(places)) for answer in answers]),
                Statement(_DROP_STATE, [{"of": state.model_id}]),
                Statement(_ADD_STATE, [_summed(StateRecord, state)]),
            ]
        case FinishEntry(answer=answer):
            finished = Statement(_FINISH_ENTRY, [{"of": answer.request_id}], deletes=True)
            return [finished, Statement(_ADD_ANSWER, [_answer(answer, next(places))])]
        case AddAnswer(answer=answer):
            return [Statement(_ADD_ANSWER, [_answer(answer, next(places))])]
        case DropAnswers(request_ids=request_ids):
            return [Statement(_DROP_ANSWER, [{"of": request_id} for request_id in request_ids], deletes=True)]
        case SetSamplerFile(sampler_id=sampler_id, has_file=has_file, sha256=sha256):
            return [Statement(_SET_SAMPLER_FILE, [{"of": sampler_id, "has": has_file, "digests": sha256}])]


def execute(connection: sa.Connection, *steps: Sequence[Statement]) -> None:
    """Run steps in order; those that follow one another with the same statement at once."""
    for _, run in itertools.groupby(itertools.chain(*steps), key=lambda step: id(step.statement)):
        same = list(run)
        values = [each for step in same for each in step.values]
        if values:
            connection.execute(same[0].statement, values)


def _summed(record: type[Base], row: Any) -> dict[str, Any]:
    # `asdict` would copy what the JSON columns hold.
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    return values | row_sum(record, values)


def _answer(answer: Answer, place: Place) -> Values:
    return _summed(AnswerRecord, answer) | _body_columns(answer.body, place)


def _body_columns(body: bytes, place: Place) -> dict[str, Any]:
    return {
        "segment": place.segment,
        "body_offset": place.offset,
        "num_body_bytes": place.num_bytes,
        "body_crc": place.crc,
        "body": body if place.segment is None else None,
    }


def _table(record: type[Base]) -> sa.Table:
    table = record.__table__
    assert isinstance(table, sa.Table)
    return table


def _insert_new(record: type[Base]) -> sa.Insert:
    """Insert a row whose key no other has, in the SQL that every database has in common."""
    table = _table(record)
    given = {column.name: sa.bindparam(column.name, type_=column.type) for column in table.columns}
    is_known = sa.exists().where(*(column == given[column.name] for column in table.primary_key))
    return table.insert().from_select(list(table.columns), sa.select(*given.values()).where(~is_known))


_OF = sa.bindparam("of", type_=sa.String)
_entries, _answers, _states = _table(EntryRecord), _table(AnswerRecord), _table(StateRecord)
_sessions, _samplers = _table(SessionRecord), _table(SamplerRecord)

_ADD_ENTRY, _ADD_ANSWER, _ADD_STATE = map(_insert_new, (EntryRecord, AnswerRecord, StateRecord))
_ADD_SESSION, _ADD_RUN, _ADD_SAMPLER = map(_insert_new, (SessionRecord, RunRecord, SamplerRecord))
_ADD_RECORDING = _insert_new(RecordingRecord)
_DROP_ENTRY = _entries.delete().where(_entries.c.request_id == _OF)
_FINISH_ENTRY = (
    _entries.update()
    .where(_entries.c.request_id == _OF)
    .values(
        kind=FINISHED,
        drawn={},
        num_bytes=0,
        segment=None,
        body_offset=None,
        num_body_bytes=0,
        body_crc=0,
        body=None,
    )
)
_DROP_ENTRY_AT = _DROP_ENTRY.where(_entries.c.position == sa.bindparam("at"))
_DROP_ANSWER = _answers.delete().where(_answers.c.request_id == _OF)
_DROP_STATE = _states.delete().where(_states.c.model_id == _OF)
_SET_RUN_INDEX = (
    _entries.update()
    .where(_entries.c.request_id == _OF)
    .values(run_index=sa.bindparam("index"), run_crc=sa.bindparam("crc"))
)
_SET_SAMPLER_FILE = (
    _samplers.update()
    .where(_samplers.c.sampler_id == _OF)
    .values(has_file=sa.bindparam("has"), sha256=sa.bindparam("digests"))
)
_FINISH_SESSION = (
    _sessions.update()
    .where(_sessions.c.session_id == _OF, _sessions.c.finished_at.is_(None))
    .values(finished_at=sa.bindparam("at"), finish_reason=sa.bindparam("reason"), finish_detail=sa.bindparam("detail"))
)
_FORGET_SESSION: Sequence[sa.Executable] = (
    *(table.delete().where(table.c.session_id == _OF) for table in (_entries, _answers, _states)),
    _samplers.update().where(_samplers.c.session_id == _OF).values(has_file=sa.false()),
)

NAMED_SEGMENTS = sa.union(
    *(sa.select(table.c.segment).where(table.c.segment.is_not(None)) for table in (_entries, _answers))
)
"""Those that an entry or an answer lies in."""

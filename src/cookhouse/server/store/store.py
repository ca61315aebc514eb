"""What outlives the process: sessions, training runs, samplers and checkpoints, in one SQLite file.

Only checkpoints can be used again after a restart; the rest is kept so that it can be listed, and no request waits for
it: such rows are recorded in memory, and written before the next list is read, with the next checkpoint, or by `flush`.
Every row has its owner, and every query asks for one. Times are seconds since the epoch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

import sqlalchemy as sa

from cookhouse.engine.contract import LoraSpec
from cookhouse.errors import InputError
from cookhouse.server.store.database import Database
from cookhouse.server.store.usage import Usage

CheckpointKind = Literal["weights", "sampler_weights", "external_weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    session_id: str
    owner: str
    created_at: float
    finished_at: float | None = None
    display_name: str | None = None
    user_metadata: Mapping[str, Any] = field(default_factory=dict)
    project_id: str | None = None
    """A label: every tenant has its own sessions and no others, whatever it calls their projects."""
    finish_reason: str | None = None
    """What its client said; None if it did not say anything."""
    finish_detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    model_id: str
    session_id: str
    owner: str
    base_model: str
    lora: Mapping[str, Any]
    created_at: float
    last_request_at: float
    user_metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerRow:
    sampler_id: str
    session_id: str
    owner: str
    base_model: str
    model_path: str | None
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    checkpoint_id: str
    """Name of its folder; made by the server."""
    model_id: str
    kind: CheckpointKind
    name: str
    owner: str
    base_model: str
    lora: Mapping[str, Any]
    has_optimizer: bool
    size_bytes: int
    created_at: float
    expires_at: float | None
    user_metadata: Mapping[str, Any] = field(default_factory=dict)
    sha256: Mapping[str, str] | None = None
    """Of each file, by name; None for one saved before they were kept."""
    is_public: bool = False
    """Whether every tenant may read it."""

    @property
    def path(self) -> str:
        return f"tinker://{self.model_id}/{self.kind}/{self.name}"

    @property
    def lora_spec(self) -> LoraSpec:
        return LoraSpec(**self.lora)


_TOKENS = ("trained_tokens", "scored_tokens", "prompt_tokens", "sampled_tokens")
metadata = sa.MetaData()
"""The tables as of the newest migration."""
_sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("session_id", sa.String, primary_key=True),
    sa.Column("owner", sa.String, nullable=False, index=True),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("finished_at", sa.Float),
    sa.Column("display_name", sa.String),
    sa.Column("user_metadata", sa.JSON, nullable=False),
    sa.Column("project_id", sa.String),
    sa.Column("finish_reason", sa.String),
    sa.Column("finish_detail", sa.String),
)
_runs = sa.Table(
    "runs",
    metadata,
    sa.Column("model_id", sa.String, primary_key=True),
    sa.Column("session_id", sa.String, nullable=False, index=True),
    sa.Column("owner", sa.String, nullable=False, index=True),
    sa.Column("base_model", sa.String, nullable=False),
    sa.Column("lora", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("last_request_at", sa.Float, nullable=False),
    sa.Column("user_metadata", sa.JSON, nullable=False),
)
_samplers = sa.Table(
    "samplers",
    metadata,
    sa.Column("sampler_id", sa.String, primary_key=True),
    sa.Column("session_id", sa.String, nullable=False, index=True),
    sa.Column("owner", sa.String, nullable=False),
    sa.Column("base_model", sa.String, nullable=False),
    sa.Column("model_path", sa.String),
    sa.Column("created_at", sa.Float, nullable=False),
)
_checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("checkpoint_id", sa.String, primary_key=True),
    sa.Column("model_id", sa.String, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("owner", sa.String, nullable=False, index=True),
    sa.Column("base_model", sa.String, nullable=False),
    sa.Column("lora", sa.JSON, nullable=False),
    sa.Column("has_optimizer", sa.Boolean, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("expires_at", sa.Float, index=True),
    sa.Column("user_metadata", sa.JSON, nullable=False),
    sa.Column("sha256", sa.JSON(none_as_null=True)),
    sa.Column("is_public", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.UniqueConstraint("model_id", "kind", "name"),
)
_usage = sa.Table(
    "usage",
    metadata,
    sa.Column("session_id", sa.String, primary_key=True),
    sa.Column("owner", sa.String, nullable=False, index=True),
    *(sa.Column(name, sa.BigInteger, nullable=False) for name in _TOKENS),
    sa.Column("engine_seconds", sa.Float, nullable=False),
)
_AMOUNTS = (*_TOKENS, "engine_seconds")

Row = TypeVar("Row", SessionRow, RunRow, SamplerRow, CheckpointRow)


class Store:
    """Short, blocking calls, from any thread."""

    def __init__(self, file: Path) -> None:
        """Open or make the file, and bring one of an older version up to date, whose server must not be running.

        Raises:
            InputError: it was made by a newer version, is no database, or cannot be written.
        """
        self._database = Database(file)
        self._deleted: set[str] = set()
        """Checkpoints whose rows could not be deleted yet."""

    def close(self) -> None:
        """Let go of the file; what has not been flushed is lost."""
        self._database.close()

    def flush(self) -> None:
        """Write the rows that have been recorded.

        Raises:
            StorageError: they cannot be written now, and are kept for the next time.
        """
        self._database.flush()

    def damage(self) -> str | None:
        """What is wrong with the file, None if nothing is."""
        return self._database.damage()

    # Sessions, runs and samplers: recorded when made, listed later.

    def add_session(self, row: SessionRow) -> None:
        self._record(_sessions, row)

    def finish_session(
        self, session_id: str, finished_at: float, *, reason: str | None = None, detail: str | None = None
    ) -> None:
        update = _sessions.update().where(_sessions.c.session_id == session_id, _sessions.c.finished_at.is_(None))
        self._database.record(update.values(finished_at=finished_at, finish_reason=reason, finish_detail=detail))

    def set_session_project(self, session_id: str, project_id: str) -> None:
        update = _sessions.update().where(_sessions.c.session_id == session_id)
        with self._database.writing() as connection:
            connection.execute(update.values(project_id=project_id))

    def session_storage(self, session_id: str, owner: str, *, now: float) -> tuple[int, int]:
        """How many checkpoints the runs of a session have, and their bytes."""
        counted = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_checkpoints.c.size_bytes), 0))
        query = counted.select_from(_checkpoints.join(_runs, _runs.c.model_id == _checkpoints.c.model_id))
        mine = (_runs.c.session_id == session_id) & (_checkpoints.c.owner == owner) & self._is_kept(now)
        with self._database.reading() as connection:
            count, num_bytes = connection.execute(query.where(mine)).one()
        return count, num_bytes

    def sessions(self, owner: str, *, limit: int | None, offset: int) -> Sequence[SessionRow]:
        """Newest first."""
        query = _sessions.select().where(_sessions.c.owner == owner).order_by(_sessions.c.created_at.desc())
        return self._select(SessionRow, query.limit(limit).offset(offset))

    def session(self, session_id: str, owner: str) -> SessionRow | None:
        query = _sessions.select().where(_sessions.c.session_id == session_id, _sessions.c.owner == owner)
        return self._first(SessionRow, query)

    def add_run(self, row: RunRow) -> None:
        self._record(_runs, row)

    def touch_runs(self, last_request_at: Mapping[str, float]) -> None:
        if not last_request_at:
            return
        with self._database.writing() as connection:
            for model_id, time in last_request_at.items():
                update = _runs.update().where(_runs.c.model_id == model_id)
                connection.execute(update.values(last_request_at=time))

    def runs(self, owner: str, *, limit: int, offset: int) -> tuple[Sequence[RunRow], int]:
        """One page of a tenant's runs, newest first, and how many there are in all."""
        mine = _runs.c.owner == owner
        query = _runs.select().where(mine).order_by(_runs.c.created_at.desc(), _runs.c.model_id)
        rows = self._select(RunRow, query.limit(limit).offset(offset))
        with self._database.reading() as connection:
            total = connection.execute(sa.select(sa.func.count()).select_from(_runs).where(mine)).scalar_one()
        return rows, total

    def run(self, model_id: str, owner: str) -> RunRow | None:
        return self._first(RunRow, _runs.select().where(_runs.c.model_id == model_id, _runs.c.owner == owner))

    def session_runs(self, session_id: str, owner: str) -> Sequence[RunRow]:
        mine = (_runs.c.session_id == session_id) & (_runs.c.owner == owner)
        return self._select(RunRow, _runs.select().where(mine).order_by(_runs.c.created_at))

    def add_sampler(self, row: SamplerRow) -> None:
        self._record(_samplers, row)

    def session_samplers(self, session_id: str, owner: str) -> Sequence[SamplerRow]:
        mine = (_samplers.c.session_id == session_id) & (_samplers.c.owner == owner)
        return self._select(SamplerRow, _samplers.select().where(mine).order_by(_samplers.c.created_at))

    # What was used: added up by session, and kept when that has ended.

    def add_usage(self, used: Mapping[tuple[str, str], Usage]) -> None:
        """Add what sessions have used, by owner and session, all or nothing of it.

        Raises:
            StorageError: nothing was written.
        """
        if not used:
            return
        with self._database.writing() as connection:
            for (owner, session_id), usage in used.items():
                connection.execute(_insert_new(_usage, dict(owner=owner, session_id=session_id, **asdict(Usage()))))
                summed = {name: _usage.c[name] + getattr(usage, name) for name in _AMOUNTS}
                connection.execute(_usage.update().where(_usage.c.session_id == session_id).values(summed))

    def session_usage(self, session_id: str, owner: str) -> Usage:
        query = sa.select(*(_usage.c[name] for name in _AMOUNTS))
        with self._database.reading() as connection:
            mine = query.where(_usage.c.session_id == session_id, _usage.c.owner == owner)
            row = connection.execute(mine).mappings().first()
        return Usage() if row is None else Usage(**row)

    def usage_by_owner(self) -> Mapping[str, Usage]:
        """Of every tenant: for whoever runs the server."""
        sums = [sa.func.sum(_usage.c[name]).label(name) for name in _AMOUNTS]
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(_usage.c.owner, *sums).group_by(_usage.c.owner)).mappings()
            return {row["owner"]: Usage(**{name: row[name] for name in _AMOUNTS}) for row in rows}

    # Checkpoints. One that has expired is treated as deleted, also before it is.

    def put_checkpoint(self, row: CheckpointRow, *, overwrite: bool) -> str | None:
        """Add a checkpoint; returns the id of the one it replaces.

        Raises:
            InputError: the name is taken and `overwrite` is false.
            StorageError: it cannot be written.
        """
        same = (
            (_checkpoints.c.model_id == row.model_id)
            & (_checkpoints.c.kind == row.kind)
            & (_checkpoints.c.name == row.name)
        )
        with self._database.writing() as connection:
            old = connection.execute(sa.select(_checkpoints.c.checkpoint_id, _checkpoints.c.expires_at).where(same))
            replaced = old.first()
            if replaced is not None:
                is_expired = replaced.expires_at is not None and replaced.expires_at <= row.created_at
                is_deleted = replaced.checkpoint_id in self._deleted
                if not (overwrite or is_expired or is_deleted):
                    raise InputError(f"{row.path} exists; save under another name, delete it, or pass overwrite")
                connection.execute(_checkpoints.delete().where(same))
            connection.execute(_checkpoints.insert().values(asdict(row)))
        return None if replaced is None else str(replaced.checkpoint_id)

    def checkpoint(self, model_id: str, kind: str, name: str, owner: str, *, now: float) -> CheckpointRow | None:
        """One that a tenant may read: its own, or a published one."""
        query = _checkpoints.select().where(
            _checkpoints.c.model_id == model_id, _checkpoints.c.kind == kind, _checkpoints.c.name == name
        )
        is_readable = (_checkpoints.c.owner == owner) | _checkpoints.c.is_public
        return self._first(CheckpointRow, query.where(is_readable, self._is_kept(now)))

    def checkpoints(
        self, owner: str, *, now: float, model_id: str | None = None, limit: int | None = None, offset: int = 0
    ) -> tuple[Sequence[CheckpointRow], int]:
        """One page of a tenant's checkpoints, newest first, and how many there are in all."""
        wanted = (_checkpoints.c.owner == owner) & self._is_kept(now)
        if model_id is not None:
            wanted &= _checkpoints.c.model_id == model_id
        query = _checkpoints.select().where(wanted).order_by(_checkpoints.c.created_at.desc())
        with self._database.reading() as connection:
            total = connection.execute(sa.select(sa.func.count()).select_from(_checkpoints).where(wanted)).scalar_one()
        return self._select(CheckpointRow, query.limit(limit).offset(offset)), total

    def every_checkpoint(self, *, now: float) -> Sequence[CheckpointRow]:
        """Those of every tenant, oldest first: for whoever owns the file, never for a client."""
        return self._select(
            CheckpointRow, _checkpoints.select().where(self._is_kept(now)).order_by(_checkpoints.c.created_at)
        )

    def set_checkpoint_expiry(self, checkpoint_id: str, expires_at: float | None) -> None:
        update = _checkpoints.update().where(_checkpoints.c.checkpoint_id == checkpoint_id)
        with self._database.writing() as connection:
            connection.execute(update.values(expires_at=expires_at))

    def set_checkpoint_public(self, checkpoint_id: str, is_public: bool) -> None:
        update = _checkpoints.update().where(_checkpoints.c.checkpoint_id == checkpoint_id)
        with self._database.writing() as connection:
            connection.execute(update.values(is_public=is_public))

    def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Forget a checkpoint, also if its row cannot be deleted now; again does nothing more.

        Raises:
            StorageError: as `flush`; the row must be deleted again.
        """
        self._deleted.add(checkpoint_id)
        with self._database.writing() as connection:
            connection.execute(_checkpoints.delete().where(_checkpoints.c.checkpoint_id == checkpoint_id))
        self._deleted.discard(checkpoint_id)

    def expired_checkpoints(self, *, now: float) -> Sequence[CheckpointRow]:
        return self._select(CheckpointRow, _checkpoints.select().where(_checkpoints.c.expires_at <= now))

    def checkpoint_ids(self) -> set[str]:
        """Of every checkpoint that has not been deleted, also those that have expired."""
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(_checkpoints.c.checkpoint_id))
            return {row.checkpoint_id for row in rows} - self._deleted

    def _record(self, table: sa.Table, row: Any) -> None:
        self._database.record(_insert_new(table, asdict(row)))

    def _select(self, kind: type[Row], query: sa.Select[Any]) -> Sequence[Row]:
        if kind is not CheckpointRow:  # those are never recorded for later
            self._database.try_flush()
        names = [column.name for column in fields(kind)]
        with self._database.reading() as connection:
            return [kind(**{name: row[name] for name in names}) for row in connection.execute(query).mappings()]

    def _first(self, kind: type[Row], query: sa.Select[Any]) -> Row | None:
        return next(iter(self._select(kind, query)), None)

    def _is_kept(self, now: float) -> sa.ColumnElement[bool]:
        is_alive = _checkpoints.c.expires_at.is_(None) | (_checkpoints.c.expires_at > now)
        return is_alive & _checkpoints.c.checkpoint_id.not_in(tuple(self._deleted))


def _insert_new(table: sa.Table, values: Mapping[str, Any]) -> sa.Insert:
    """Insert a row whose key no other has, in the SQL that every database has in common."""
    columns = [table.c[name] for name in values]
    is_known = sa.exists().where(*(column == values[column.name] for column in table.primary_key))
    row = sa.select(*(sa.literal(values[column.name], column.type) for column in columns)).where(~is_known)
    return table.insert().from_select(columns, row)

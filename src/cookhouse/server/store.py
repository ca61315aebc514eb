"""What outlives the process: sessions, training runs, samplers and checkpoints, in one SQLite file.

Only checkpoints can be used again after a restart; the rest is kept so that it can be listed. Every row has its owner,
and every query asks for one. Times are seconds since the epoch.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

import sqlalchemy as sa

from cookhouse.engine.contract import LoraSpec
from cookhouse.errors import InputError

_SCHEMA_VERSION = 1

CheckpointKind = Literal["weights", "sampler_weights", "external_weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    session_id: str
    owner: str
    created_at: float
    finished_at: float | None = None
    display_name: str | None = None
    user_metadata: Mapping[str, Any] = field(default_factory=dict)


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

    @property
    def path(self) -> str:
        return f"tinker://{self.model_id}/{self.kind}/{self.name}"

    @property
    def lora_spec(self) -> LoraSpec:
        return LoraSpec(**self.lora)


_metadata = sa.MetaData()
_sessions = sa.Table(
    "sessions",
    _metadata,
    sa.Column("session_id", sa.String, primary_key=True),
    sa.Column("owner", sa.String, nullable=False, index=True),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("finished_at", sa.Float),
    sa.Column("display_name", sa.String),
    sa.Column("user_metadata", sa.JSON, nullable=False),
)
_runs = sa.Table(
    "runs",
    _metadata,
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
    _metadata,
    sa.Column("sampler_id", sa.String, primary_key=True),
    sa.Column("session_id", sa.String, nullable=False, index=True),
    sa.Column("owner", sa.String, nullable=False),
    sa.Column("base_model", sa.String, nullable=False),
    sa.Column("model_path", sa.String),
    sa.Column("created_at", sa.Float, nullable=False),
)
_checkpoints = sa.Table(
    "checkpoints",
    _metadata,
    sa.Column("checkpoint_id", sa.String, primary_key=True),
    sa.Column("model_id", sa.String, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("owner", sa.String, nullable=False, index=True),
    sa.Column("base_model", sa.String, nullable=False),
    sa.Column("lora", sa.JSON, nullable=False),
    sa.Column("has_optimizer", sa.Boolean, nullable=False),
    sa.Column("size_bytes", sa.Integer, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("expires_at", sa.Float, index=True),
    sa.Column("user_metadata", sa.JSON, nullable=False),
    sa.UniqueConstraint("model_id", "kind", "name"),
)

Row = TypeVar("Row", SessionRow, RunRow, SamplerRow, CheckpointRow)


class Store:
    """Short, blocking calls, from any thread."""

    def __init__(self, file: Path) -> None:
        """Open or make the file.

        Raises:
            InputError: it was made by another version, or is no database.
        """
        self._engine = sa.create_engine(f"sqlite:///{file}")
        sa.event.listen(self._engine, "connect", _prepare_connection)
        try:
            with self._engine.begin() as connection:
                version = connection.execute(sa.text("PRAGMA user_version")).scalar_one()
                if version not in (0, _SCHEMA_VERSION):
                    raise InputError(
                        f"{file} was made by another version of cookhouse (schema {version}, this one has "
                        f"{_SCHEMA_VERSION}); choose another state folder"
                    )
                _metadata.create_all(connection)
                connection.execute(sa.text(f"PRAGMA user_version = {_SCHEMA_VERSION}"))
        except sa.exc.DatabaseError as error:
            self._engine.dispose()
            raise InputError(f"{file} cannot be opened as a database: {error.orig}") from error

    def close(self) -> None:
        self._engine.dispose()

    # Sessions, runs and samplers: written when made, listed later.

    def add_session(self, row: SessionRow) -> None:
        self._insert(_sessions, row)

    def finish_session(self, session_id: str, finished_at: float) -> None:
        update = _sessions.update().where(_sessions.c.session_id == session_id, _sessions.c.finished_at.is_(None))
        with self._engine.begin() as connection:
            connection.execute(update.values(finished_at=finished_at))

    def sessions(self, owner: str, *, limit: int, offset: int) -> Sequence[SessionRow]:
        """Newest first."""
        query = _sessions.select().where(_sessions.c.owner == owner).order_by(_sessions.c.created_at.desc())
        return self._select(SessionRow, query.limit(limit).offset(offset))

    def session(self, session_id: str, owner: str) -> SessionRow | None:
        query = _sessions.select().where(_sessions.c.session_id == session_id, _sessions.c.owner == owner)
        return self._first(SessionRow, query)

    def add_run(self, row: RunRow) -> None:
        self._insert(_runs, row)

    def touch_runs(self, last_request_at: Mapping[str, float]) -> None:
        with self._engine.begin() as connection:
            for model_id, time in last_request_at.items():
                update = _runs.update().where(_runs.c.model_id == model_id)
                connection.execute(update.values(last_request_at=time))

    def runs(self, owner: str, *, limit: int, offset: int) -> tuple[Sequence[RunRow], int]:
        """One page of a tenant's runs, newest first, and how many there are in all."""
        mine = _runs.c.owner == owner
        query = _runs.select().where(mine).order_by(_runs.c.created_at.desc(), _runs.c.model_id)
        with self._engine.connect() as connection:
            total = connection.execute(sa.select(sa.func.count()).select_from(_runs).where(mine)).scalar_one()
        return self._select(RunRow, query.limit(limit).offset(offset)), total

    def run(self, model_id: str, owner: str) -> RunRow | None:
        return self._first(RunRow, _runs.select().where(_runs.c.model_id == model_id, _runs.c.owner == owner))

    def session_runs(self, session_id: str, owner: str) -> Sequence[RunRow]:
        mine = (_runs.c.session_id == session_id) & (_runs.c.owner == owner)
        return self._select(RunRow, _runs.select().where(mine).order_by(_runs.c.created_at))

    def add_sampler(self, row: SamplerRow) -> None:
        self._insert(_samplers, row)

    def session_samplers(self, session_id: str, owner: str) -> Sequence[SamplerRow]:
        mine = (_samplers.c.session_id == session_id) & (_samplers.c.owner == owner)
        return self._select(SamplerRow, _samplers.select().where(mine).order_by(_samplers.c.created_at))

    # Checkpoints. One that has expired is treated as deleted, also before it is.

    def put_checkpoint(self, row: CheckpointRow, *, overwrite: bool) -> str | None:
        """Add a checkpoint; returns the id of the one it replaces.

        Raises:
            InputError: the name is taken and `overwrite` is false.
        """
        same = (
            (_checkpoints.c.model_id == row.model_id)
            & (_checkpoints.c.kind == row.kind)
            & (_checkpoints.c.name == row.name)
        )
        with self._engine.begin() as connection:
            old = connection.execute(sa.select(_checkpoints.c.checkpoint_id, _checkpoints.c.expires_at).where(same))
            replaced = old.first()
            if replaced is not None:
                is_expired = replaced.expires_at is not None and replaced.expires_at <= row.created_at
                if not (overwrite or is_expired):
                    raise InputError(f"{row.path} exists; save under another name, delete it, or pass overwrite")
                connection.execute(_checkpoints.delete().where(same))
            connection.execute(_checkpoints.insert().values(asdict(row)))
        return None if replaced is None else str(replaced.checkpoint_id)

    def checkpoint(self, model_id: str, kind: str, name: str, owner: str, *, now: float) -> CheckpointRow | None:
        query = _checkpoints.select().where(
            _checkpoints.c.model_id == model_id, _checkpoints.c.kind == kind, _checkpoints.c.name == name
        )
        return self._first(CheckpointRow, query.where(_checkpoints.c.owner == owner, _is_kept(now)))

    def checkpoints(
        self, owner: str, *, now: float, model_id: str | None = None, limit: int | None = None, offset: int = 0
    ) -> tuple[Sequence[CheckpointRow], int]:
        """One page of a tenant's checkpoints, newest first, and how many there are in all."""
        wanted = (_checkpoints.c.owner == owner) & _is_kept(now)
        if model_id is not None:
            wanted &= _checkpoints.c.model_id == model_id
        query = _checkpoints.select().where(wanted).order_by(_checkpoints.c.created_at.desc())
        with self._engine.connect() as connection:
            total = connection.execute(sa.select(sa.func.count()).select_from(_checkpoints).where(wanted)).scalar_one()
        return self._select(CheckpointRow, query.limit(limit).offset(offset)), total

    def every_checkpoint(self, *, now: float) -> Sequence[CheckpointRow]:
        """Those of every tenant, oldest first: for whoever owns the file, never for a client."""
        return self._select(
            CheckpointRow, _checkpoints.select().where(_is_kept(now)).order_by(_checkpoints.c.created_at)
        )

    def set_checkpoint_expiry(self, checkpoint_id: str, expires_at: float | None) -> None:
        update = _checkpoints.update().where(_checkpoints.c.checkpoint_id == checkpoint_id)
        with self._engine.begin() as connection:
            connection.execute(update.values(expires_at=expires_at))

    def delete_checkpoint(self, checkpoint_id: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(_checkpoints.delete().where(_checkpoints.c.checkpoint_id == checkpoint_id))

    def expired_checkpoints(self, *, now: float) -> Sequence[CheckpointRow]:
        return self._select(CheckpointRow, _checkpoints.select().where(~_is_kept(now)))

    def checkpoint_ids(self) -> set[str]:
        with self._engine.connect() as connection:
            return {row.checkpoint_id for row in connection.execute(sa.select(_checkpoints.c.checkpoint_id))}

    def _insert(self, table: sa.Table, row: Any) -> None:
        with self._engine.begin() as connection:
            connection.execute(table.insert().values(asdict(row)))

    def _select(self, kind: type[Row], query: sa.Select[Any]) -> Sequence[Row]:
        names = [column.name for column in fields(kind)]
        with self._engine.connect() as connection:
            return [kind(**{name: row[name] for name in names}) for row in connection.execute(query).mappings()]

    def _first(self, kind: type[Row], query: sa.Select[Any]) -> Row | None:
        return next(iter(self._select(kind, query)), None)


def _is_kept(now: float) -> sa.ColumnElement[bool]:
    return _checkpoints.c.expires_at.is_(None) | (_checkpoints.c.expires_at > now)


def _prepare_connection(connection: Any, _record: Any) -> None:
    with contextlib.closing(connection.cursor()) as cursor:
        # A write-ahead log lets listings go on while a checkpoint is recorded. FULL: without the row that was last
        # written before a power cut, a checkpoint that a client was told of would be cleaned up at the next start.
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA busy_timeout = 5000")

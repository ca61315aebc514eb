"""Copies of checkpoints: each belongs to a training run of its own, which cannot be trained on."""

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from weakref import WeakValueDictionary

from sqlalchemy.orm import Session
from tinker.types.copy_weights_request import CopyWeightsRequest

from cookhouse.errors import InputError
from cookhouse.server.storage.checkpoints.checkpoint import check_ttl
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.store.copies import Copies
from cookhouse.server.storage.store.rows import CheckpointRow, RunRow, SessionRow
from cookhouse.server.storage.store.store import Also, Store

_NUM_THREADS = 2
"""A copy may take as long as its files take to be read: loads, and the journal, have threads of their own."""
_MAX_KNOWN = 1024
"""Requests that a retry is recognized among."""


class Copying:
    """Lives on the event loop."""

    def __init__(self, checkpoints: Checkpoints, store: Store, *, server_id: str | None = None) -> None:
        """`server_id`: of this server, where others recognize the same retries."""
        self._copies = None if server_id is None else Copies(store, server_id)
        self._checkpoints = checkpoints
        self._store = store
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="copying checkpoints")
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """Of requests by the same name: one makes the copy, and the others get it."""
        self._known: OrderedDict[tuple[str, str], CheckpointRow] = OrderedDict()

    def close(self) -> None:
        """Begin no further copies."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def copy(self, owner: str, request: CopyWeightsRequest, *, idempotency_key: str | None) -> CheckpointRow:
        """The copy that a request asks for; a retry gets that of the first.

        Raises:
            NotFoundError: there is no such checkpoint, or it is not the tenant's to read.
            InputError: a destination that is none, a time to live that cannot be used, or a run that there is already.
            StorageError: the disk is full, or failed otherwise; or another server makes the copy.
        """
        if idempotency_key is None:
            return await self._in_thread(self._copy, owner, request)
        name = owner, idempotency_key
        turn = self._turns.setdefault(name, asyncio.Lock())
        async with turn:
            if self._copies is not None:
                return await self._in_thread(self._copy_once, self._copies, owner, request, idempotency_key)
            if name not in self._known:
                self._known[name] = await self._in_thread(self._copy, owner, request)
                if len(self._known) > _MAX_KNOWN:
                    self._known.popitem(last=False)
            return self._known[name]

    async def _in_thread(self, copy: Callable[..., CheckpointRow], *arguments: object) -> CheckpointRow:
        return await asyncio.get_running_loop().run_in_executor(self._threads, copy, *arguments)

    def _copy_once(self, copies: Copies, owner: str, request: CopyWeightsRequest, key: str) -> CheckpointRow:
        """A copy that no other server makes for the same request."""
        made_id = copies.begin(owner, key)
        made = None if made_id is None else self._store.checkpoint_with_id(made_id)
        if made is not None:
            return made

        def finish(session: Session, row: CheckpointRow) -> None:
            copies.finish(session, owner, key, row.checkpoint_id)

        try:
            return self._copy(owner, request, finish)
        except BaseException:
            copies.drop(owner, key)
            raise

    def _copy(self, owner: str, request: CopyWeightsRequest, also: Also | None = None) -> CheckpointRow:
        """Blocking."""
        check_ttl(request.ttl_seconds)
        session_id, model_id = self._destination(owner, request)
        source = self._checkpoints.resolve(request.source_path, owner)
        row = self._checkpoints.copy(source, model_id=model_id, owner=owner, ttl_seconds=request.ttl_seconds, also=also)
        now = time.time()
        if request.session_id is None:
            self._store.add_session(
                SessionRow(
                    session_id=session_id,
                    owner=owner,
                    created_at=now,
                    finished_at=now,
                    project_id=request.destination_project_id,
                )
            )
        self._store.add_run(
            RunRow(
                model_id=model_id,
                session_id=session_id,
                owner=owner,
                base_model=row.base_model,
                lora=asdict(row.lora_spec),
                created_at=now,
                last_request_at=now,
                user_metadata={"copied_from": source.path},
            )
        )
        return row

    def _destination(self, owner: str, request: CopyWeightsRequest) -> tuple[str, str]:
        """Ids of the session and of the run that the copy will belong to."""
        if request.session_id is None:
            if not request.destination_project_id or request.model_seq_id is not None:
                raise InputError(
                    "a copy needs a destination: a destination_project_id, or a session_id and a model_seq_id"
                )
            session_id = uuid.uuid4().hex
            return session_id, f"{session_id}:train:0"
        if request.model_seq_id is None or request.destination_project_id is not None:
            raise InputError("a copy into a session needs its model_seq_id, and no destination_project_id beside it")
        if not 0 <= request.model_seq_id < 2**31:
            raise InputError(f"model_seq_id is {request.model_seq_id}; it must be from 0 to {2**31 - 1}")
        if self._store.session(request.session_id, owner) is None:
            raise InputError(f"unknown session {request.session_id!r}; list yours with RestClient.list_sessions()")
        model_id = f"{request.session_id}:train:{request.model_seq_id}"
        if self._store.run(model_id, owner) is not None:
            raise InputError(f"there is a training run {model_id!r}; copy into another model_seq_id")
        return request.session_id, model_id

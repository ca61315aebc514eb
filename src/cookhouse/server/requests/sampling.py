"""Sampling requests: samplers over a base model or a checkpoint, and samples of them.

A sample ends at `max_tokens`, at any text or token in `stop`, and at the model's own end tokens, whatever `stop` names;
only an empty list switches those off. What ends it is its last token, or completes in it.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from tinker import types

from cookhouse.engine.contract import Account, Fetch
from cookhouse.errors import InputError
from cookhouse.server.access.hosted_rules import (
    CONTEXT_EXCEEDED,
    EMPTY_CHUNK,
    STATE_PATH_SAMPLED,
    Breach,
    HostedRules,
)
from cookhouse.server.pool.pool import Pool
from cookhouse.server.refusals import GoneError
from cookhouse.server.requests.checkpoint_files import CheckpointFiles
from cookhouse.server.requests.intake import check_seq_id
from cookhouse.server.requests.offered_models import OfferedModels
from cookhouse.server.requests.recordings import Recordings, sequence_ids
from cookhouse.server.sequencer.futures import Future, Result
from cookhouse.server.sequencer.sequencer import Sequencer
from cookhouse.server.sessions.sdk_versions import check_session_id
from cookhouse.server.sessions.sessions import Sampler, SamplerWeights, Sessions
from cookhouse.server.settings import Settings
from cookhouse.server.storage.checkpoints.checkpoint import StoredCheckpoint
from cookhouse.server.storage.journal import AddSampler
from cookhouse.server.storage.storage import Storage
from cookhouse.server.storage.store.rows import SamplerRow
from cookhouse.server.wire import decode_sample

_CLONE_SEQ_IDS = 1_000_000_000
"""A clone of a sampling client numbers its requests from its own multiple of this."""


class SamplingRequests:
    def __init__(
        self,
        *,
        base_models: OfferedModels,
        pool: Pool,
        recordings: Recordings,
        rules: HostedRules,
        sequencer: Sequencer,
        sessions: Sessions,
        settings: Settings,
        storage: Storage,
    ) -> None:
        self._base_models = base_models
        self._pool = pool
        self._checkpoints = storage.checkpoints
        self._files = CheckpointFiles(storage.checkpoints, storage.journal)
        self._futures = sequencer.futures
        self._journal = storage.journal
        self._recordings = recordings
        self._rules = rules
        self._samples = sequencer.samples
        self._sessions = sessions
        self._settings = settings
        self._store = storage.store
        self._fetching: set[asyncio.Task[None]] = set()

    async def create_sampler(self, owner: str, request: types.CreateSamplingSessionRequest) -> Sampler:
        """A new sampler, or the one that an earlier copy of the request made. Weights are loaded behind the answer."""
        kept = None
        if request.model_path is not None:
            kept = await asyncio.to_thread(self._checkpoints.find_loadable, request.model_path, owner)
        base_model = request.base_model or (kept.row.base_model if kept is not None else None)
        if base_model is None:
            raise InputError("a sampler needs a model_path or a base_model")
        if kept is not None and not self._base_models.are_same(base_model, kept.row.base_model):
            raise InputError(f"{request.model_path} was trained on {kept.row.base_model!r}, not on {base_model!r}")
        self._base_models.named(base_model)
        session = self._sessions.session(request.session_id, owner)
        seq_id = request.sampling_session_seq_id
        check_seq_id("sampling_session_seq_id", seq_id)
        breaches = [*self._base_models.breaches(base_model)]
        if kept is not None and kept.row.kind == "weights":
            breaches.append(STATE_PATH_SAMPLED.broken(path=request.model_path))
        self._rules.enforce(session.session_id, breaches)
        row = SamplerRow(
            sampler_id=f"{session.session_id}:sample:{seq_id}",
            session_id=session.session_id,
            owner=owner,
            base_model=base_model,
            model_path=request.model_path,
            created_at=time.time(),
            seq_id=seq_id,
        )
        if self._journal is None:
            self._store.add_sampler(row)
        else:
            await self._journal.commit.commit(AddSampler(row))
        session = self._sessions.session(request.session_id, owner)  # it may have ended meanwhile
        if seq_id not in session.samplers:
            sampler = Sampler(
                sampler_id=row.sampler_id,
                session_id=session.session_id,
                owner=owner,
                base_model=base_model,
                model_path=request.model_path,
                snapshot=None if kept is None else self.load_snapshot(kept),
                seq_id=seq_id,
            )
            self._sessions.add_sampler(sampler)
            return sampler
        return session.samplers[seq_id]

    def submit(self, owner: str, request: types.SampleRequest) -> tuple[str, Sequence[str]]:
        """Accept a sampling request; returns its id and the ids of the sequences it will give."""
        if request.base_model is not None or request.model_path is not None:
            check_session_id(request.sampling_session_id)
        if request.sampling_session_id is None:
            raise InputError("a sampling request needs a sampling_session_id; make one by create_sampling_session")
        if not 1 <= request.num_samples <= self._settings.max_samples_per_request:
            raise InputError(
                f"num_samples is {request.num_samples}; allowed are 1 to {self._settings.max_samples_per_request}"
            )
        sampler = self._sessions.sampler(request.sampling_session_id, owner)
        known = None if request.seq_id is None else sampler.requests.get(request.seq_id)
        if known is None:
            self._rules.enforce(sampler.session_id, self._breaches(sampler, request))
        request_id = known or self._submit_new(sampler, request)
        return request_id, sequence_ids(request_id, request.num_samples)

    def cancel(self, owner: str, request_id: str) -> None:
        """Stop a sample; anything else, and what is unknown or done, is left alone."""
        with suppress(GoneError):
            future = self._futures.get(request_id, owner)
            if future.is_sample and future.result is None:
                self._samples.cancel([request_id], InputError("the sample was canceled"))

    async def completions(self, owner: str, request: types.FuturesRetrieveRequest) -> tuple[Sequence[Future], int]:
        """A sampler's futures that finished after a cursor, in that order, and the next cursor.

        Waits for one as long as a long poll may, unless the request asks for less.
        """
        sampler = self._sessions.sampler(request.target.sampling_session_id, owner)
        for request_id in request.retrieved_request_ids:
            with suppress(GoneError):
                if self._futures.get(request_id, owner).is_sample:
                    self._futures.drop(request_id)
        clone, cursor = request.target.cloned_sampler_id, request.prev_cursor
        longest = self._settings.long_poll_seconds
        seconds = longest if request.timeout is None else max(0.0, min(request.timeout, longest))
        deadline = time.monotonic() + seconds
        with self._sessions.polling(sampler.session_id):
            while True:
                progress = sampler.progress
                finished = self._finished_after(sampler, clone, cursor)
                left = deadline - time.monotonic()
                if finished or left <= 0 or self._futures.is_closed:
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(progress.wait(), left)
        return finished, max([cursor, *(future.finish_index or 0 for future in finished)])

    def sweep(self) -> None:
        """Forget the identities of requests whose results are no longer kept."""
        for session in self._sessions:
            for sampler in session.samplers.values():
                for seq_id, request_id in list(sampler.requests.items()):
                    if self._futures.peek(request_id) is None:
                        del sampler.requests[seq_id]

    def _breaches(self, sampler: Sampler, request: types.SampleRequest) -> Iterator[Breach]:
        chunks = [chunk for chunk in request.prompt.chunks if isinstance(chunk, types.EncodedTextChunk)]
        if not all(chunk.tokens for chunk in chunks):
            yield EMPTY_CHUNK.broken()
        prompt, max_tokens = sum(len(chunk.tokens) for chunk in chunks), request.sampling_params.max_tokens
        context = self._base_models.named(sampler.base_model).max_context_tokens
        if max_tokens is not None and prompt + max_tokens > context:
            yield CONTEXT_EXCEEDED.broken(prompt=prompt, max_tokens=max_tokens, context=context)

    def _submit_new(self, sampler: Sampler, request: types.SampleRequest) -> str:
        future = self._futures.create_sample(
            owner=sampler.owner, session_id=sampler.session_id, on_done=sampler.report_progress
        )
        if sampler.snapshot is None and sampler.model_path is not None:
            sampler.snapshot = self._load_again(sampler, sampler.model_path)
        snapshot = sampler.snapshot
        try:
            decoded, shape = decode_sample(
                request,
                request_id=future.request_id,
                base_model=self._base_models.named(sampler.base_model).name,
                snapshot_id=None if snapshot is None else snapshot.snapshot_id,
                owner=sampler.owner,
            )
        except InputError as error:
            self._futures.finish(future, Result.of_error(error))
        else:
            try:
                record = None
                if request.record_stability_info and self._settings.stable_reinforce:
                    record = partial(self._recordings.add, sampler.session_id, sampler.owner, decoded)
                self._samples.submit(decoded, shape, future, snapshot, record)
            except InputError:
                self._futures.drop(future.request_id)
                raise
        if request.seq_id is not None:
            sampler.requests[request.seq_id] = future.request_id
        return future.request_id

    def _finished_after(self, sampler: Sampler, clone: int, cursor: int) -> Sequence[Future]:
        finished = []
        for seq_id, request_id in sampler.requests.items():
            future = self._futures.peek(request_id) if seq_id // _CLONE_SEQ_IDS == clone else None
            if future is not None and future.finish_index is not None and future.finish_index > cursor:
                finished.append(future)
        return sorted(finished, key=lambda future: future.finish_index or 0)

    def load_snapshot(self, kept: StoredCheckpoint) -> SamplerWeights:
        """The weights of a checkpoint, which are loaded behind the answer."""

        async def find() -> StoredCheckpoint:
            return kept

        return self._load(find(), kept.row.owner, kept.row.base_model)

    def _load_again(self, sampler: Sampler, path: str) -> SamplerWeights:
        """The weights of a sampler that was made before a restart."""
        return self._load(
            asyncio.to_thread(self._checkpoints.find_loadable, path, sampler.owner), sampler.owner, sampler.base_model
        )

    def _load(self, finding: Awaitable[StoredCheckpoint], owner: str, base_model: str) -> SamplerWeights:
        snapshot = SamplerWeights(
            snapshot_id=uuid.uuid4().hex,
            owner=owner,
            base_model=self._base_models.named(base_model).name,
            ready=asyncio.get_running_loop().create_future(),
        )
        task = asyncio.create_task(self._fetch(finding, snapshot))
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)
        return snapshot

    async def _fetch(self, finding: Awaitable[StoredCheckpoint], snapshot: SamplerWeights) -> None:
        """Have the engine read weights; each sample of them fails with what is wrong."""
        try:
            kept = await finding
            async with self._files.opened(kept) as url:
                if snapshot.is_freed:  # while its files were looked for
                    return
                command = Fetch(
                    command_id=uuid.uuid4().hex,
                    account=Account(snapshot.owner, ""),
                    snapshot_id=snapshot.snapshot_id,
                    base_model=snapshot.base_model,
                    lora=kept.row.lora_spec,
                    url=url,
                    sha256=kept.row.sha256,
                )
                await self._pool.send(command)
        except Exception as error:
            snapshot.error = error
        finally:
            snapshot.ready.set_result(None)

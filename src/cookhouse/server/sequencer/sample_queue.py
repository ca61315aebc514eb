"""Queue of sampling requests, which have no order. Lives on the event loop.

submit, stream ──► SamplerTurns ──► weights ready? ──► Pool ──► worker ──► tokens, output ──► Future, or who streams
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from cookhouse.engine.contract import Account, Output, Sample, SampleOutput, SampleRequest
from cookhouse.errors import InputError
from cookhouse.server.access.bodies import HeldBytes
from cookhouse.server.pool.pending import forget_command
from cookhouse.server.pool.pool import Pool
from cookhouse.server.refusals import BusyError, LostError
from cookhouse.server.sequencer.futures import PROTOBUF, Future, Futures, Result, log_failure
from cookhouse.server.sequencer.sampler_turns import SamplerTurns
from cookhouse.server.sessions.sessions import SamplerWeights
from cookhouse.server.settings import Settings
from cookhouse.server.wire import SampleShape, encode_sample

_INLINE_TOKENS = 16_384
"""Of a result, what is encoded on the event loop; more is encoded in a thread."""

OnOutput = Callable[[SampleOutput | Exception], None]
"""Called with each output of a sampling request: the last is not partial, or is why there is no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sampling:
    owner: str
    base_model: str
    snapshot_id: str | None
    num_bytes: int
    on_output: OnOutput


class SampleQueue:
    def __init__(self, futures: Futures, settings: Settings, pool: Pool, held: HeldBytes) -> None:
        self._futures = futures
        self._settings = settings
        self._pool = pool
        self._held = held
        self._samples: dict[str, _Sampling] = {}
        self._numbers: Counter[str] = Counter()
        """Of samples, by owner."""
        self._begun_at: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        """By owner and base model, as they came."""
        self._turns = SamplerTurns(settings.max_samplers)
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Number of samples that wait or run."""
        return len(self._samples)

    def lengths(self) -> Mapping[tuple[str, str], tuple[int, float]]:
        """By owner and base model, as the engine calls it: how many wait or run, and since when the first of them
        does, on the clock of `time.monotonic`.
        """
        return {key: (len(begun), next(iter(begun.values()))) for key, begun in self._begun_at.items()}

    def submit(
        self,
        request: SampleRequest,
        shape: SampleShape,
        future: Future,
        snapshot: SamplerWeights | None,
        record: Callable[[SampleOutput], Awaitable[None]] | None = None,
    ) -> None:
        """Hand a sampling request to the engine, and its result to a future, once it is recorded where that is asked
        for. Raises as `stream`.
        """

        def finish(output: SampleOutput | Exception) -> None:
            if isinstance(output, Exception):
                self._fail(future, output)
            elif record or sum(sequence.tokens_T.size for sequence in output.sequences) > _INLINE_TOKENS:
                self._begin(self._encode(future, output, shape, record))
            else:
                self._finish_encoded(future, partial(encode_sample, output, shape))

        self.stream(request, snapshot, finish, owner=future.owner, session_id=future.session_id)

    def stream(
        self,
        request: SampleRequest,
        snapshot: SamplerWeights | None,
        on_output: OnOutput,
        *,
        owner: str,
        session_id: str | None = None,
    ) -> None:
        """Hand a sampling request to the engine.

        Raises:
            BusyError: the tenant has too many waiting, or holds too many bytes.
        """
        if self._numbers[owner] >= self._settings.max_queued_samples:
            raise BusyError(f"{self._numbers[owner]} sampling requests are waiting; send more when some are done")
        self._held.take(owner, request.num_bytes)
        self._numbers[owner] += 1
        self._begun_at[owner, request.base_model][request.request_id] = time.monotonic()
        self._samples[request.request_id] = _Sampling(
            owner=owner,
            base_model=request.base_model,
            snapshot_id=request.snapshot_id,
            num_bytes=request.num_bytes,
            on_output=on_output,
        )
        account = Account(owner, session_id or f"endpoint-{owner}")
        command = Sample(command_id=request.request_id, account=account, request=request)
        start = partial(self._send_when_ready, command, snapshot)
        self._turns.begin(owner, request.snapshot_id, request.request_id, start)

    def waits_for_turn(self, request_id: str) -> bool:
        """True if a sample waits because its tenant samples from as many weights as it may."""
        sampling = self._samples.get(request_id)
        return sampling is not None and self._turns.is_waiting(sampling.owner, sampling.snapshot_id, request_id)

    def cancel(self, request_ids: Sequence[str], error: InputError) -> None:
        """Drop samples that wait and stop those that run; they fail with the error, and what is done stays so."""
        by_owner: defaultdict[str, list[str]] = defaultdict(list)
        for request_id in request_ids:
            if request_id in self._samples:
                by_owner[self._samples[request_id].owner].append(request_id)
                self._end(request_id, error)
        for owner, ids in by_owner.items():
            self._pool.forget(forget_command(owner, "", command_ids=tuple(ids)))

    def free_snapshot(self, snapshot: SamplerWeights) -> None:
        """Have the engine forget weights."""
        snapshot.is_freed = True
        self._pool.forget(forget_command(snapshot.owner, "", snapshot_ids=(snapshot.snapshot_id,)))

    def _send_when_ready(self, command: Sample, snapshot: SamplerWeights | None) -> None:
        if snapshot is None or snapshot.ready.done():
            self._send(command, snapshot)
        else:
            snapshot.ready.add_done_callback(lambda _: self._send(command, snapshot))

    def _send(self, command: Sample, snapshot: SamplerWeights | None) -> None:
        request_id = command.command_id
        if request_id not in self._samples:  # canceled while its weights were looked for
            return
        if snapshot is not None and snapshot.error is not None:
            # The caller has the request's id first.
            asyncio.get_running_loop().call_soon(self._end, request_id, snapshot.error)
            return
        answer = self._pool.send(command, self._samples[request_id].on_output)
        answer.add_done_callback(partial(self._take_answer, request_id, snapshot))

    def _take_answer(self, request_id: str, snapshot: SamplerWeights | None, answer: "asyncio.Future[Output]") -> None:
        output = answer.exception() or answer.result()
        if isinstance(output, LostError) and snapshot is not None and snapshot.error is not None:
            output = snapshot.error
        assert isinstance(output, SampleOutput | Exception)
        self._end(request_id, output)

    def _end(self, request_id: str, output: SampleOutput | Exception) -> None:
        sampling = self._samples.pop(request_id, None)
        if sampling is not None:
            self._numbers[sampling.owner] -= 1
            key = sampling.owner, sampling.base_model
            del self._begun_at[key][request_id]
            if not self._begun_at[key]:
                del self._begun_at[key]
            self._held.give_back(sampling.owner, sampling.num_bytes)
            self._turns.end(sampling.owner, sampling.snapshot_id, request_id)
            sampling.on_output(output)

    async def _encode(
        self,
        future: Future,
        output: SampleOutput,
        shape: SampleShape,
        record: Callable[[SampleOutput], Awaitable[None]] | None,
    ) -> None:
        try:
            if record is not None:
                await record(output)
            body = await asyncio.to_thread(encode_sample, output, shape)
        except Exception as error:
            self._fail(future, error)
        else:
            self._futures.finish(future, Result(body=body, media_type=PROTOBUF, kind="sample"))

    def _finish_encoded(self, future: Future, encode: Callable[[], bytes]) -> None:
        try:
            result = Result(body=encode(), media_type=PROTOBUF, kind="sample")
        except Exception as error:
            self._fail(future, error)
        else:
            self._futures.finish(future, result)

    def _fail(self, future: Future, error: Exception) -> None:
        log_failure(error)
        self._futures.finish(future, Result.of_error(error))

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

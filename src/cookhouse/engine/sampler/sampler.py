"""Samples from one base model and its adapters: every running sequence advances by one token a step.

Legend: B sequences whose next token is chosen.
"""

import math
from collections.abc import Callable
from collections.abc import Sequence as Seq

import numpy as np
import torch
from torch import Tensor

from cookhouse.engine.contract import CacheUse, NoMemoryError, SampleOutput, SampleRequest
from cookhouse.engine.engine import SampleFailure
from cookhouse.engine.host_memory import show_bytes
from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.lora.lora import Weights
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.model.delta import CHUNK
from cookhouse.engine.sampler.blocks import BlockManager
from cookhouse.engine.sampler.cache import can_page
from cookhouse.engine.sampler.choose import temporary_bytes
from cookhouse.engine.sampler.draw import Drawn, draw
from cookhouse.engine.sampler.grammar import Grammars
from cookhouse.engine.sampler.graph import Capture, CudaCapture
from cookhouse.engine.sampler.request import RunningRequest, check_request, min_tokens, together_or_alone
from cookhouse.engine.sampler.runner import Runner
from cookhouse.engine.sampler.scheduler import Piece, Scheduler
from cookhouse.engine.sampler.scoring import PromptScores
from cookhouse.engine.sampler.sequence import Sequence
from cookhouse.engine.sampler.state_slots import StateSlots, share_of_states
from cookhouse.engine.shortage import explained
from cookhouse.errors import InputError

_BLOCK_SIZE = 16
_FIRST_BYTES = 2**29
"""Of a cache that can grow, what there is from the start: beyond that what is known gives way before it grows."""
_MAX_RUNNING = 256
"""About where products over a GPU's weights are bound by arithmetic: more rows at once would be no faster."""
_BUDGET_TOKENS = {"cpu": 2048, "cuda": 8192}
"""Positions of a pass, by kind of device. What decodes waits for the prompts of its pass: a fraction of a second."""


class Sampler:
    """Continuous batching over one base model; see `Engine` for the methods' contract."""

    def __init__(
        self,
        base: BaseModel,
        cache_bytes: int,
        *,
        limit: Callable[[int], int] | None = None,
        is_native: bool = True,
        capture: Capture | None = None,
        is_copied: bool = False,
    ) -> None:
        """`limit` says how many bytes the cache may take by now, `cache_bytes` at most, of so many that it holds; None:
        all of them at once.

        `is_native` False keeps decoding in torch even where the fused step could do it.

        `is_copied` has a cache that grows move to new memory each time, as on a GPU, where all memory is taken at once;
        else it has its addresses from the start, and the system gives memory as it is written to.

        `capture` records decoding steps; None: as CUDA graphs where the device can attend by tables, else not at all.
        """
        self._base = base
        block_bytes = base.cache_shape.num_features * _BLOCK_SIZE * base.dtype.itemsize
        self._block_bytes = block_bytes
        max_running, num_kept = share_of_states(cache_bytes, base.state_bytes, _MAX_RUNNING)
        states_bytes = (2 * max_running + num_kept) * base.state_bytes
        num_blocks = max((cache_bytes - states_bytes) // block_bytes, 1)
        first = num_blocks if limit is None else min(max(_FIRST_BYTES // block_bytes, 1), num_blocks)

        def most_blocks(held: int) -> int:  # without the sampler: a cycle would keep the cache of one that is dropped
            if limit is None:
                return held
            return max(limit(held * block_bytes + states_bytes) - states_bytes, 0) // block_bytes

        blocks = BlockManager(first, _BLOCK_SIZE, max_blocks=num_blocks, limit=most_blocks)
        states = None
        if base.state_shapes:
            states = StateSlots(blocks, max_running=max_running, num_kept=num_kept, stride=CHUNK)
        budget_tokens = _BUDGET_TOKENS[base.device.type]
        self._scheduler = Scheduler(blocks, max_running=max_running, budget_tokens=budget_tokens, states=states)
        if capture is None and can_page(base.device, base.dtype) and not base.state_shapes:
            capture = CudaCapture(base.device)
        self._runner = Runner(
            base,
            num_blocks,
            _BLOCK_SIZE,
            num_states=0 if states is None else states.num_slots,
            max_running=max_running,
            is_native=is_native,
            capture=capture,
            growth=(lambda: blocks.num_blocks) if is_copied else None,
        )
        self._is_copied = is_copied
        self._grammars = Grammars(base)
        self._requests: dict[str, RunningRequest] = {}
        self._base_roots: dict[str, int] = {}
        """Root of what each owner computes under the bare base model: from 0 down, so that no serial is met."""

    @property
    def base(self) -> BaseModel:
        """The model that is sampled from."""
        return self._base

    @property
    def has_work(self) -> bool:
        """True if `step` has anything to do."""
        return bool(self._requests)

    @property
    def num_free_blocks(self) -> int:
        """Blocks of the cache that no sequence uses."""
        return self._scheduler.blocks.num_free

    @property
    def cache_use(self) -> CacheUse:
        """From any thread."""
        blocks, running = self._scheduler.blocks, dict(self._scheduler.num_running)
        return CacheUse(
            base_model=self._base.name,
            num_used_blocks=blocks.num_blocks - blocks.num_free,
            num_blocks=blocks.num_blocks,
            max_blocks=blocks.max_blocks,
            block_bytes=self._block_bytes,
            running=running,
            waiting={
                owner: number - running.get(owner, 0)
                for owner, number in dict(self._scheduler.num_live).items()
                if number > running.get(owner, 0)
            },
        )

    @property
    def unused_bytes(self) -> int:
        """Bytes that the cache will take when it is needed, and has not taken yet: on a CPU pages are taken as they are
        touched.
        """
        if self._is_copied:
            return max(self._scheduler.blocks.num_held - self._runner.num_blocks, 0) * self._block_bytes
        is_taken_at_once = self._base.device.type != "cpu"
        if is_taken_at_once:
            return 0
        states = self._scheduler.states
        unused_states = 0 if states is None else states.num_unused * self._base.state_bytes
        return self._scheduler.blocks.num_unused * self._block_bytes + unused_states

    @staticmethod
    def step_bytes(base: BaseModel) -> int:
        """Bytes that decoding takes of a GPU's memory in addition to its cache, as far as they do not depend on the
        layers: logits, and the buffers for choosing tokens.
        """
        if base.device.type == "cpu":
            return 0
        num_bytes = torch.float32.itemsize + base.head.logits_dtype.itemsize
        vocab_size = base.head.vocab_size
        return _MAX_RUNNING * vocab_size * num_bytes + temporary_bytes(base.device, _MAX_RUNNING, vocab_size)

    def submit(self, request: SampleRequest, weights: Weights | None) -> None:
        """Queue a request under these weights (None: the bare base model).

        Raises:
            InputError: a parameter is out of range, the grammar is none, or prompt and `max_tokens` do not fit the
                context or the cache.
        """
        context = self._base.info.max_context_tokens
        check_request(request, self._base.info.vocab_size, context)
        max_total = self._max_total(request, context)
        state = RunningRequest(request, weights, PromptScores(request))
        num_prompt = len(request.prompt_T)
        stop_tokens, stop_strings = self._stops(request)
        sequence = Sequence(
            request=request,
            index=0,
            tokens=request.prompt_T.tolist(),
            num_prompt=num_prompt,
            max_total=max_total,
            seed=request.seed,
            stop_tokens=stop_tokens,
            stop_strings=stop_strings,
            constraint=None if request.grammar is None else self._grammars.begin(request.grammar, stop_tokens),
            root=self._base_roots.setdefault(request.owner, -len(self._base_roots))
            if weights is None
            else weights.serial,
            num_forks=request.num_samples - 1,
        )
        state.live.append(sequence)
        self._requests[request.request_id] = state
        self._scheduler.submit(sequence)

    def _max_total(self, request: SampleRequest, context: int) -> int:
        """Length at which the sequences of a request end. Without `max_tokens` what the cache can hold is enough."""
        blocks, num_prompt = self._scheduler.blocks, len(request.prompt_T)
        num_reachable = blocks.num_reachable
        if request.max_tokens is None and num_prompt < num_reachable * _BLOCK_SIZE:
            return min(context, num_reachable * _BLOCK_SIZE)
        max_total = num_prompt + min_tokens(request)
        if not self._scheduler.can_ever_fit(max_total):  # another worker's cache may be larger
            raise NoMemoryError(
                f"{num_prompt} prompt tokens + {max_total - num_prompt} max_tokens take "
                f"{show_bytes(blocks.num_blocks_for(max_total) * self._block_bytes)} of key-value cache, and there are "
                f"{show_bytes(num_reachable * self._block_bytes)} ({num_reachable * _BLOCK_SIZE} tokens); ask for "
                "fewer, or give the cache more of the memory with --max-cache-bytes (COOKHOUSE_MAX_CACHE_BYTES)"
            )
        return max_total

    def cancel(self, request_id: str) -> None:
        """Drop a request; unknown ids are ignored."""
        state = self._requests.pop(request_id, None)
        for sequence in state.live if state else ():
            self._scheduler.finish(sequence)

    @torch.no_grad()
    def step(self) -> list[SampleOutput | SampleFailure]:
        """Advance every running sequence by one token, read prompts, and return the requests that finished."""
        pieces = sorted(self._scheduler.plan().pieces, key=lambda piece: piece.sequence.root)
        outputs: list[SampleOutput | SampleFailure] = []
        for read, logits_BV in together_or_alone(pieces, self._read, what="a step of samples"):
            if isinstance(logits_BV, Exception):
                # Other samples of the request may have failed before.
                sequences = [p.sequence for p in read if p.sequence.request.request_id in self._requests]
                outputs += [self._fail(sequence, logits_BV) for sequence in sequences]
            else:
                outputs += self._draw(read, logits_BV)
        return outputs

    def fail_all(self, error: Exception) -> list[SampleFailure]:
        """Drop all requests for an error that is none of them in particular."""
        failures = [SampleFailure(request_id=request_id, error=error) for request_id in self._requests]
        for failure in failures:
            self.cancel(failure.request_id)
        return failures

    def _read(self, pieces: Seq[Piece]) -> Tensor:
        """Logits after those of the pieces that reach their last token; scores what was asked about prompts."""
        states = [self._requests[piece.sequence.request.request_id] for piece in pieces]
        with_hidden = any(
            state.scores.is_asked and not piece.is_decoding for state, piece in zip(states, pieces, strict=True)
        )
        reading = self._runner.run(pieces, [state.weights for state in states], with_hidden=with_hidden)
        if with_hidden:
            with self._base.packed.unpacked(self._base.head.projection.weight):
                for state, piece, first_row in zip(states, pieces, reading.first_rows, strict=True):
                    if not piece.is_decoding:
                        state.scores.add(self._base.head, piece, first_row, reading)
        return reading.logits_BV

    def _draw(self, pieces: Seq[Piece], logits_BV: Tensor) -> list[SampleOutput | SampleFailure]:
        """Draw the next token after each piece that is a last one; what is to be reported of that."""
        ready = [piece for piece in pieces if piece.is_last]
        for piece in pieces:
            self._scheduler.advance(piece)
        if not ready:
            return []
        sequences, rows = self._fork(ready)
        if len(rows) > len(ready):
            logits_BV = logits_BV[upload(np.array(rows), logits_BV.device)]
        failed = self._choose(sequences, logits_BV)
        alive = [s for s in sequences if s.request.request_id in self._requests]
        return [*failed, *self._tell(alive), *self._finish(alive)]

    def _fork(self, ready: Seq[Piece]) -> tuple[list[Sequence], list[int]]:
        """Sequences whose next token is due, with the row of its logits; a prompt just read gives all its samples."""
        sequences, rows = [], []
        for row, piece in enumerate(ready):
            parent = piece.sequence
            children = [parent.fork(index) for index in range(1, parent.num_forks + 1)]
            for child in children:
                copy = self._scheduler.fork(parent, child)
                if copy:
                    self._runner.copy_block(*copy)
            self._requests[parent.request.request_id].live += children
            parent.num_forks = 0
            sequences += [parent, *children]
            rows += [row] * (1 + len(children))
        return sequences, rows

    def _choose(self, sequences: Seq[Sequence], logits_BV: Tensor) -> list[SampleFailure]:
        """Draw a token for each sequence; those that cannot go on, whose requests are dropped."""
        failures = []
        drawn = together_or_alone(
            range(len(sequences)), lambda rows: draw(sequences, logits_BV, rows), what="a choice of tokens"
        )
        for rows, choices in drawn:
            for index, row in enumerate(rows):
                sequence = sequences[row]
                if sequence.request.request_id not in self._requests:  # another of its samples has failed
                    continue
                try:
                    if isinstance(choices, Exception):
                        raise choices
                    self._append(sequence, choices[index])
                except Exception as error:
                    failures.append(self._fail(sequence, error))
        return failures

    def _append(self, sequence: Sequence, drawn: Drawn) -> None:
        if not math.isfinite(drawn.logprob):
            raise InputError(
                f"the model's output after {len(sequence.tokens)} tokens is not finite, so that no token can be "
                "chosen: its weights have diverged; sample from an earlier checkpoint, or lower the learning rate"
            )
        is_end = drawn.token in sequence.stop_tokens
        if sequence.constraint is not None and not is_end:
            sequence.constraint.take(drawn.token)
            sequence.is_grammar_end = sequence.constraint.is_over
        sequence.tokens.append(drawn.token)
        sequence.logprobs.append(drawn.logprob)
        if drawn.free_logprob is not None:
            sequence.free_logprobs.append(drawn.free_logprob)
            sequence.is_masked.append(drawn.is_masked)
        if drawn.ranked is not None:
            sequence.ranked.append(drawn.ranked)
        sequence.is_stopped = is_end or sequence.is_grammar_end or self._ends_in_stop_string(sequence)

    def _fail(self, sequence: Sequence, error: Exception) -> SampleFailure:
        """Drop the request of a sequence."""
        request_id = sequence.request.request_id
        self.cancel(request_id)
        way_out = "sample fewer at once, shorten the prompt, or end other sessions"
        return SampleFailure(
            request_id=request_id, error=explained(error, "a step of samples", self._base.device, way_out)
        )

    def _ends_in_stop_string(self, sequence: Sequence) -> bool:
        if not sequence.stop_strings or sequence.is_too_short:
            return False
        # A token is at least one byte, except that a character may be split over four of them.
        tail = sequence.tokens[sequence.num_prompt :][-(sequence.longest_stop_bytes + 4) :]
        text = self._base.tokenizer.decode(tail)
        return any(stop in text for stop in sequence.stop_strings)

    def _tell(self, sequences: Seq[Sequence]) -> list[SampleOutput]:
        """The newest tokens of streamed requests."""
        streamed: dict[str, list[Sequence]] = {}
        for sequence in sequences:
            if sequence.request.is_streamed:
                streamed.setdefault(sequence.request.request_id, []).append(sequence)
        return [self._requests[request_id].newest(those) for request_id, those in streamed.items()]

    def _finish(self, sequences: Seq[Sequence]) -> list[SampleOutput]:
        outputs = []
        for sequence in sequences:
            if not sequence.is_finished:
                continue
            self._scheduler.finish(sequence)
            request_id = sequence.request.request_id
            output = self._requests[request_id].finish(sequence)
            if output is not None:
                del self._requests[request_id]
                outputs.append(output)
        return outputs

    def _stops(self, request: SampleRequest) -> tuple[frozenset[int], tuple[str, ...]]:
        if request.stop is not None and not request.stop:
            return frozenset(), ()
        stops = request.stop or ()
        tokens = frozenset(stop for stop in stops if isinstance(stop, int))
        ends = frozenset() if request.ignore_eos else self._base.end_tokens
        return ends | tokens, tuple(stop for stop in stops if isinstance(stop, str))

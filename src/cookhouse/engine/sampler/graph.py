"""Decoding steps as captured graphs: one launch for a whole step of the model.

A step has its rows and its tables of blocks padded to the next size of few, so that a handful of graphs serve whatever
is running; one is captured when its shape has come up a few times: its step is recorded once, and then runs again
without Python.

Legend: N rows of a step (one for each sequence, or padding), H hidden, V vocabulary.
"""

import logging
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cookhouse.engine.lora.grouped import Groups
from cookhouse.engine.lora.lora import Weights
from cookhouse.engine.memory import held_bytes, note_pool
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.sampler.cache import KeyValueCache, TableLayout
from cookhouse.engine.sampler.scheduler import Piece
from cookhouse.engine.sampler.step_inputs import AdapterSlots, StepInputs

_logger = logging.getLogger(__name__)
_USES_BEFORE_CAPTURE = 4
"""A capture takes about as long as so many steps without one, so that a shape that is rare is not worth it: as those
are that a batch passes through on its way to the next size, in the sampler of a snapshot that soon has a successor.
"""
_SIZES_PER_DOUBLING = 4
"""Numbers of rows: from 64 on the padding is a fifth at most, and captures stay few."""
_FEWEST_BLOCKS = 128
_BLOCKS_FACTOR = 4
"""Widths of tables. A wide one costs scratch memory alone: attention reads as far as contexts go."""
Step = Callable[[], None]
"""Reads and writes tensors that stay where they are."""
Capture = Callable[[Step], Step]
"""Runs a step, and returns what repeats it on whatever its tensors hold by then."""

_CONTENT_OPS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "bincount")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """Shape for which a graph is captured."""

    num_rows: int
    num_blocks: int
    slots: AdapterSlots | None
    """None: no row is adapted."""


@dataclass(frozen=True, slots=True)
class _DecodingStep:
    """One pass of the model over tensors that stay where they are."""

    base: BaseModel
    tokens_N: Tensor
    positions_N: Tensor
    layout: TableLayout
    groups: Groups | None
    logits_NV: Tensor
    """Where the logits go: graphs may share it, since each step's are read before the next one runs."""

    def __call__(self) -> None:
        adapters = self.groups or ()
        hidden_NH = self.base.hidden(self.tokens_N, self.positions_N, self.layout, adapters)
        self.logits_NV.copy_(self.base.head.logits(hidden_NH, adapters))


class DecodeGraphs:
    """Decoding steps of one base model over one cache; graphs hold addresses of both, and go with this object."""

    def __init__(
        self, base: BaseModel, cache: KeyValueCache, capture: Capture, *, max_rows: int, max_blocks: int
    ) -> None:
        """`max_blocks`: what the cache may grow to."""
        device = base.device
        self._base = base
        self._cache = cache
        self._capture = capture
        self._can_capture = True
        self._told: set[str] = set()
        self._alone = AdapterSlots(base, is_shared=False)
        self._shared = AdapterSlots(base, is_shared=True)
        self._forget()
        self._max_rows = max_rows
        longest = min(-(-base.info.max_context_tokens // cache.block_size), max_blocks)
        self._inputs = StepInputs(cache, device, max_rows=max_rows, max_blocks=longest)
        self._logits = torch.zeros(max_rows, base.head.vocab_size, dtype=base.head.logits_dtype, device=device)

    def run(self, pieces: Sequence[Piece], weights: Sequence[Weights | None]) -> Tensor | None:
        """Logits (N, V) in fp32 after pieces of one position each. They hold until the next call.

        Pieces of the bare base model come first, the others by ascending serial of their weights.

        None where no graph serves: the model's step cannot be captured, adapters cannot share its products, or there is
        no memory for it.
        """
        serials = [0 if w is None else w.serial for w in weights]
        adapters = list({w.serial: w for w in weights if w is not None}.values())
        if not self._can_capture or not self._can_share(serials, adapters):
            return None
        shape = self._shape(pieces, self._slots(serials))
        try:
            self._inputs.write(pieces, shape.num_rows, shape.num_blocks)
            step = self._ready_step(shape, serials, adapters)
            if step is None:
                return None
            step()
            return self._logits[: len(pieces)].float()
        except torch.OutOfMemoryError:
            self.reset()
            self._tell("memory ran out")
            return None

    def reset(self) -> None:
        """Begin anew, as when the cache has grown and has moved."""
        self._forget()
        self._inputs.forget()

    def _forget(self) -> None:
        """Begin with no graphs, and free what the last ones took."""
        self._graphs: dict[_Shape, Step] = {}
        self._num_uses: Counter[_Shape] = Counter()
        self._alone.clear()
        self._shared.clear()

    def _slots(self, serials: Sequence[int]) -> AdapterSlots | None:
        """The slots for rows of these ascending serials."""
        if serials[-1] == 0:
            return None
        return self._alone if serials[0] == serials[-1] else self._shared

    def _can_share(self, serials: Sequence[int], adapters: Sequence[Weights]) -> bool:
        """True if one step serves these."""
        slots = self._slots(serials)
        if slots is None or slots.can_hold(adapters):
            return True
        if slots.can_compute:
            self._tell("one stack has no room for all of their adapters")
        else:
            self._tell(f"in {self._base.dtype} this GPU cannot compute the products of its adapters together")
        return False

    def _tell(self, reason: str) -> None:
        """Log, once, why some steps have no graph."""
        if reason not in self._told:
            self._told.add(reason)
            name = self._base.name
            _logger.warning("base model %s: some steps run without CUDA graphs, which is slower: %s", name, reason)

    def _shape(self, pieces: Sequence[Piece], slots: AdapterSlots | None) -> _Shape:
        num_blocks = -(-max(piece.stop for piece in pieces) // self._cache.block_size)
        return _Shape(
            num_rows=min(padded_rows(len(pieces)), self._max_rows),
            num_blocks=min(padded_blocks(num_blocks), self._inputs.max_blocks),
            slots=slots,
        )

    def _ready_step(self, shape: _Shape, serials: Sequence[int], adapters: Sequence[Weights]) -> Step | None:
        """The step of a shape, with these adapters where it looks for them; None if it turns out not to be captured."""
        try:
            if shape.slots is not None:
                self._seat(shape.slots, adapters)
                shape.slots.route(serials, shape.num_rows)
            return self._graphs.get(shape) or self._find_step(shape)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._give_up(error)
            return None

    def _seat(self, slots: AdapterSlots, adapters: Sequence[Weights]) -> None:
        """Have a slots hold these adapters."""
        if not slots.fits(adapters):
            # They point into the stack that the slots is about to replace.
            self._graphs = {shape: graph for shape, graph in self._graphs.items() if shape.slots is not slots}
            slots.grow(adapters)
        slots.hold(adapters)

    def _find_step(self, shape: _Shape) -> Step:
        """The step of a shape that has no graph: as it is, or captured if it is worth that by now."""
        step = self._step(shape)
        self._num_uses[shape] += 1
        if self._num_uses[shape] <= _USES_BEFORE_CAPTURE:
            return step
        self._graphs[shape] = self._capture(step)
        return self._graphs[shape]

    def _step(self, shape: _Shape) -> Step:
        num_rows, inputs = shape.num_rows, self._inputs
        tokens_N, positions_N, slots_N = inputs.longs(num_rows)
        layout = TableLayout(
            cache=self._cache,
            slots_N=slots_N,
            tables_SM=inputs.tables(num_rows, shape.num_blocks),
            starts_S1=inputs.starts(num_rows),
            contexts_S=inputs.contexts(num_rows),
            max_queries=1,
        )
        groups = None if shape.slots is None else shape.slots.groups
        return _DecodingStep(self._base, tokens_N, positions_N, layout, groups, self._logits[:num_rows])

    def _give_up(self, error: BaseException) -> None:
        """Leave decoding to passes that are not captured; what the first error said is the reason."""
        self._can_capture = False
        self._forget()
        while error.__context__ is not None:
            error = error.__context__
        _logger.warning(
            "base model %s decodes without CUDA graphs, which is slower: its step cannot be captured (%s: %s)",
            self._base.name,
            type(error).__name__,
            error,
        )


def padded_rows(num_rows: int) -> int:
    """Rows of the graph that serves so many: 1, 2, 4, 8, 16, then four sizes, multiples of 8, up to each doubling."""
    power = 1 << (num_rows - 1).bit_length()
    step = max(power // (2 * _SIZES_PER_DOUBLING), 8)
    return power if power <= 16 else -(-num_rows // step) * step


def padded_blocks(num_blocks: int) -> int:
    """Width of the tables of the graph that serves contexts of so many blocks."""
    width = _FEWEST_BLOCKS
    while width < num_blocks:
        width *= _BLOCKS_FACTOR
    return width


class CudaCapture:
    """Captures steps as CUDA graphs over one pool of memory: no two of them run at once.

    https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._num_bytes = 0
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: weakref.WeakSet[torch.cuda.CUDAGraph] = weakref.WeakSet()
        note_pool(self)

    @property
    def num_bytes(self) -> int:
        """Bytes that graphs hold for intermediate values: nothing else can use it as long as any of them is left."""
        return self._num_bytes if self._graphs else 0

    def __call__(self, step: Step) -> Step:
        """See `Capture`.

        Raises:
            RuntimeError: the step does what no graph can hold, such as reading back to the host.
        """
        if not self._graphs:
            # torch refuses a pool that all graphs have left, as long as anything else lies in it.
            self._pool = torch.cuda.graph_pool_handle()
            self._num_bytes = 0
        graph = torch.cuda.CUDAGraph()
        # A capture that fails leaves its stream the current one: this puts the present one back.
        with torch.cuda.device(self.device), torch.cuda.stream(torch.cuda.current_stream(self.device)):
            # Kernels are compiled, and libraries take their workspace on this stream, when they run first.
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream), NothingReadBack():  # type: ignore[no-untyped-call]
                step()
            torch.cuda.current_stream().wait_stream(self._stream)
            try:
                # Other threads may copy snapshots meanwhile, which the default mode takes for an error of the capture.
                with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                    before = held_bytes(self.device)
                    step()
                    self._num_bytes += max(held_bytes(self.device) - before, 0)
            except RuntimeError:
                self._leave_pool()
                raise
        self._graphs.add(graph)
        return graph.replay

    def _leave_pool(self) -> None:
        """Have torch's allocator take a capture that CUDA broke off for ended: until then it gives no memory back."""
        pool = self.device.index, self._pool
        with suppress(RuntimeError):  # it has ended already
            torch._C._cuda_endAllocateToPool(*pool)
            torch._C._cuda_releasePool(*pool)


class NothingReadBack(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses what needs the contents of a tensor on the host, or allocates by them.

    A capture that CUDA breaks off for that is harder to recover from.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in _CONTENT_OPS or "unique" in name:
            raise RuntimeError(f"{name} reads back to the host")
        if name in ("index", "index_put_", "_index_put_impl_"):
            masks = [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]
            if masks:
                raise RuntimeError(f"{name} of a mask allocates by its contents")
        out = func(*args, **kwargs)
        if name in ("_to_copy", "copy_"):
            devices = {t.device for t in (*args[:2], out) if isinstance(t, torch.Tensor)}
            if len(devices) > 1:
                raise RuntimeError(f"{name} copies between devices")
        return out

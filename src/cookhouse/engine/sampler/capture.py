"""Recording a step once, so that it runs again without Python: CUDA graphs."""

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cookhouse.engine.memory import held_bytes, note_pool

Step = Callable[[], None]
"""Reads and writes tensors that stay where they are."""
Capture = Callable[[Step], Step]
"""Runs a step, and returns what repeats it on whatever its tensors hold by then."""

_CONTENT_OPS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "bincount")


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
        """Bytes that graphs hold for intermediate results: nothing else can use it as long as any of them is left."""
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

"""Recording a step once, so that it runs again without Python: CUDA graphs."""

from collections.abc import Callable

import torch

Step = Callable[[], None]
"""Reads and writes tensors that stay where they are."""
Capture = Callable[[Step], Step]
"""Runs a step, and returns what repeats it on whatever its tensors hold by then."""


class CudaCapture:
    """Captures steps as CUDA graphs over one pool of memory: no two of them run at once.

    https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, step: Step) -> Step:
        """See `Capture`.

        Raises:
            RuntimeError: the step does what no graph can hold, such as reading back to the host.
        """
        with torch.cuda.device(self._device):
            # Kernels are compiled, and libraries take their workspace on this stream, when they run first.
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                step()
            torch.cuda.current_stream().wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            # Other threads may copy snapshots meanwhile, which the default mode takes for an error of the capture.
            with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                step()
        return graph.replay

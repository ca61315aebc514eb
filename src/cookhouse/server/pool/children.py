"""Workers in processes of their own."""

from collections.abc import Mapping
from typing import Any, Self

from cookhouse.engine.contract import WorkerOptions
from cookhouse.engine.transports.child import Child


class Children:
    """Makes workers in processes of their own, one whenever it is called; in a `with`, one that was started too many
    ends.
    """

    def __init__(self) -> None:
        self.engine_options: Mapping[str, Any] = {}
        """What the engine of each is made with: see `TorchEngine`. Set before the first call."""
        self._started: Child | None = None

    def start(self) -> None:
        """Have a process import what it needs, before it is known what for; again does nothing."""
        if self._started is None:
            self._started = Child()

    def __call__(self, options: WorkerOptions) -> Child:
        child, self._started = self._started or Child(), None
        child.begin(options, self.engine_options)
        return child

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._started is not None:
            self._started.discard()

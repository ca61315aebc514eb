"""What has been brought back, and what is said of it once it is done."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cookhouse.server.sessions.sessions import Model

_LOOK_SECONDS = 0.05


@dataclass(slots=True, kw_only=True)
class Restored:
    """What a restart, or a take-over, brought back; `done` when all of it has run again."""

    loading: Mapping[str, Model]
    """Models that are being loaded."""
    waits: Callable[[str], bool]
    """Whether a model waits for memory, for which others do not wait."""
    num_sessions: int = 0
    num_models: int = 0
    num_requests: int = 0
    began_at: float = field(default_factory=lambda: time.monotonic())
    waiting: list[tuple[str, asyncio.Event]] = field(default_factory=list)
    """Of requests, with their models."""

    def add(self, other: "Restored") -> None:
        """Count what another has, too."""
        self.num_sessions += other.num_sessions
        self.num_models += other.num_models
        self.num_requests += other.num_requests
        self.waiting += other.waiting

    async def done(self) -> str:
        """Wait for it; what to say of it then."""
        for model_id, event in self.waiting:
            while not event.is_set() and not self.waits(model_id):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
        while any(not (model.is_dropped or self.waits(name)) for name, model in self.loading.items()):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)  # nothing tells of the end of a session
        return (
            f"restored {self.num_models} models of {self.num_sessions} sessions, and ran {self.num_requests} requests "
            f"again, in {time.monotonic() - self.began_at:.1f} s"
        )

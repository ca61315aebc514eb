"""When a worker tells anew what it has room for."""

from collections.abc import Callable

from cookhouse.engine.contract import Pass, Room, Step
from cookhouse.engine.engine import Engine
from cookhouse.engine.worker.turns import Turn

_LEAST_SHARE = 1 / 16
"""Of what was free when it was told last: less of a change is told to nobody."""
_LOOK_SECONDS = 1.0
"""Between two looks, where nothing was done that takes memory for good, or gives it back: caches grow meanwhile."""


class RoomWatch:
    """Lives in the thread of the engine."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock
        self._looked_at = clock()
        self.told = engine.room()
        """The last one."""

    def look(self, turn: Turn | None, *, has_forgotten: bool) -> Room | None:
        """What is to be told after a turn, or after something was forgotten; None: nothing."""
        now = self._clock()
        if not (has_forgotten or _takes_memory(turn) or (turn is not None and now - self._looked_at >= _LOOK_SECONDS)):
            return None
        self._looked_at = now
        room, told = self._engine.room(), self.told
        is_same = abs(room.free_bytes - told.free_bytes) <= told.free_bytes * _LEAST_SHARE
        if is_same and room.base_models == told.base_models:
            return None
        self.told = room
        return room


def _takes_memory(turn: Turn | None) -> bool:
    """Whether it takes memory for good, or loads a base model."""
    return turn is not None and turn.kind != "sample" and not isinstance(turn.commands[0], Pass | Step)

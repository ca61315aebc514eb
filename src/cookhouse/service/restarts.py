"""How often a server that dies is started again."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """Given up at the `max_deaths`-th death within `within_seconds` of serving; the time that starts take is not
    counted, so that a server which dies while it starts is given up, too.
    """

    max_deaths: int = 3
    within_seconds: float = 60.0


class Deaths:
    """The deaths of one server."""

    def __init__(self, restarts: Restarts) -> None:
        self._restarts = restarts
        self._served_seconds = 0.0
        self._at: list[float] = []

    def note(self, served_seconds: float) -> bool:
        """Note a death after so many seconds of serving; whether it is to be given up."""
        self._served_seconds += served_seconds
        since = self._served_seconds - self._restarts.within_seconds
        self._at = [*(at for at in self._at if at >= since), self._served_seconds]
        return len(self._at) >= self._restarts.max_deaths

"""What `Connections` asks of a connection."""

from typing import Protocol


class Connection(Protocol):
    @property
    def is_idle(self) -> bool:
        """Whether it may go: no request of it is being answered, and what came with its beginning has been read."""

    @property
    def age_seconds(self) -> float: ...

    def abort(self) -> None:
        """Close it at once; it is removed by then."""

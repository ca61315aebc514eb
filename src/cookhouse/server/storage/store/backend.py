"""Differences between databases, by backend."""

from typing import Protocol

import sqlalchemy as sa

from cookhouse.server.refusals import StorageError


class Backend(Protocol):
    name: str
    """For the operator; no password."""
    readers: sa.Engine
    writers: sa.Engine
    """Asked for one connection at a time."""

    def close(self) -> None:
        """Let go of all connections."""
        ...

    def claim(self) -> None:
        """Keep other servers from the database, as long as this process lives.

        Raises:
            InputError: another server has it.
        """
        ...

    def lock_starts(self, connection: sa.Connection) -> None:
        """Have no other server change the tables, or the rows of the service, until the end of the transaction."""
        ...

    def keep_copy(self, revision: str) -> None:
        """Keep what there is, before it is brought to that revision.

        Raises:
            InputError: that cannot be done.
        """
        ...

    def begin(self, connection: sa.Connection, seconds: float) -> None:
        """Begin a transaction that writes; wait for another program's lock for that long."""
        ...

    def failure(self, error: sa.exc.DBAPIError, seconds: float) -> StorageError | None:
        """Error to raise for one of the driver's; None: it is a bug of ours."""
        ...

    def damaged(self, what: object) -> StorageError:
        """Error for data that cannot be read."""
        ...

    def check(self, *, with_indexes: bool = False) -> None:
        """Read the data anew, as far as that is quickly done; raises what is wrong with it. `with_indexes`: also
        whether these agree with the rows, without which rows are not found.
        """
        ...

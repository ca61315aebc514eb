"""Usage by tenants and sessions: counted by the sequencer, kept in the store."""

from collections.abc import Mapping

from cookhouse.engine.contract import Account
from cookhouse.server.pool.meter import Meter
from cookhouse.server.storage.store.store import Store
from cookhouse.server.storage.store.usage import Usage


class Metering:
    """Blocking calls, from any thread. What is read has all that was counted until then.

    Raises:
        StorageError: it cannot be read or written now; nothing that was counted is lost.
    """

    def __init__(self, meter: Meter, store: Store) -> None:
        self._meter = meter
        self._store = store

    def flush(self) -> None:
        """Write down what has been counted, each count once."""
        taken = self._meter.take()
        try:
            self._store.add_usage({(account.owner, account.session_id): usage for account, usage in taken.items()})
        except BaseException:
            self._meter.give_back(taken)
            raise

    def unwritten(self, owner: str) -> Usage:
        """Usage of a tenant that is counted, and not written down. At once."""
        return sum((one for account, one in self._meter.unwritten().items() if account.owner == owner), Usage())

    def of_session(self, session_id: str, owner: str) -> Usage:
        """Usage of a session, also of one that has ended; nothing where it is another tenant's."""
        self.flush()
        held = self._meter.held().get(Account(owner, session_id), Usage())
        return self._store.session_usage(session_id, owner) + held

    def by_owner(self) -> Mapping[str, Usage]:
        """Usage of each tenant, since there is a store."""
        self.flush()
        used = dict(self._store.usage_by_owner())
        for account, usage in self._meter.held().items():
            used[account.owner] = used.get(account.owner, Usage()) + usage
        return used

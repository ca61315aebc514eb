"""Checks that a server can take a session over: it offers the base models of its models and sampling clients."""

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from cookhouse.models.names import plain_name
from cookhouse.naming import listed
from cookhouse.server.storage.store.tables import EntryRecord, RunRecord, SamplerRecord, ServerRecord

_log = logging.getLogger(__name__)
_MAKES_MODELS = "create_model", "load_weights"


class Serving:
    """Asked in one thread."""

    def __init__(self) -> None:
        self.unserved: Mapping[str, Collection[str]] = {}
        """Base models of sessions that no server can take over, by session."""

    def able(
        self, connection: sa.Connection, session_ids: Collection[str], takers: Sequence[str]
    ) -> Mapping[str, Sequence[str]]:
        """Of servers that take sessions over, those that can take each of these."""
        if not session_ids:
            self.unserved = {}
            return {}
        needed, offered = _needed(connection, session_ids), _offered(connection, takers)
        able = {
            session_id: [one for one in takers if _offers(offered.get(one), needed[session_id])]
            for session_id in session_ids
        }
        self._note({session_id: needed[session_id] for session_id, servers in able.items() if takers and not servers})
        return able

    def _note(self, unserved: Mapping[str, Collection[str]]) -> None:
        if unserved.keys() - self.unserved.keys():
            _log.warning(
                "%d sessions wait for a server that offers %s: no single one of those that run does. Start one with "
                "all of these (-m NAME)",
                len(unserved),
                listed(sorted({name for names in unserved.values() for name in names})),
            )
        self.unserved = unserved


def _offers(offered: Collection[str] | None, needed: Collection[str]) -> bool:
    return offered is None or all(name in offered or plain_name(name) in offered for name in needed)


def _offered(connection: sa.Connection, servers: Sequence[str]) -> Mapping[str, Collection[str] | None]:
    query = sa.select(ServerRecord.server_id, ServerRecord.base_models).where(ServerRecord.server_id.in_(servers))
    return {row.server_id: row.base_models for row in connection.execute(query)}


def _needed(connection: sa.Connection, session_ids: Collection[str]) -> Mapping[str, Collection[str]]:
    """Names of base models, by session."""
    needed: defaultdict[str, set[str]] = defaultdict(set)
    wanted = sa.literal(list(session_ids), sa.ARRAY(sa.String))  # one parameter, however many there are
    for record in (RunRecord, SamplerRecord):
        rows = sa.select(record.session_id, record.base_model).where(record.session_id == sa.any_(wanted))
        for row in connection.execute(rows.distinct()):
            needed[row.session_id].add(row.base_model)
    # A model that is still to be made has no row of its own.
    making = sa.select(EntryRecord.session_id, EntryRecord.drawn).where(
        EntryRecord.session_id == sa.any_(wanted), EntryRecord.kind.in_(_MAKES_MODELS)
    )
    for row in connection.execute(making):
        drawn = row.drawn.get("checkpoint", row.drawn)
        if "base_model" in drawn:  # else an older version has drawn it
            needed[row.session_id].add(drawn["base_model"])
    return needed

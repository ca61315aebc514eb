"""Search among a tenant's sessions, newest first."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from tinker.types.search_owner import UserSearchOwner
from tinker.types.session_search_cursor import SessionSearchCursor
from tinker.types.session_search_request import SessionSearchRequest
from tinker.types.session_status_query import ClientFinishedSessionStatusQuery, SessionStatusQuery

from cookhouse.server.storage.store.rows import SessionRow

OWNER = "local"
"""What every tenant is called in answers: it sees nobody but itself."""


def search(
    rows: Sequence[SessionRow], live: Collection[str], request: SessionSearchRequest
) -> tuple[Sequence[SessionRow], SessionSearchCursor | None]:
    """One page of the sessions that a request asks for, and where the next one begins; `live` are ids of some."""
    if isinstance(request.owner, UserSearchOwner) and OWNER not in request.owner.owner_urns:
        return (), None
    found = [row for row in rows if _is_wanted(row, live, request)]
    found.sort(key=_place, reverse=True)
    if request.cursor is not None:
        after = (request.cursor.last_created_at, request.cursor.last_session_id)
        found = [row for row in found if _place(row) < after]
    page = found[: request.limit]
    if len(page) == len(found):
        return page, None
    created_at, session_id = _place(page[-1])
    return page, SessionSearchCursor(last_created_at=created_at, last_session_id=session_id)


def status_type(row: SessionRow, live: Collection[str]) -> str | None:
    """`active`, `client_finished`, or None for a session that ended by itself."""
    if row.session_id in live:
        return "active"
    return None if row.finish_reason is None else "client_finished"


def _place(row: SessionRow) -> tuple[datetime, str]:
    """In the order of results; microseconds, as a cursor has them."""
    return datetime.fromtimestamp(row.created_at, UTC), row.session_id


def _is_wanted(row: SessionRow, live: Collection[str], request: SessionSearchRequest) -> bool:
    by_name = []
    if request.session_id is not None:
        by_name.append(row.session_id == request.session_id)
    if request.display_name is not None:
        name = (row.display_name or "").lower()
        by_name.append(all(word in name for word in request.display_name.lower().split()))
    return (
        (not by_name or any(by_name))
        and (request.project_ids is None or (row.project_id or OWNER) in request.project_ids)
        and all(row.user_metadata.get(key) == value for key, value in request.user_metadata.items())
        and (request.statuses is None or any(_has_status(row, live, query) for query in request.statuses))
    )


def _has_status(row: SessionRow, live: Collection[str], query: SessionStatusQuery) -> bool:
    if query.type != status_type(row, live):
        return False
    reasons = query.reasons if isinstance(query, ClientFinishedSessionStatusQuery) else None
    return reasons is None or row.finish_reason in reasons

"""Ids of sessions that several servers share: each of their requests says whose it is.

shared-UUID                       a session
train-shared-UUID-HASH            a request of one of its models
sample-shared-UUID-RANDOM         one of its samples
"""

import re
import uuid

_SHARED = "shared-"
_REQUEST = re.compile(r"(?:train|sample)-(shared-[0-9a-f-]{36})-[0-9a-f]+")


def new_shared_id() -> str:
    return f"{_SHARED}{uuid.uuid4()}"


def part_of(session_id: str) -> str:
    """Prefix of a request's id that names its session: empty, unless servers share it."""
    return f"{session_id}-" if session_id.startswith(_SHARED) else ""


def session_of_request(request_id: str) -> str | None:
    """None: its id does not say."""
    found = _REQUEST.fullmatch(request_id)
    return None if found is None else found[1]

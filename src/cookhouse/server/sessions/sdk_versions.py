"""Versions of the SDK, as clients give them: which are served, and what the older of these cannot read.

The form of a request or of a result never depends on them: its Content-Type and Accept say which it is.
"""

import re

from cookhouse.errors import InputError

_OLDEST = (0, 16)
_KNOWS_EXTERNAL_WEIGHTS = (0, 28)
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})")
# The hosted service's words, which people search for.
_TOO_OLD = "Your Tinker SDK version is no longer supported. Please upgrade to the latest version."
_NO_SESSION = "session_id is required. The version of the Tinker SDK you are using is no longer supported."


def check_version(version: str) -> None:
    """Raises InputError: no server serves so old an SDK."""
    if _number(version) < _OLDEST:
        raise InputError(_TOO_OLD)


def check_session_id(session_id: str | None) -> None:
    """Raises InputError: there is none, as of SDKs before 0.3, which have no sessions."""
    if not session_id:
        raise InputError(_NO_SESSION)


def knows_external_weights(version: str) -> bool:
    """False: it fails over a list of checkpoints that has external weights among them."""
    return _number(version) >= _KNOWS_EXTERNAL_WEIGHTS


def _number(version: str) -> tuple[int, ...]:
    """Of a version that is none, that of the newest."""
    found = _VERSION.match(version)
    return (10**9,) if found is None else tuple(map(int, found.groups()))

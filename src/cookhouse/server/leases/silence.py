"""Silence of servers, for too long: by what this one sees change, and its own clock alone. A database whose clock is
set, or that is replaced by one with another, has nobody dropped.
"""

from collections.abc import Mapping, Sequence

from cookhouse.server.leases.members import SILENT_SECONDS, Member

_BLIND_SECONDS = SILENT_SECONDS / 2
"""Who has not looked for so long knows nothing: the others may have beaten, or been cut off as it was."""


class Silence:
    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}
        """Of each server, what it said last, and when that was first seen."""
        self._looked_at = float("-inf")

    def note(self, members: Sequence[Member], at: float) -> None:
        """Take note of what is seen at a time, which is not before it was read."""
        before = {} if at - self._looked_at > _BLIND_SECONDS else self._seen
        self._looked_at = at
        self._seen = {
            member.server_id: seen
            if (seen := before.get(member.server_id)) is not None and seen[0] == member.heard_at
            else (member.heard_at, at)
            for member in members
        }

    def seconds(self, server_id: str) -> float:
        """For how long a server had said nothing when it was looked for last."""
        return self._looked_at - self._seen[server_id][1]

    def silent(self) -> Mapping[str, float]:
        """Those who have said nothing for too long, and what each said last."""
        return {
            server_id: heard_at
            for server_id, (heard_at, at) in self._seen.items()
            if self._looked_at - at > SILENT_SECONDS
        }

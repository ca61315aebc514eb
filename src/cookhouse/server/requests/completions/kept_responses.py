"""Responses that later ones go on from, by the key that asked for them: in memory, and bounded."""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from cookhouse.dialects.errors import FieldError
from cookhouse.server.refusals import NotFoundError

_MAX_RESPONSES = 1024
_MAX_BYTES = 32 * 2**20
"""Of one key; the oldest make room."""


_Kept: TypeAlias = OrderedDict[str, tuple[bytes, bytes]]
"""Turns and response, each as JSON, by id."""


class NoResponseError(NotFoundError):
    """The key has no such response, or it was not stored, or has made room."""


class KeptResponses:
    """Lives on the event loop. Another server of the same service does not have them."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def keep(self, owner: str, turns: Sequence[Mapping[str, Any]], response: Mapping[str, Any]) -> None:
        """Keep a response, and the conversation up to it."""
        kept = self._of(owner)
        kept[response["id"]] = (json.dumps(turns).encode(), json.dumps(response).encode())
        while len(kept) > _MAX_RESPONSES or sum(map(_num_bytes, kept.values())) > _MAX_BYTES:
            kept.popitem(last=False)

    def turns(self, owner: str, response_id: str | None) -> list[dict[str, Any]]:
        """The conversation up to a response; none for None.

        Raises:
            FieldError: the key has no such response, or it was not stored, or made room.
        """
        if response_id is None:
            return []
        kept = self._of(owner).get(response_id)
        if kept is None:
            raise FieldError(
                "previous_response_id",
                f"there is no response {response_id[:100]!r} here (any more); send the whole conversation as input",
                code="previous_response_not_found",
            )
        turns: list[dict[str, Any]] = json.loads(kept[0])
        return turns

    def response(self, owner: str, response_id: str) -> dict[str, Any]:
        """Raises NoResponseError."""
        kept = self._of(owner).get(response_id)
        if kept is None:
            raise NoResponseError(f"there is no response {response_id[:100]!r} here (any more)")
        response: dict[str, Any] = json.loads(kept[1])
        return response

    def delete(self, owner: str, response_id: str) -> None:
        """Raises NoResponseError."""
        self.response(owner, response_id)
        del self._of(owner)[response_id]

    def _of(self, owner: str) -> _Kept:
        return self._kept.setdefault(owner, OrderedDict())


def _num_bytes(kept: tuple[bytes, bytes]) -> int:
    return sum(map(len, kept))

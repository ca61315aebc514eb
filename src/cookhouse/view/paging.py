"""A page of a long list, by `offset` and `limit` of its address."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

from cookhouse.errors import InputError

MAX_ROWS: Final = 200

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Paging:
    """Part of a list that a page shows."""

    total: int
    offset: int
    limit: int
    query: Sequence[tuple[str, str]]
    """What else the address says."""

    @classmethod
    def of(cls, request: Request, total: int, limit: int = MAX_ROWS) -> "Paging":
        """As the address says; a page begins at most where the list ends. Raises `InputError` for what is no number."""
        query = [(name, value) for name, value in request.query_params.multi_items() if name not in _OWN]
        return cls(
            total=total,
            offset=min(whole_number(request, "offset", 0, 0), total),
            limit=min(whole_number(request, "limit", limit, 1), MAX_ROWS),
            query=query,
        )

    def cut(self, rows: Sequence[T]) -> list[T]:
        """The part of the list that is shown."""
        return list(rows[self.offset : self.offset + self.limit])

    def as_json(self) -> dict[str, Any]:
        """With the addresses, from the page's own, of the parts before and behind; None where there is none."""
        end = min(self.offset + self.limit, self.total)
        return {
            "total": self.total,
            "offset": self.offset,
            "limit": self.limit,
            "end": end,
            "before": self._address(max(0, self.offset - self.limit)) if self.offset else None,
            "behind": self._address(end) if end < self.total else None,
        }

    def _address(self, offset: int) -> str:
        return "?" + urlencode([*self.query, ("offset", str(offset)), ("limit", str(self.limit))])


_OWN: Final = frozenset({"offset", "limit", "token"})


def whole_number(request: Request, name: str, default: int, least: int) -> int:
    """A number of an address. Raises `InputError` for what is none, or less than the least."""
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 15 or int(text) < least:
        raise InputError(f"{name} is a whole number from {least}, not {text!r}")
    return int(text)

"""Profile of a server, as the others read it when it joins them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cookhouse.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    journal: str | None = None
    """Where the bodies of requests are kept; None: it does not say where anything is."""
    checkpoints: str | None = None
    """None: in the shared folder."""
    base_models: Sequence[str] | None = None
    """What clients may ask it for; None: it does not say."""


def check_places(mine: Profile, others: Iterable[tuple[str, Profile]]) -> None:
    """See that a server keeps what the others read, too, where they do. `others` come with their URLs.

    Raises:
        InputError: it does not.
    """
    for url, other in others:
        if mine.journal is None or other.journal is None:
            continue
        for option, own, theirs in (
            ("--journal", mine.journal, other.journal),
            ("--checkpoints", mine.checkpoints, other.checkpoints),
        ):
            if _plain(own) != _plain(theirs):
                raise InputError(
                    f"servers that share sessions need the same {option}: this one has {_told(own)}, and the one at "
                    f"{url} {_told(theirs)}; start all of them with the same"
                )


def _plain(place: str | None) -> str | None:
    return None if place is None else place.rstrip("/")


def _told(place: str | None) -> str:
    return "none" if place is None else place

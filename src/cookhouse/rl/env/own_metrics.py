"""Names that figures of an environment's own share with those of the run: the run's stay, the others are `own/NAME`."""

from collections.abc import Mapping

_OWN = "own/"


def own_name(name: str) -> str:
    """Name of a figure of a user's own where the run has one of its name."""
    return _OWN + name


def plain_name(name: str) -> str:
    """The name behind `own/`, however often that stands there."""
    while name.startswith(_OWN):
        name = name.removeprefix(_OWN)
    return name


def beside_own(theirs: Mapping[str, float], ours: Mapping[str, float]) -> dict[str, float]:
    """Both figures of a step, one to one: one of theirs that has a name of ours is moved aside."""
    return {own_name(name) if plain_name(name) in ours else name: value for name, value in theirs.items()} | dict(ours)

"""Names by which the metrics of some groups are also reported apart."""

from collections.abc import Callable, Sequence
from typing import Any

from cookhouse.callables.returned import function_place, refused
from cookhouse.errors import InputError

ALL = "all"
"""The scope of the metrics of all groups, which no tag may have."""


def checked_tag(tag: str) -> str:
    """A tag. Raises `InputError` where metrics could not be distinguished from those of all groups."""
    if tag == ALL or not tag or "/" in tag:
        raise InputError(
            f"{tag!r} cannot be the name of an environment: metrics are reported as env/{ALL}/METRIC for all groups, "
            "and as env/NAME/METRIC for those of one; call it differently, without a slash"
        )
    return tag


def checked_tags(function: Callable[..., Any], tags: object) -> list[str]:
    """The tags that a function gave. Raises `InputError` for what are none."""
    if not isinstance(tags, Sequence) or isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise refused(function, tags, "it must return a list of names")
    try:
        return [checked_tag(tag) for tag in tags]
    except InputError as error:
        raise error.at(function_place(function)) from error

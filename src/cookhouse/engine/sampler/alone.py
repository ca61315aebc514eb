"""Finding out which of several requests is to blame when computing them together fails."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from cookhouse.engine.memory import let_go

_T = TypeVar("_T")
_R = TypeVar("_R")
_log = logging.getLogger(__name__)


def together_or_alone(
    items: Sequence[_T], run: Callable[[Sequence[_T]], _R], *, what: str
) -> Iterator[tuple[Sequence[_T], _R | Exception]]:
    """Results of `run` for all of the items; where it fails, its result or error for each alone.

    `run` must be one that can be repeated.
    """
    try:
        result: _R | Exception = run(items)
    except Exception as error:
        let_go(error)
        result = error
    if not isinstance(result, Exception) or len(items) == 1:
        yield items, result
        return
    _log.warning("%s of %d sequences failed (%r); each is tried alone", what, len(items), result)
    for item in items:
        yield from together_or_alone([item], run, what=what)

"""Rows of problems, from sources of any kind."""

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from cookhouse.data import DataSource, HubSource, HubSplit, data_source, iter_rows, parse_each
from cookhouse.errors import InputError

P = TypeVar("P")
_log = logging.getLogger(__name__)


def read_problems(
    given: str | os.PathLike[str] | HubSplit | DataSource, parse: Callable[[Mapping[str, Any]], P | None]
) -> list[P]:
    """Results of `parse` for each row of a source; rows of which it makes None are left out and counted.

    Raises:
        InputError: the source cannot be read, or none of its rows is a problem.
        BadRowsError: `parse` raised `InputError` or missed a key, each as `source: reason`.
    """
    source = HubSource(split=given) if isinstance(given, HubSplit) else data_source(given)
    parsed = parse_each(iter_rows(source), lambda row: _parsed(row.place, row.value(), parse))
    problems = [problem for problem in parsed if problem is not None]
    if not problems:
        raise InputError(f"{source} holds no problems that can be graded ({len(parsed)} rows)")
    if len(problems) < len(parsed):
        _log.warning(
            "%s: %d of %d rows cannot be graded and are left out", source, len(parsed) - len(problems), len(parsed)
        )
    return problems


def text_field(row: Mapping[str, Any], key: str) -> str:
    """The text of a row under a key; a number becomes its digits. Raises `InputError` if it is neither."""
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"{key} must be text or a number, not {type(value).__name__}")
    return str(value)


def _parsed(source: str, row: object, parse: Callable[[Mapping[str, Any]], P | None]) -> P | None:
    if not isinstance(row, Mapping):
        raise InputError(f"{source}: a row must be an object, not {type(row).__name__}")
    try:
        return parse(row)
    except KeyError as error:
        raise InputError(f"{source}: the row has no {error}; it has {', '.join(map(str, row))}") from error
    except InputError as error:
        raise InputError(f"{source}: {error}") from error

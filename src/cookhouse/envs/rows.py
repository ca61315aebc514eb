"""Rows of problems: from a local JSON Lines file, or from a data set on the Hugging Face hub."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from cookhouse.data import iter_lines, parse_each, row_from_line
from cookhouse.errors import InputError

P = TypeVar("P")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSplit:
    """A split of a data set on the hub. Several configurations are read one after the other."""

    name: str
    split: str
    configs: Sequence[str | None] = (None,)


def read_problems(source: str | os.PathLike[str] | HubSplit, parse: Callable[[Mapping[str, Any]], P | None]) -> list[P]:
    """What `parse` makes of each row of a file or a split; rows of which it makes None are left out and counted.

    Raises:
        InputError: the source cannot be read, or none of its rows is a problem.
        BadRowsError: `parse` raised `InputError` or missed a key, each as `source: reason`.
    """
    name = source.name if isinstance(source, HubSplit) else os.fspath(source)
    if isinstance(source, HubSplit):
        parsed = parse_each(_hub_rows(source), lambda sourced: _parsed(*sourced, parse))
    else:
        parsed = parse_each(
            iter_lines(source), lambda sourced: _parsed(sourced[0], row_from_line(sourced[1], sourced[0]), parse)
        )
    problems = [problem for problem in parsed if problem is not None]
    if not problems:
        raise InputError(f"{name} holds no problems that can be graded ({len(parsed)} rows)")
    if len(problems) < len(parsed):
        _log.warning(
            "%s: %d of %d rows cannot be graded and are left out", name, len(parsed) - len(problems), len(parsed)
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


def _hub_rows(source: HubSplit) -> Iterator[tuple[str, object]]:
    try:
        import datasets
    except ImportError as error:
        raise InputError(
            f"reading {source.name} from the hub needs the library datasets; install cookhouse[data], or give the path "
            "of a JSON Lines file with the same fields"
        ) from error
    for config in source.configs:
        try:
            rows = datasets.load_dataset(source.name, config, split=source.split)
        except (OSError, ValueError) as error:
            raise InputError(
                f"{source.name} cannot be loaded from the hub: {error}; give the path of a JSON Lines file with the "
                "same fields"
            ) from error
        for index, row in enumerate(rows):
            yield f"{source.name} ({source.split}), row {index}", row

"""Values of Arrow's tables as JSON has them, by their types."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from cookhouse.data.values import as_json

Decode: TypeAlias = Callable[[Any], Any]


def decode_rows(rows: Sequence[dict[str, Any]], schema: Any, *, has_json_text: bool = True) -> Sequence[dict[str, Any]]:
    """Rows with dates and times as ISO text, decimals as numbers, maps as objects, and columns of JSON as what these
    hold. `schema` is Arrow's; without `has_json_text` columns of JSON have been read before.
    """
    found = {field.name: _decoder(field.type, has_json_text) for field in schema}
    decoders = {name: decode for name, decode in found.items() if decode is not None}
    return (
        [{**row, **{name: decode(row[name]) for name, decode in decoders.items()}} for row in rows]
        if decoders
        else rows
    )


def _decoder(kind: Any, has_json_text: bool) -> Decode | None:
    """Function that makes JSON of a value of a type; None where it is JSON as it stands."""
    import pyarrow.types as types

    if getattr(kind, "extension_name", None) == "arrow.json":
        return _unless_null(json.loads) if has_json_text else None
    if types.is_dictionary(kind):
        return _decoder(kind.value_type, has_json_text)
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind) or types.is_decimal(kind):
        return _unless_null(as_json)
    if types.is_struct(kind):
        return _of_struct({field.name: _decoder(field.type, has_json_text) for field in kind})
    if types.is_map(kind):
        return _of_items(_decoder(kind.item_type, has_json_text))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _of_list(_decoder(kind.value_type, has_json_text))
    return None


def _unless_null(decode: Decode) -> Decode:
    return lambda value: None if value is None else decode(value)


def _of_struct(found: dict[str, Decode | None]) -> Decode | None:
    decoders = {name: decode for name, decode in found.items() if decode is not None}
    if not decoders:
        return None
    return _unless_null(lambda value: {**value, **{name: decode(value[name]) for name, decode in decoders.items()}})


def _of_items(decode: Decode | None) -> Decode:
    def decoded(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
        found = {key: each if decode is None else decode(each) for key, each in pairs}
        if len(found) < len(pairs):
            raise ValueError("a map has the same key twice")
        return found

    return _unless_null(decoded)


def _of_list(decode: Decode | None) -> Decode | None:
    return None if decode is None else _unless_null(lambda value: [decode(each) for each in value])

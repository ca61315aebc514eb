"""Values as JSON that keeps Python's types: what a test may pass to a solution, and what it gets back.

Only plain data is rebuilt on the other side, with Python's own types, so an object cannot bring its own `__eq__`. What
is not data stays where it is and is passed as a handle.
"""

import collections
import datetime
import decimal
import fractions
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

_MAX_ITEMS = 1_000_000  # of an iterator, which may never end
_SMALL_INT_BITS = 1024  # longer ones are sent as hexadecimal: reading long decimals takes quadratic time

_KINDS: tuple[type, ...] = (bool, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)
_TYPES = {kind.__name__: kind for kind in _KINDS}
_DATES: dict[str, Any] = {"date": datetime.date, "datetime": datetime.datetime, "time": datetime.time}


def dumps(value: Any, handle: Callable[[Any], int] | None = None) -> str:
    """JSON of a value; `handle` numbers an object that is not data, without it that is a TypeError."""
    return json.dumps(_Encoder(handle).encode(value))


def loads(text: str, remote: Callable[[int], Any] | None = None) -> Any:
    """The value of a JSON; `remote` makes an object from a handle. ValueError for what `dumps` does not write."""
    try:
        return _Decoder(remote).decode(json.loads(text))
    except (TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"not plain data: {error!r}") from error


class _Encoder:
    def __init__(self, handle: Callable[[Any], int] | None) -> None:
        self._handle = handle

    def encode(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, str)):
            return value if type(value) in (bool, str) or value is None else str.__str__(value)
        if isinstance(value, int):
            number = int.__add__(value, 0)
            return number if number.bit_length() <= _SMALL_INT_BITS else {"int": hex(number)}
        if isinstance(value, float):
            real = float.__add__(value, 0.0)
            return real if math.isfinite(real) else {"float": repr(real)}
        if isinstance(value, list):
            return self._items(value)
        return self._tagged(value)

    def _tagged(self, value: Any) -> dict[str, Any]:
        kinds: tuple[type, ...] = (tuple, set, frozenset, collections.deque)
        for kind in kinds:
            if isinstance(value, kind):
                return {kind.__name__: self._items(value)}
        if isinstance(value, dict):
            return {"dict": [[self.encode(key), self.encode(item)] for key, item in value.items()]}
        if isinstance(value, (bytes, bytearray)):
            return {type(value).__name__: value.hex()}
        if isinstance(value, complex):
            return {"complex": [self.encode(value.real), self.encode(value.imag)]}
        if isinstance(value, range):
            return {"range": [value.start, value.stop, value.step]}
        if isinstance(value, decimal.Decimal):
            return {"Decimal": str(value)}
        if isinstance(value, fractions.Fraction):
            return {"Fraction": [value.numerator, value.denominator]}
        if isinstance(value, datetime.timedelta):
            return {"timedelta": [value.days, value.seconds, value.microseconds]}
        if isinstance(value, (datetime.date, datetime.time)):
            return {type(value).__name__: value.isoformat()}
        if isinstance(value, (type({}.keys()), type({}.values()), type({}.items()))):
            return {"iterator": self._items(value)}
        return self._unusual(value)

    def _unusual(self, value: Any) -> dict[str, Any]:
        if isinstance(value, type) and _TYPES.get(value.__name__) is value:
            return {"type": value.__name__}
        if isinstance(value, Iterator):
            items: list[Any] = []
            for item in value:
                if len(items) == _MAX_ITEMS:
                    raise ValueError(f"an iterator has more than {_MAX_ITEMS} items")
                items.append(self.encode(item))
            return {"iterator": items}
        if hasattr(value, "tolist"):  # numpy's arrays and scalars
            return {"same": self.encode(value.tolist())}
        if self._handle is None:
            raise TypeError(f"a {type(value).__name__} is not plain data")
        return {"handle": self._handle(value)}

    def _items(self, values: Any) -> list[Any]:
        return [self.encode(value) for value in values]


class _Decoder:
    def __init__(self, remote: Callable[[int], Any] | None) -> None:
        self._remote = remote

    def decode(self, data: Any) -> Any:
        if isinstance(data, list):
            return [self.decode(item) for item in data]
        if not isinstance(data, dict):
            return data
        ((kind, body),) = data.items()
        if kind in ("tuple", "set", "frozenset", "deque", "iterator"):
            items = [self.decode(item) for item in body]
            makers: dict[str, Callable[[list[Any]], Any]]
            makers = {"tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque, "iterator": iter}
            return makers[kind](items)
        if kind == "dict":
            return {self.decode(key): self.decode(item) for key, item in body}
        return self._single(kind, body)

    def _single(self, kind: str, body: Any) -> Any:
        if kind == "int":
            return int(body, 16)
        if kind == "float":
            return float(body)
        if kind == "complex":
            return complex(self.decode(body[0]), self.decode(body[1]))
        if kind in ("bytes", "bytearray"):
            return bytes.fromhex(body) if kind == "bytes" else bytearray.fromhex(body)
        if kind == "range":
            return range(*body)
        if kind == "Decimal":
            return decimal.Decimal(body)
        if kind == "Fraction":
            return fractions.Fraction(*body)
        if kind == "timedelta":
            return datetime.timedelta(*body)
        if kind in _DATES:
            return _DATES[kind].fromisoformat(body)
        if kind == "type":
            return _TYPES[body]
        if kind == "same":
            return self.decode(body)
        if kind == "handle" and self._remote is not None and type(body) is int:
            return self._remote(body)
        raise ValueError(f"unknown kind {kind!r}")

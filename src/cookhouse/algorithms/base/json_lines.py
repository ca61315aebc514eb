"""Rows with long arrays as lines of JSON, at little cost in time and bytes."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic_core import to_json

_DIGITS = 7
_SCALES = np.array([float(f"1e{power}") for power in range(23)])


def shortened(values: ArrayLike) -> NDArray[np.float64]:
    """The values with seven significant digits: about what float32 has."""
    exact = np.asarray(values, dtype=np.float64)
    is_plain = np.isfinite(exact) & (exact != 0)
    exponents = np.floor(np.log10(np.abs(np.where(is_plain, exact, 1.0))))
    scales = _SCALES[np.clip(_DIGITS - 1 - exponents, 0, _SCALES.size - 1).astype(np.int64)]
    return np.where(is_plain, np.round(np.where(is_plain, exact, 0.0) * scales) / scales, exact)


def json_line(row: Mapping[str, Any]) -> str:
    """One line; what is not finite becomes null."""
    return to_json(row, inf_nan_mode="null").decode() + "\n"


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """A line for each."""
    return "".join(map(json_line, rows))

"""Rows as JSON lines: short, and valid for whoever reads JSON."""

import json

import numpy as np

from cookhouse.algorithms.base.json_lines import json_lines, shortened


def test_values_keep_what_float32_tells_apart_and_are_written_short() -> None:
    """Catches arrays of seventeen digits each, and a rounding by decimals, in which small advantages vanish."""
    values = np.array([-0.12345678901, 1.5e-9, -31.000002, 0.0, 12345678.0], dtype=np.float32)
    found = shortened(values)
    assert np.allclose(found, values, rtol=2e-7, atol=0)
    assert max(len(str(value)) for value in found) <= 13


def test_what_is_not_finite_becomes_null() -> None:
    """Catches NaN in a line: no browser reads it."""
    values = shortened(np.array([np.nan, -np.inf, np.inf, 1.0]))
    assert json_lines([{"a": values.tolist()}, {"b": 1}]) == '{"a":[null,null,null,1.0]}\n{"b":1}\n'
    assert [json.loads(line) for line in json_lines([{"a": "é\n"}]).splitlines()] == [{"a": "é\n"}]

"""Names that programs of contests use without importing them, as the judges of their data sets allow.

LiveCodeBench, APPS and TACO put star imports of these modules before a program, and the modules themselves.
"""

import importlib
import re
from typing import Any

_STARRED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "typing"),
    "builtins",  # last: `pow` and `open` are Python's own
)
_MODULES = (*_STARRED, "array", "cmath", "decimal", "fractions", "os", "time")
RECURSION_LIMIT = 50_000
_NUMPY = re.compile(r"(?<![\w.])np\.")


def _public(name: str) -> dict[str, Any]:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", None) or [key for key in vars(module) if not key.startswith("_")]
    return {key: getattr(module, key) for key in names}


NAMES: dict[str, Any] = {}
for _name in _STARRED:
    NAMES |= _public(_name)
NAMES |= {_name: importlib.import_module(_name) for _name in _MODULES}


def names_for(code: str) -> dict[str, Any]:
    """`NAMES`, with numpy as `np` for a program that uses it."""
    if _NUMPY.search(code):
        try:
            return NAMES | {"np": importlib.import_module("numpy")}
        except ImportError:
            pass
    return dict(NAMES)

"""Which rank and which scaling the config of a PEFT adapter gives to a module or a parameter."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cookhouse.errors import InputError

_T = TypeVar("_T", int, float)
_MAX_ALPHA = 2**20
_MAX_PATTERNS = 1024
_NAME = re.compile(r"[\w.]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Those of all modules, and of some by the ends of their names."""

    rank: int
    alpha: float
    is_root: bool
    """rslora: https://arxiv.org/abs/2312.03732, equation 7."""
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]

    @classmethod
    def of(cls, path: Path, config: Mapping[str, Any]) -> "Ranks":
        """Read from a config, of which nothing is checked.

        Raises:
            InputError: there is no rank, or no scaling, that this engine can use; the message names `path`.
        """
        rank, alpha = config.get("r"), config.get("lora_alpha")
        ranks, alphas = (_patterns(path, config, field) for field in ("rank_pattern", "alpha_pattern"))
        for where, value in (("r", rank), *((f"rank_pattern of {name}", value) for name, value in ranks.items())):
            if type(value) is not int or value < 1:
                raise InputError(f"{path}: {where} is {value!r}; it must be a positive integer")
        for where, value in (
            ("lora_alpha", alpha),
            *((f"alpha_pattern of {name}", value) for name, value in alphas.items()),
        ):
            if type(value) not in (int, float) or not 0 < value <= _MAX_ALPHA:
                raise InputError(f"{path}: {where} is {value!r}; it must be above 0, up to {_MAX_ALPHA}")
        return cls(rank, alpha, bool(config.get("use_rslora")), ranks, alphas)  # type: ignore[arg-type]

    def rank_of(self, name: str) -> int:
        """The rank of a module or parameter."""
        return _find(self.ranks, name, self.rank)

    def scaling(self, name: str) -> float:
        """The factor of B A x of a module or parameter."""
        rank, alpha = self.rank_of(name), _find(self.alphas, name, self.alpha)
        return alpha / math.sqrt(rank) if self.is_root else alpha / rank


def _patterns(path: Path, config: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Values by the end of a name. PEFT takes any regular expression; a stranger's may take forever."""
    given = config.get(field) or {}
    if not isinstance(given, dict) or len(given) > _MAX_PATTERNS:
        raise InputError(f"{path}: {field} is not an object of at most {_MAX_PATTERNS} names")
    names = {key: key.removeprefix("^").removeprefix(r".*\.").removeprefix(".*").replace(r"\.", ".") for key in given}
    for key, name in names.items():
        if not _NAME.fullmatch(name):
            raise InputError(f"{path}: {field} has {key[:80]!r}; use names of modules, or ends of them")
    return {names[key]: value for key, value in given.items()}


def _find(values: Mapping[str, _T], name: str, default: _T) -> _T:
    return next((value for end, value in values.items() if name == end or name.endswith(f".{end}")), default)

"""Rank and scaling that the config of a PEFT adapter gives to a module or a parameter."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cookhouse.errors import InputError

_T = TypeVar("_T", int, float)
_MAX_ALPHA = 2**20
_MAX_PATTERNS = 1024
_PATTERN = re.compile(r"\^?(\.\*)?([\w.]|\\\.)+", re.ASCII)
"""Names or ends of them, as PEFT's users write them. It takes any regular expression; a stranger's may take forever."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks of all modules, and of some by patterns of their names, as PEFT's `get_pattern_key` finds them."""

    rank: int
    alpha: float
    is_root: bool
    """rslora: https://arxiv.org/abs/2312.03732, equation 7."""
    ranks: Sequence[tuple[re.Pattern[str], int]]
    alphas: Sequence[tuple[re.Pattern[str], float]]

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
        is_root = bool(config.get("use_rslora"))
        # Numbers: what is none has been refused.
        return cls(rank, alpha, is_root, _compiled(ranks), _compiled(alphas))  # type: ignore[arg-type]

    def rank_of(self, name: str) -> int:
        """The rank of a module or parameter."""
        return _find(self.ranks, name, self.rank)

    def scaling(self, name: str) -> float:
        """The factor of B A x of a module or parameter."""
        rank, alpha = self.rank_of(name), _find(self.alphas, name, self.alpha)
        return alpha / math.sqrt(rank) if self.is_root else alpha / rank


def _patterns(path: Path, config: Mapping[str, Any], field: str) -> dict[str, Any]:
    given = config.get(field) or {}
    if not isinstance(given, dict) or len(given) > _MAX_PATTERNS:
        raise InputError(f"{path}: {field} is not an object of at most {_MAX_PATTERNS} names")
    for key in given:
        if not _PATTERN.fullmatch(key):
            raise InputError(f"{path}: {field} has {key[:80]!r}; use names of modules, or ends of them")
    return given


def _compiled(values: Mapping[str, _T]) -> list[tuple[re.Pattern[str], _T]]:
    return [(re.compile(rf"(.*\.)?({key})$"), value) for key, value in values.items()]


def _find(values: Sequence[tuple[re.Pattern[str], _T]], name: str, default: _T) -> _T:
    return next((value for pattern, value in values if pattern.match(name)), default)

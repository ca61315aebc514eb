"""Questions to a registry: which versions, in which order; answered alike by every adapter."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from cookhouse.errors import InputError
from cookhouse.registry.model import ModelStage, ModelVersion

_BOUND = re.compile(r"\s*(?P<metric>[^<>=\s]+)\s*(?P<sign>>=|<=|>|<)\s*(?P<value>\S+)\s*")


@dataclass(frozen=True, kw_only=True)
class MetricBound:
    """Bound that a metric has to keep; a version that lacks it does not fit."""

    metric: str
    sign: str
    """>=, <=, > or <."""
    value: float

    def fits(self, version: ModelVersion) -> bool:
        found = version.metrics.get(self.metric)
        if found is None:
            return False
        match self.sign:
            case ">=":
                return found >= self.value
            case "<=":
                return found <= self.value
            case ">":
                return found > self.value
            case _:
                return found < self.value


@dataclass(frozen=True, kw_only=True)
class Query:
    """Conditions on versions. One that is None or empty leaves its field open."""

    name: str | None = None
    stage: ModelStage | None = None
    parent: str | None = None
    """`name@version`: its children."""
    artifact_path: str | None = None
    """Of the weights to train on from, or of those to sample from."""
    bounds: tuple[MetricBound, ...] = ()
    order_by: str | None = None
    """A metric, those that lack it last; None: by name and version."""
    is_ascending: bool = False
    """Whether the lowest metric comes first, as for a loss."""

    def fits(self, version: ModelVersion) -> bool:
        """True if a version is asked for."""
        paths = {artifact.path for artifact in (version.artifact, version.sampler) if artifact is not None}
        return (
            self.name in (None, version.name)
            and self.stage in (None, version.stage)
            and self.parent in (None, version.parent)
            and (self.artifact_path is None or self.artifact_path in paths)
            and all(bound.fits(version) for bound in self.bounds)
        )

    def answer(self, versions: Iterable[ModelVersion]) -> list[ModelVersion]:
        """Versions that fit, in the order asked for."""
        found = sorted(filter(self.fits, versions), key=lambda version: (version.name, version.version))
        if self.order_by is None:
            return found
        sign = 1.0 if self.is_ascending else -1.0
        measured = [version for version in found if self.order_by in version.metrics]
        others = [version for version in found if self.order_by not in version.metrics]
        return sorted(measured, key=lambda version: sign * version.metrics[str(self.order_by)]) + others


def parse_bound(text: str) -> MetricBound:
    """A bound as one writes it, such as `test/nll<0.5`.

    Raises:
        InputError: it cannot be read as one.
    """
    match = _BOUND.fullmatch(text)
    value = math.nan if match is None else _number(match["value"])
    if match is None or math.isnan(value):
        raise InputError(f"{text!r} bounds no metric; write a metric, one of >=, <=, >, <, and a number: accuracy>=0.9")
    return MetricBound(metric=match["metric"], sign=match["sign"], value=value)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan

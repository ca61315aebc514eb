"""The page of several models at the same benchmarks: what each reached, and what separates each from the first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cookhouse.evals import Estimate, PairedDifference
from cookhouse.pages import document
from cookhouse.telemetry import find_metric, measured_text

_NOT_TOLD = "-"


@dataclass(frozen=True, kw_only=True)
class PairedTable:
    """Models side by side, the first of them the one that the others are compared with."""

    models: Sequence[str]
    figures: Mapping[str, Sequence[Estimate | None]]
    """Of each model, by benchmark and figure as `gsm8k/correct`; None where a model has none."""
    differences: Mapping[str, Sequence[PairedDifference]]
    """Of each model but the first, in `correct`, by benchmark."""

    def rows(self) -> list[list[str]]:
        """The figures in words: a name, and a cell for each model."""
        return [[name, *(estimate_text(name, each) for each in some)] for name, some in self.figures.items()]

    def difference_rows(self) -> list[list[str]]:
        """The differences in words: a name, and a cell for each model but the first."""
        return [[name, *map(difference_text, some)] for name, some in self.differences.items()]


def estimate_text(name: str, estimate: Estimate | None) -> str:
    """Mean of a figure, named as `gsm8k/correct`, with its interval or its standard error."""
    if estimate is None or estimate.mean is None:
        return _NOT_TOLD
    return measured_text(find_metric(f"test/{name}", {}), estimate.mean, estimate.stderr, estimate.n)


def difference_text(difference: PairedDifference) -> str:
    """A difference with its 95 % interval; ★ where that does not hold 0."""
    if difference.mean is None:
        return _NOT_TOLD
    if difference.interval is None:
        return f"{difference.mean:+.4f} (n {difference.n:,})"
    low, high = difference.interval
    return f"{difference.mean:+.4f} [{low:+.4f}, {high:+.4f}] (n {difference.n:,}){' ★' if difference.is_clear else ''}"


def paired_page(paired: PairedTable, *, links: Sequence[str], title: str) -> str:
    """One self-contained page; `links` are the addresses of the models' own reports."""
    return document("paired.html", title=title, paired=paired, links=list(zip(paired.models, links, strict=True)))

"""A measured value with its error, as a person reads it: the 95% interval of a share, the standard error of a mean."""

import math
from typing import Final

from cookhouse.errors import InputError
from cookhouse.telemetry.metric import Metric, as_float, number

Z95: Final = 1.959963984540054
"""Quantile of the normal distribution that leaves 2.5 % above."""
ERRORS_IN_WORDS: Final = "a range is the 95% interval of a share (Wilson), ± one standard error of a mean"
"""Legend of values, for the foot of a table."""
_MAX_DIGITS: Final = 3
_WIDE: Final = 0.025
"""Half a width of an interval from which on a share is written without decimals."""


def wilson_interval(successes: float, n: float) -> tuple[float, float]:
    """Interval in which a share lies with 95 % confidence, given `successes` of `n`, ties counted as halves: Wilson's
    score interval (https://doi.org/10.1080/01621459.1927.10502953), which stays within [0, 1] and has a width at 0 and
    1.

    Raises:
        InputError: `n` is below 1, or `successes` are not among them.
    """
    if n < 1 or not 0 <= successes <= n:
        raise InputError(f"{successes:g} of {n:g} is no share; there must be at least one case, and no more successes")
    share, spread = successes / n, Z95**2 / n
    center = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    return max(0.0, center - half), min(1.0, center + half)


def measured_text(metric: Metric, value: float | None, stderr: float | None = None, n: float | None = None) -> str:
    """A value with its error: `100%, 54 to 100%, of 6`; `0.663 ± 0.114, of 16`; `2.5, all 8 equal`."""
    return "".join(measured_parts(metric, value, stderr, n))


def measured_parts(
    metric: Metric, value: float | None, stderr: float | None = None, n: float | None = None
) -> tuple[str, str]:
    """The value, and what follows it: the 95% interval of a share of `n` items, else ± the standard error. Digits are
    those that the error leaves, three at most.
    """
    if value is None or not math.isfinite(as_float(value)):
        return metric.text(value), ""
    count = "" if not n else f", of {n:,.0f}"
    if metric.is_share and 0 <= value <= 1 and n:
        value_text, interval = _share_parts(value, *wilson_interval(*_cases(value, stderr, n)))
        return value_text, f"{interval}{count}"
    if stderr is None or not math.isfinite(stderr):
        return metric.text(value), count
    if stderr == 0:
        return metric.text(value), f", all {n:,.0f} equal" if n else ", all equal"
    in_percent = metric.is_share and abs(value) <= 1
    unit, factor = ("%", 100.0) if in_percent else ("", 1.0)
    value_text, error_text = _rounded(value * factor, stderr * factor)
    return f"{value_text}{unit}", f" ± {error_text}{unit}{count}"


def error_text(metric: Metric, stderr: float) -> str:
    """A standard error by itself, to two digits; of a share in percent."""
    return f"{stderr * 100:.2g}%" if metric.is_share else number(float(f"{stderr:.2g}"))


def _cases(value: float, stderr: float | None, n: float) -> tuple[float, float]:
    """Successes among as many independent cases as `n` items are worth: fewer, where items of a group go together,
    which the standard error shows.
    """
    worth = n if not stderr else max(1.0, min(n, 1 + value * (1 - value) / stderr**2))
    return value * worth, worth


def _share_parts(value: float, low: float, high: float) -> tuple[str, str]:
    decimals = 0 if (high - low) / 2 >= _WIDE else 1
    shown, least, most = (f"{100 * each + 0.0:.{decimals}f}" for each in (value, low, high))
    return f"{shown}%", f", {least} to {most}%"


def _rounded(value: float, stderr: float) -> tuple[str, str]:
    """Both with the decimals of the error's second digit, or with fewer, so that the value has three digits."""
    of_error = 1 - math.floor(math.log10(stderr))
    of_value = _MAX_DIGITS - 1 - math.floor(math.log10(max(abs(value), stderr)))
    decimals = max(0, min(of_error, of_value))
    error = f"{stderr:,.{decimals}f}"
    return f"{value + 0.0:,.{decimals}f}", error if float(error.replace(",", "")) else f"{stderr:.1g}"

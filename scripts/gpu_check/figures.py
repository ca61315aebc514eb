"""What a stage found, as it goes from its process to the results: a line of its log that begins with `figures: `."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BEGINNING = "figures: "
_SUMMARY = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s")
_COUNT = re.compile(r"(\d+) ([a-z]+)")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?: - (.*))?$")


def show(figures: Mapping[str, Any]) -> None:
    """Print them for the results, as a stage that is ended later has then at least these."""
    print(_BEGINNING + json.dumps(dict(figures)), flush=True)


def read_log(log: Path) -> dict[str, Any]:
    """Figures by name; of tests their numbers by outcome (`tests`), and the failed ones with what they said."""
    figures: dict[str, Any] = {}
    counts: dict[str, int] = {}
    failed: dict[str, str] = {}
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(_BEGINNING):
                figures |= _numbers(line.removeprefix(_BEGINNING))
            elif match := _SUMMARY.match(line):
                for count, outcome in _COUNT.findall(match[1]):
                    counts[outcome] = counts.get(outcome, 0) + int(count)
            elif match := _FAILED.match(line.rstrip()):
                failed[match[1]] = (match[2] or "")[:120]
    if counts:
        figures["tests"] = counts
    if failed:
        figures["failed"] = failed
    return figures


def read_record(record: Path) -> dict[str, Any]:
    """Figures of a benchmark's record; names of those with another way to compute begin with it."""
    found = json.loads(record.read_text(encoding="utf-8"))
    beginning = f"{found['trials']}:" if found.get("trials") else ""
    return {beginning + name: value for name, value in found["figures"].items()}


def shown(value: object) -> str:
    """A figure in few characters."""
    return f"{value:.4g}" if isinstance(value, float) and math.isfinite(value) else str(value)


def _numbers(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:  # a line that was cut off
        return {}
    return found if isinstance(found, dict) else {}

"""The results as a table that fits a screen or two."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.gpu_check.figures import shown

MOST_LINES = 100
_WIDTH = 118


def table(results: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> str:
    """A line for each stage, then its figures; with many stages less of each."""
    lines = [f"{'stage':14} {'status':13} {'seconds':>9} {'limit':>6}"]
    lines += [line for note in notes for line in _wrapped(note, 2)]
    spare = MOST_LINES - len(lines) - 1
    most = max(1, spare // max(1, len(results)) - 1)
    for result in results:
        name = f"{result['number']:2} {result['name']}"
        lines.append(f"{name:14} {result['status']:13} {result['seconds']:9.1f} {result['limit']:6.0f}")
        lines += _wrapped(_told(result), most)
    return "\n".join(lines[:MOST_LINES])


def _told(result: Mapping[str, Any]) -> str:
    figures = dict(result["figures"])
    told = []
    if result["status"] != "passed":
        told.append(str(result["why"]))
    for name, count in figures.pop("tests", {}).items():
        told.append(f"{count} {name}")
    if failed := figures.pop("failed", {}):
        told.append("failed: " + " ".join(name.partition("::")[2] or name for name in failed))
    told += [f"{name} {_one(value)}" for name, value in figures.items() if value not in ({}, [], "")]
    return "; ".join(each for each in told if each)


def _one(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_one(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(_one(each) for each in value)
    return shown(value)


def _wrapped(text: str, most: int) -> list[str]:
    lines = textwrap.wrap(text, _WIDTH, initial_indent="   ", subsequent_indent="   ", break_long_words=True)
    if len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1][: _WIDTH - 24] + " ... (results.jsonl)"]
    return lines

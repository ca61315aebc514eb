"""Exceptions that cookhouse raises, and who is to blame for each.

    CookhouseError
    ├── InputError             the caller's: a file, flag, config value or request that is unusable (a ValueError)
    │   ├── BadRowsError       rows of a data set
    │   ├── NoServiceError     a run that has nothing to train or sample with
    │   └── UnknownNameError   a name that is not in the set it was looked up in
    └── ServiceError           the training service's: it failed, or could not be reached

The command line ends with exit code 2 on an `InputError` and 1 on any other; the server answers the first with blame
`user` and anything else with blame `server`.
"""

import difflib
import os
import re
import sysconfig
import traceback
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

_MAX_SHOWN = 12


class CookhouseError(Exception):
    """Base of every exception that cookhouse raises on purpose."""


class InputError(CookhouseError, ValueError):
    """Something the caller gave cannot be used; the message names it, what is allowed, and the way out.

    A way out that many rows have in common stands apart, and is then told once for all of them.
    """

    def __init__(self, reason: object = "", *, way_out: str = "") -> None:
        super().__init__(f"{reason}; {way_out}" if way_out else str(reason))
        self.reason = str(reason)
        self.way_out = way_out

    def at(self, place: str) -> "InputError":
        """The same, of what stands at a place."""
        return InputError(f"{place}: {self.reason}", way_out=self.way_out)


class UnknownNameError(InputError):
    """A name is not in the set it was looked up in; the message lists near matches, or the whole set if it is short.

    `likely` are those of a long set that are named where none is near. `way_out` says how the set comes to have others.
    """

    def __init__(
        self, kind: str, name: str, allowed: Iterable[str], *, likely: Sequence[str] = (), way_out: str = ""
    ) -> None:
        names = sorted(set(allowed))
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        if near:
            hint = f"did you mean {' or '.join(near)}?"
        elif not names:
            hint = "none is defined"
        else:
            shown = (likely or names)[:_MAX_SHOWN]
            more = len(names) - len(shown)
            hint = f"allowed: {', '.join(shown)}" + (f" and {more} more" if more > 0 else "")
        super().__init__(f"unknown {kind} {name!r}; {hint}" + (f"; {way_out}" if way_out else ""))
        self.name = name
        self.near = near


class BadRowsError(InputError):
    """Rows of a data set cannot be used; `reasons`, each of one row that it names, are the first of `num_bad`.

    The message has a line for each reason, with its rows, and for each way out; of one row it is the reason itself.
    """

    def __init__(self, refused: Sequence[InputError], num_bad: int) -> None:
        self.reasons = [" ".join(error.reason.split()) for error in refused]
        self.num_bad = num_bad
        more = num_bad - len(refused)
        ways_out = dict.fromkeys(" ".join(error.way_out.split()) for error in refused if error.way_out)
        lines = [
            f"{num_bad:,} rows cannot be used",
            *by_reason(self.reasons),
            *([f"and {more:,} more"] if more else []),
            *ways_out,
        ]
        super().__init__("\n  ".join(lines) if num_bad > 1 else " ".join(str(refused[0]).split()))


class NoServiceError(InputError):
    """No service is named, and the engine is not installed; the message has a line for each way on."""


def with_article(noun: str) -> str:
    """A noun with `a` or `an` before it, by its first sound as far as its letters tell."""
    is_vowel = noun[:1].lower() in "aeiou" and not noun.lower().startswith(("eu", "one", "uni", "use", "uu"))
    return f"{'an' if is_vowel else 'a'} {noun}"


def by_reason(reasons: Sequence[str]) -> list[str]:
    """Reasons that begin with a place, as in `rows.jsonl:3: not JSON`; those of one file that say the same as one."""
    numbers: dict[tuple[str, str], list[int]] = {}
    lines: dict[tuple[str, str], str] = {}
    for reason in reasons:
        place, _, what = reason.partition(": ")
        numbered = re.fullmatch(r"(.*?)(\d+)", place, re.DOTALL)
        file, number = (numbered[1], int(numbered[2])) if numbered is not None else (place, None)
        some = numbers.setdefault((file, what), [])
        some += [] if number is None else [number]
        lines[file, what] = f"{file}{_ranges(some)}: {what}" if some else reason
    return [*lines.values()]


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in their order, as in `1-3, 7`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    return ", ".join("-".join(map(str, ends)) for ends in ranges)


class ServiceError(CookhouseError):
    """The training service failed or could not be reached; the cause is chained."""


def where_raised(error: BaseException) -> str:
    """File and line of an exception: the last that are no library's, if there are any."""
    frames = traceback.extract_tb(error.__traceback__)
    libraries = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))
    own = [frame for frame in frames if not frame.filename.startswith((*libraries, "<"))]
    last = (own or frames)[-1]
    return f"{shown_path(last.filename)}, line {last.lineno}"


def shown_path(filename: str) -> Path:
    """The path of a file for people: below the present folder where it is there."""
    path = Path(filename)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def printable(text: str, *, keep: str = "") -> str:
    r"""Text in which what moves the cursor, rings the bell or turns the direction of writing is spelled out as `\x1b`.

    `keep` are characters to leave as they are, such as the line break.
    """
    return "".join(
        c if c.isprintable() or c in keep or unicodedata.category(c) == "Zs" else repr(c)[1:-1] for c in text
    )

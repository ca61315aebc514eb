"""Tables of plain text: whole where they go to a file or a pipe, on a terminal as wide as that is."""

from collections.abc import Sequence
from datetime import datetime

from rich.cells import cell_len, set_cell_size

from cookhouse.errors import printable

_GAP = 2
_LEAST_CELLS = 16
"""Of a column that is cut."""


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, cells below each other, and never wrapped, so that a path can be copied."""
    sizes = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return [(" " * _GAP).join(map(_padded, row, sizes)).rstrip() for row in rows]


def when(seconds: float) -> str:
    """A time in seconds since 1970 as the clock here shows it."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


def fitted(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None,
    *,
    cut: str,
    spare: Sequence[str],
    dear: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """Lines of a table of at most `width` cells, its header first, and the names of the columns that had no room.

    Columns in `spare` are left out, the first of them first, until the others fit. If that is not enough, what is in
    the one called `cut` loses its middle; and if that is not enough, columns in `dear` are left out as well.
    """
    columns = {name: [printable(cell) for cell in cells] for name, *cells in zip(header, *rows, strict=True)}
    whole = _cells(cut, columns[cut])
    least = min(whole, _LEAST_CELLS)
    left_out: list[str] = []
    if width is not None:
        for name, cells in [*((name, whole) for name in spare), *((name, least) for name in dear)]:
            if _width(columns) - whole + cells > width:
                del columns[name]
                left_out.append(name)
        room = max(least, whole - max(0, _width(columns) - width))
        columns[cut] = [shortened(cell, room) for cell in columns[cut]]
    return aligned([list(columns), *zip(*columns.values(), strict=True)]), left_out


def side_by_side(header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Lines of a table of at most `width` cells, or, where it is wider, of one block for each row."""
    lines, _ = fitted(header, rows, None, cut=header[0], spare=())
    if width is None or max(map(cell_len, lines)) <= width:
        return lines
    names = [printable(name) for name in header[1:]]
    size = max(map(cell_len, names))
    if size > width // 2:
        labels = [f"  {name}\n   " for name in names]
    else:
        labels = [f"  {_padded(name, size)} " for name in names]
    return [f"{printable(header[0])}:", *(line for row in rows for line in _block(row, labels))]


def _block(row: Sequence[str], labels: Sequence[str]) -> list[str]:
    first, *values = map(printable, row)
    return [first, *(f"{label} {value}" for label, value in zip(labels, values, strict=True))]


def shortened(text: str, cells: int) -> str:
    """Text that loses its middle, where its beginning and its end tell more."""
    if cell_len(text) <= cells:
        return text
    end = (cells - 1) // 2
    return set_cell_size(text, cells - 1 - end).rstrip() + "…" + _last_cells(text, end)


def _last_cells(text: str, cells: int) -> str:
    """The end of a text, of characters that may be two cells wide."""
    start = len(text)
    while start and cell_len(text[start - 1 :]) <= cells:
        start -= 1
    return text[start:]


def _padded(text: str, cells: int) -> str:
    return text + " " * (cells - cell_len(text))


def _width(columns: dict[str, list[str]]) -> int:
    sizes = [_cells(name, cells) for name, cells in columns.items()]
    return sum(sizes) + _GAP * (len(sizes) - 1)


def _cells(name: str, cells: Sequence[str]) -> int:
    return max(map(cell_len, (name, *cells)))

"""Check that the quotes of a CSV file can be read in one way alone."""

from collections.abc import Sequence

from cookhouse.errors import InputError


class Quotes:
    """Sees every record that has quotes.

    A cell between quotes may hold line breaks. Where each of its lines would also be a record by itself, the quotes may
    just as well be letters, as in `5" pipe`: one at the beginning of a cell then takes in all lines up to the next one.
    Such a cell is taken as it stands where others show that the file quotes what it has to, and no lone one is there.
    """

    def __init__(self, name: str, delimiter: str, num_cells: int) -> None:
        self._name, self._delimiter, self._num_cells = name, delimiter, num_cells
        self._lone: int | None = None
        """The first line with a quote that quotes nothing."""
        self._doubtful: tuple[int, int, int] | None = None
        """The first record that may be several: its line, how many it takes, and the most that any such one takes."""
        self._quotes_well = False

    def see(self, cells: Sequence[str], lines: Sequence[str], first_line: int) -> None:
        """One record: its cells, and the lines that it was read from."""
        written = sum(line.count('"') for line in lines)
        kept = sum(cell.count('"') for cell in cells)
        if written % 2 or (written and written == kept):
            self._lone = self._lone or first_line
        elif len(lines) == 1 or not self._are_records(lines):
            # What is left of the quotes where cells are quoted: those that were doubled, once.
            self._quotes_well |= len(lines) == 1 or self._num_cells > 1
        if len(lines) > 1 and self._are_records(lines):
            line, taken, most = self._doubtful or (first_line, len(lines), 0)
            self._doubtful = (line, taken, max(most, len(lines)))

    def check(self) -> None:
        """Raises `InputError` if records could be told apart in two ways, with the line."""
        if self._doubtful is None:
            return
        line, taken, most = self._doubtful
        is_plain = most > 2 and self._num_cells > 1 and not self._quotes_well
        if self._lone is None and not is_plain:
            return
        lone = f", and line {self._lone:,} has a quote that quotes nothing" if self._lone is not None else ""
        raise InputError(
            f"{self._name}: line {line:,} can be read in two ways: its quotes make one record of {taken:,} lines, each "
            f"of which is one without them{lone}; put every cell that holds a quote between quotes and double it "
            "there, or save the rows as JSON Lines"
        )

    def _are_records(self, lines: Sequence[str]) -> bool:
        return all(line.strip("\r\n") and line.count(self._delimiter) == self._num_cells - 1 for line in lines)

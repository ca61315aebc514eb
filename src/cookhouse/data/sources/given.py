"""Rows given from Python in place of a name."""

from collections.abc import Iterable, Mapping, Sized

from cookhouse.data.sources.registry import RowsFunction
from cookhouse.errors import InputError, with_article

_WAY_OUT = "give a list of rows, a function that returns or yields them, or a text that names a data set"


class GivenRows(str):
    """The value of a setting that names data, for rows given from Python: it carries them, and as a text, which is what
    a run records, it says what was given, as in `<list of 3 rows>`.
    """

    make: RowsFunction

    @classmethod
    def of(cls, given: object) -> "GivenRows":
        """Rows that can be gone through again, or a function of no arguments that gives them.

        Raises:
            InputError: it is neither.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, Iterable) and not isinstance(given, Mapping | str | bytes):
            if iter(given) is given:
                raise InputError(f"{with_article(type(given).__name__)} gives its rows only once; {_WAY_OUT}")
            count = f"{len(given)} " if isinstance(given, Sized) else ""
            made = cls(f"<{type(given).__name__} of {count}rows>")
            made.make = lambda: given
        elif callable(given):
            made = cls(f"<function {getattr(given, '__qualname__', type(given).__name__)}>")
            made.make = given
        else:
            raise InputError(f"{with_article(type(given).__name__)} is no data set; {_WAY_OUT}")
        return made


def check_is_here(text: str) -> None:
    """Raises `InputError` if a text is all that is left of rows that were given."""
    if text.startswith("<") and text.endswith(">"):
        raise InputError(f"{text} were rows given from Python, which no file holds; give them again from there")

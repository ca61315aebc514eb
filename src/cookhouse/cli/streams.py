"""The standard streams of a process that was started with one of them closed, as by `cookhouse ... <&-`."""

import os
import sys

_NAMES = ("stdin", "stdout", "stderr")


def open_closed_streams() -> None:
    """Open the null device in the place of each: a file of ours would else have its number, and be written to."""
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False, encoding="utf-8"))  # noqa: SIM115

"""The runs that a page is about: those of a folder, found by name, and in a line each."""

from collections.abc import Sequence
from pathlib import Path

from cookhouse.errors import UnknownNameError
from cookhouse.runs.listing.find import FoundRun, find_runs
from cookhouse.runs.listing.overview import RunOverview, overviews_of


class Place:
    """A folder of runs. Its methods read files: call them where blocking is allowed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def runs(self) -> Sequence[FoundRun]:
        """The oldest first, each before its children."""
        return find_runs(self.folder)

    def run(self, name: str) -> FoundRun:
        """The run of exactly this name. A name is compared with those found, and never made a path.

        Raises:
            UnknownNameError: there is none.
        """
        runs = {run.name: run for run in self.runs()}
        if name not in runs:
            raise UnknownNameError(
                "run", name, runs, way_out="it may have been deleted; the list has all that are there"
            )
        return runs[name]

    def overviews(self) -> Sequence[RunOverview]:
        """A line for each run: the newest first, each before its children."""
        return overviews_of(self.runs())

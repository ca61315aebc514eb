"""Every store of data sets keeps the contract, and a broken one is caught, promise by promise."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.data.hub import write_set

from cookhouse.data import DatasetStore, HubSplit, NoopDatasetStore, RawRow, Rows
from cookhouse.data.sources.hub import HubDatasetStore
from cookhouse.data.sources.tables import ListRows
from cookhouse.errors import InputError
from cookhouse.testing import DatasetStoreContract, failures_of

ROWS = [{"prompt": str(number), "completion": "a"} for number in range(300)]


class TestNoop(DatasetStoreContract):
    unknown = None

    def make(self) -> DatasetStore:
        return NoopDatasetStore()


class TestMirror(DatasetStoreContract):
    known = HubSplit(name="owner/name", split="train", configs=("easy", "hard"))

    def make(self) -> DatasetStore:
        mirror = Path(tempfile.mkdtemp(prefix="cookhouse-mirror-"))
        write_set(mirror / "owner" / "name", {"easy": {"train": ROWS}, "hard": {"train": ROWS[:3]}})
        return HubDatasetStore(mirror=mirror)


class TestPrepared(TestMirror):
    """Of files that the library `datasets` has to prepare."""

    def make(self) -> DatasetStore:
        mirror = Path(tempfile.mkdtemp(prefix="cookhouse-mirror-"))
        configs = {"easy": {"train": ROWS}, "hard": {"train": ROWS[:3]}}
        write_set(mirror / "owner" / "name", configs, form="jsonl.gz")
        return HubDatasetStore(mirror=mirror)


class Broken:
    """A store that keeps the contract but for what `change` does to its rows."""

    synthetic = False

    def __init__(self, change: Callable[[Rows], Rows] = lambda rows: rows, *, has_all: bool = False) -> None:
        self._change, self._has_all = change, has_all

    def open(self, split: HubSplit) -> Rows:
        if not self._has_all and (split.name, split.split) != ("owner/name", "train"):
            raise InputError(f"there is no {split}")
        return self._change(ListRows(ROWS, str(split), num_bytes=9))


class Changed(ListRows):
    """Rows of which `read` gives others each time."""

    def __init__(self, change: Callable[[Sequence[RawRow], int], Sequence[RawRow]]) -> None:
        super().__init__(ROWS, "rows", num_bytes=9)
        self._change, self._num_read = change, 0

    def read(self, block: int) -> Sequence[RawRow]:
        self._num_read += 1
        return self._change(super().read(block), self._num_read)


def failures(store: DatasetStore) -> set[str]:
    class Suite(DatasetStoreContract):
        def make(self) -> DatasetStore:
            return store

    return {name.removeprefix("test_") for name in failures_of(Suite())}


def test_a_store_that_keeps_it_has_no_failures() -> None:
    assert failures(Broken()) == set()


@pytest.mark.parametrize(
    ("store", "broken"),
    [
        (Broken(lambda _: Changed(lambda rows, _: rows[:-1])), "a_block_has_as_many_rows_as_it_says"),
        (
            Broken(lambda _: Changed(lambda rows, n: [replace(rows[0], content={"n": n}), *rows[1:]])),
            "a_block_does_not_hang_on_those_read_before",
        ),
        (
            Broken(lambda _: Changed(lambda rows, _: [replace(row, place="here") for row in rows])),
            "rows_are_objects_with_places_of_their_own",
        ),
        (Broken(lambda _: ListRows(["text"], "rows", num_bytes=9)), "rows_are_objects_with_places_of_their_own"),
        (Broken(lambda _: ListRows(ROWS, "rows")), "the_size_is_said"),
        (Broken(has_all=True), "a_split_that_is_not_there_is_refused_by_name"),
        (Broken(has_all=True), "a_set_that_is_not_there_is_refused_by_name"),
        (
            Broken(lambda _: ListRows([{**row, "synthetic": True} for row in ROWS], "rows", num_bytes=9)),
            "what_is_made_up_is_marked",
        ),
    ],
)
def test_a_broken_store_is_caught(store: DatasetStore, broken: str) -> None:
    assert broken in failures(store)


def test_a_store_that_draws_its_rows_anew_is_caught() -> None:
    drawn = iter(range(10**6))
    store = Broken(lambda _: ListRows([{"n": next(drawn)}], "rows", num_bytes=9))
    assert failures(store) == {"the_same_split_has_the_same_rows_in_the_same_order"}

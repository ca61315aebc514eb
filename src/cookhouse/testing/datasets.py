"""Suite that every store of data sets passes."""

from collections.abc import Mapping

from cookhouse.data import DatasetStore, HubSplit, Rows
from cookhouse.errors import InputError, with_article
from cookhouse.testing.contract import Contract, require


class DatasetStoreContract(Contract[DatasetStore]):
    """A subclass names a store, and a split that it has."""

    known = HubSplit(name="owner/name", split="train")
    """A split with rows."""
    unknown: HubSplit | None = HubSplit(name="nobody/has-no-such-set", split="train")
    """One of a set that the store has not; None where it has every set."""

    def test_a_block_has_as_many_rows_as_it_says(self) -> None:
        rows = self.make().open(self.known)
        require(sum(rows.block_rows) > 0, f"{self.known} must have rows, and has none")
        for block, count in enumerate(rows.block_rows):
            read = len(rows.read(block))
            require(read == count, f"a block must have the rows it says; block {block} says {count} and has {read}")

    def test_the_same_split_has_the_same_rows_in_the_same_order(self) -> None:
        store = self.make()
        first, again, other = (_all(made.open(self.known)) for made in (store, store, self.make()))
        require(first == again, "a split must have the same rows each time that it is opened; they differ")
        require(first == other, "a split must have the same rows for every store of its kind; they differ")

    def test_a_block_does_not_hang_on_those_read_before(self) -> None:
        rows = self.make().open(self.known)
        blocks = range(len(rows.block_rows))
        forward = [[row.value() for row in rows.read(block)] for block in blocks]
        backward = [[row.value() for row in rows.read(block)] for block in reversed(blocks)][::-1]
        require(forward == backward, "blocks must be readable in any order; read backwards, their rows differ")

    def test_rows_are_objects_with_places_of_their_own(self) -> None:
        rows = self.make().open(self.known)
        read = [row for block in range(len(rows.block_rows)) for row in rows.read(block)]
        for row in read:
            value = row.value()
            kind = with_article(type(value).__name__)
            require(isinstance(value, Mapping), f"a row must be a mapping; {row.place} is {kind}")
        places = {row.place for row in read}
        require(len(places) == len(read), f"places must tell rows apart; {len(read)} rows have {len(places)} of them")

    def test_the_size_is_said(self) -> None:
        num_bytes = self.make().open(self.known).num_bytes
        require(num_bytes > 0, f"num_bytes decides whether a set is read as a whole; it is {num_bytes}")

    def test_a_split_that_is_not_there_is_refused_by_name(self) -> None:
        _refused(self.make(), HubSplit(name=self.known.name, split="no_such_split", configs=self.known.configs))

    def test_a_set_that_is_not_there_is_refused_by_name(self) -> None:
        if self.unknown is not None:
            _refused(self.make(), self.unknown)

    def test_what_is_made_up_is_marked(self) -> None:
        store = self.make()
        rows = store.open(self.known)
        marked = [
            isinstance(value, Mapping) and value.get("synthetic") is True
            for block in range(len(rows.block_rows))
            for value in (row.value() for row in rows.read(block))
        ]
        require(
            all(marked) if store.synthetic else not any(marked),
            "`synthetic` must stand on all rows of a store that makes them up, and on none of any other; it says "
            f"synthetic={store.synthetic}, and {sum(marked)} of {len(marked)} rows have it",
        )


def _all(rows: Rows) -> list[object]:
    return [row.value() for block in range(len(rows.block_rows)) for row in rows.read(block)]


def _refused(store: DatasetStore, split: HubSplit) -> None:
    try:
        store.open(split)
    except InputError as error:
        named = split.split if split.split == "no_such_split" else split.name
        require(named in str(error), f"the refusal must name {named}; it says: {error}")
        return
    require(False, f"{split} is not there and must be refused with InputError; it was opened")

"""Rows of the user's, as several workflows read them: their sources, and how long an example may be."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from cookhouse.assets import data_file
from cookhouse.data import (
    DataSource,
    FileSource,
    HeldOut,
    JoinedRows,
    MessageRows,
    NamedSource,
    Rows,
    SelectedRows,
    data_sources,
    held_out_prompts,
    held_out_source,
    num_rows,
    parse_columns,
    parse_delimiter,
    prompt_key,
)
from cookhouse.data.rows.held_out import Prompted
from cookhouse.errors import InputError
from cookhouse.settings import RowSettings
from cookhouse.settings.rows import BUNDLED
from cookhouse.telemetry import ResultNote

R = TypeVar("R", bound=Prompted)


@dataclass(frozen=True, kw_only=True)
class SplitRows(Generic[R]):
    """Rows that a run trains on, and those that it is measured by."""

    train: Sequence[R]
    test: Sequence[R]
    """Empty: nothing is evaluated."""
    notes: Sequence[str]


def check_preferences(source: DataSource) -> None:
    """Raises `InputError` for a known data set of another kind."""
    known = source.known if isinstance(source, NamedSource) else None
    if known is not None and known.kind != "preferences":
        raise InputError(f"{source} holds {known.kind}, and this run needs preferences; give a set such as hh")


def split_rows(
    config: RowSettings, rows: Mapping[str, Sequence[R]], *, seed: int, kind_of: Callable[[R], object] = lambda _: None
) -> SplitRows[R]:
    """Rows by the names of `sources_of`, apart: those to train on have no held-out row's prompt. What `eval_fraction`
    holds out is drawn from each kind of rows.

    Raises:
        InputError: nothing is left to train on, or the rows have too few prompts.
    """
    train = [row for name, some in rows.items() if name.startswith("train") for row in some]
    test = [row for name, some in rows.items() if name.startswith("test") for row in some]
    if config.eval_fraction is not None:
        held_out = held_out_prompts(train, config.eval_fraction, seed, kind_of)
        test = [row for row in train if _asks(row, held_out)]
        return SplitRows(train=[row for row in train if not _asks(row, held_out)], test=test, notes=())
    asked = {prompt_key(prompt) for row in test for prompt in row.prompts}
    kept = [row for row in train if not _asks(row, asked)]
    notes = []
    if len(kept) < len(train):
        same = f"{len(train) - len(kept):,} rows have a held-out row's prompt, and are not trained on"
        notes.append(ResultNote(same))
    if not kept:
        raise InputError("no row is left to train on: there is none whose prompt is not held out, too")
    return SplitRows(train=kept, test=test, notes=notes)


def _asks(row: Prompted, keys: Collection[str]) -> bool:
    return any(prompt_key(prompt) in keys for prompt in row.prompts)


def split_off(rows: Rows, fraction: float | None, seed: int) -> tuple[Rows, Rows | None]:
    """Split rows into those to train on and those held out, which depend on the number of rows and the seed alone."""
    if fraction is None:
        return rows, None
    indices = HeldOut(fraction=fraction, seed=seed).indices(num_rows(rows))
    return SelectedRows(rows, indices, without=True), SelectedRows(rows, indices)


def joined(sets: Sequence[tuple[str, Rows]]) -> tuple[str, Rows]:
    """Sets that are gone through as one, with their names."""
    names, rows = zip(*sets, strict=True)
    return ", ".join(names), rows[0] if len(rows) == 1 else JoinedRows(rows)


def sources_of(config: RowSettings, bundled: str, messages: MessageRows | None = None) -> dict[str, DataSource]:
    """Data sets that a run reads, by use: `train`, `test`, and the second and further ones with a number. `bundled` is
    the folder of bundled data that is taken where none is named. `messages`: other rows are a message each.

    Raises:
        InputError: settings exclude one another, or there is no data set of a name.
    """
    if config.eval_fraction is not None and config.test_path is not None:
        raise InputError("eval_fraction and test_path both say what is held out; give one of them")
    own = {part: FileSource(path=data_file(f"{bundled}/{part}.jsonl")) for part in ("train", "test")}
    named = BUNDLED if config.dataset_path is None else config.dataset_path
    columns = parse_columns(config.columns)
    delimiter = None if config.delimiter is None else parse_delimiter(config.delimiter)
    read = partial(data_sources, columns=columns, messages=messages, delimiter=delimiter)
    train = read(named, limit=config.n_train_samples, also={BUNDLED: own["train"]})
    if not train:
        raise InputError("dataset_path names no data set; give a path, a hub id, or a data set by name")
    if config.eval_fraction is not None:
        test: Sequence[DataSource] = []
    elif config.test_path is not None:
        test = read(config.test_path, also={BUNDLED: own["test"]})
    else:
        is_own = [replace(source, limit=None, columns=()) == own["train"] for source in train]
        held_out = [
            own["test"] if own_one else held_out_source(each) for own_one, each in zip(is_own, train, strict=True)
        ]
        test = [source for source in held_out if source is not None]
    if columns and not any(source.columns for source in [*train, *test]):
        raise InputError(f"columns={config.columns} would change nothing: the rows are bundled ones; leave it out")
    if messages is not None and not any(source.messages for source in [*train, *test]):
        raise InputError(
            f"conversation={messages.conversation} would change nothing: the rows are bundled; leave it out"
        )
    files = [source for source in [*train, *test] if isinstance(source, FileSource)]
    if delimiter is not None and not any(source.is_csv for source in files):
        raise InputError(f"delimiter={config.delimiter} would change nothing: no file is CSV; leave it out")
    return {**_numbered("train", train), **_numbered("test", test)}


def recorded_sources(
    config: RowSettings, bundled: str, recorded: Mapping[str, DataSource], messages: MessageRows | None = None
) -> dict[str, DataSource]:
    """As `sources_of`, but those of the run directory where it has them: a function is then called once, and what is
    trained on is what the fingerprint is of.
    """
    return {name: recorded.get(name, source) for name, source in sources_of(config, bundled, messages).items()}


def kept_tokens(config: RowSettings, context_tokens: int | None) -> int:
    """Tokens that an example may have: as many as the config says, and the model takes."""
    return min(config.max_length, context_tokens or config.max_length)


def cut_notes(num_cut: int, num_all: int, what: str, config: RowSettings, context_tokens: int | None) -> list[str]:
    """A sentence on how many of them are truncated, and why; no sentence if none is."""
    if not num_cut:
        return []
    length = kept_tokens(config, context_tokens)
    reason = "max_length" if length == config.max_length else f"all that {config.model_name} takes"
    return [
        ResultNote(f"{num_cut:,} of {num_all:,} {what} are truncated: they are cut to {length:,} tokens ({reason})")
    ]


def _numbered(name: str, sources: Sequence[DataSource]) -> dict[str, DataSource]:
    return {name if number == 1 else f"{name} {number}": source for number, source in enumerate(sources, start=1)}

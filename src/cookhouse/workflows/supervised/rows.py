"""Rows of a supervised run, trained on and held out: read as a whole where they are few, else streamed."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

from cookhouse import algorithms as alg
from cookhouse.data import (
    BadRows,
    Conversation,
    DataSource,
    FileSource,
    JoinedRows,
    MessageRows,
    NamedSource,
    Rows,
    check_columns,
    conversation_of,
    conversations_of,
    is_empty_answer,
    iter_blocks,
    left_untrained,
    num_rows,
    parse_each,
    parse_train_on_what,
    parse_weights,
    sampled,
    speaker_columns,
    stream,
)
from cookhouse.errors import InputError
from cookhouse.settings import SupervisedSettings
from cookhouse.telemetry import ResultNote


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """One set to train on, or several that are gone through as one."""

    name: str
    rows: Rows
    conversations: Sequence[Conversation] | None
    """All of them; None: they are streamed."""


class StreamedConversations(Sequence[Conversation]):
    """The conversations of sets of which some are streamed. Who iterates over them reads everything, and who puts a
    list in their place has it trained on as a whole.
    """

    def __init__(self, parts: Sequence[TrainingRows]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(num_rows(p.rows) if p.conversations is None else len(p.conversations) for p in self._parts)

    def __iter__(self) -> Iterator[Conversation]:
        for part in self._parts:
            if part.conversations is not None:
                yield from part.conversations
            else:
                yield from (replace(conversation_of(row), dataset=part.name) for row in iter_blocks(part.rows))

    @overload
    def __getitem__(self, index: int) -> Conversation: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Conversation]: ...
    def __getitem__(self, index: int | slice) -> Conversation | Sequence[Conversation]:
        return [*self][index]


@dataclass(frozen=True, kw_only=True)
class RunData:
    """Data sets that a run reads. Where sets are mixed, there are as many `train` as `weights`."""

    train: Sequence[TrainingRows]
    weights: Sequence[float]
    test: Sequence[Conversation]
    """Chosen for evaluation; empty: nothing is evaluated."""
    num_held_out: int = 0
    """Rows that these were chosen from, none of which is trained on."""
    test_keys: frozenset[bytes] = frozenset()
    """Of what was split off the rows to train on: conversations with these keys are not trained on."""
    notes: Sequence[str] = field(default_factory=list)

    @property
    def conversations(self) -> Sequence[Conversation]:
        """All of those to train on: a list, unless some are streamed."""
        if any(part.conversations is None for part in self.train):
            return StreamedConversations(self.train)
        return [conversation for part in self.train for conversation in part.conversations or ()]

    def with_conversations(self, given: Sequence[Conversation]) -> "RunData":
        """The data with other conversations to train on, each in the set that it came from.

        Raises:
            InputError: one is of no set, or none is left of a set.
        """
        if isinstance(given, StreamedConversations):
            return self
        names = [part.name for part in self.train]
        if stray := next((c for c in given if len(names) > 1 and c.dataset not in names), None):
            raise InputError(f"{stray.source} is of no data set of {', '.join(names)}; keep `dataset` as it was read")
        chosen = [[c for c in given if len(names) == 1 or c.dataset == name] for name in names]
        if empty := next((name for name, some in zip(names, chosen, strict=True) if not some), None):
            raise InputError(f"{empty}: no conversation is left to train on")
        parts = zip(self.train, chosen, strict=True)
        return replace(self, train=[replace(part, conversations=some) for part, some in parts])

    def is_held_out(self, conversation: Conversation) -> bool:
        """True if it says what one of those says that were split off."""
        return bool(self.test_keys) and conversation_key(conversation) in self.test_keys


def messages_of(config: SupervisedSettings) -> MessageRows | None:
    """Columns of rows that are a message each. Raises `InputError` for settings that do not fit together."""
    return speaker_columns(config.conversation, config.turn, config.speakers)


def read_data(config: SupervisedSettings, sources: Mapping[str, DataSource]) -> RunData:
    """Open what `sources_of` names, and read what is small.

    Raises:
        InputError: something cannot be read, or holds nothing to train on.
        BadRowsError: rows of what was read cannot be used, and are not to be left out.
    """
    train = [source for name, source in sources.items() if name.startswith("train")]
    test = [source for name, source in sources.items() if name.startswith("test")]
    weights = parse_weights(config.dataset_weights, [str(source) for source in train], "dataset_weights")
    for source in train:
        _check_kind(source)
    bad = BadRows(config.on_bad_row)
    opened = [alg.split_off(source.rows, config.eval_fraction, config.seed) for source in train]
    held_out = [rows for _, rows in opened if rows is not None] + [source.rows for source in test]
    chosen = _choose(held_out, [str(source) for source in (test or train)], config, bad)
    skips = config.empty_answers == "skip"
    empty = [c for c in chosen if test and skips and _ends_empty(c)]
    chosen = [c for c in chosen if not (test and skips and _ends_empty(c))]
    unasked = [] if test else [c for c in chosen if c.text is None and not c.has_answer]
    chosen = [c for c in chosen if test or c.text is not None or c.has_answer]
    keys = frozenset(map(conversation_key, chosen)) if config.eval_fraction is not None else frozenset()
    sets = [(str(source), rows) for source, (rows, _) in zip(train, opened, strict=True)]
    if weights is None and len(sets) > 1:
        for name, rows in sets:
            check_columns(rows.columns, name)
        sets = [alg.joined(sets)]
    read = [_read(name, rows, bad) for name, rows in sets]
    found = RunData(
        train=read,
        weights=weights or [1.0] * len(read),
        test=chosen,
        num_held_out=sum(map(num_rows, held_out)),
        test_keys=keys,
    )
    data = replace(found, train=[_without(part, found.is_held_out) for part in read])
    notes = [*bad.notes, *_synthetic(sources)]
    if empty:
        notes.append(
            ResultNote(
                f"{len(empty):,} of {len(chosen) + len(empty):,} held-out conversations end in an empty answer, and "
                f"are not asked (empty_answers=skip); the first is {empty[0].source}"
            )
        )
    if unasked:
        notes.append(
            ResultNote(
                f"{len(unasked):,} of the conversations that eval_fraction holds out have no answer at their end, and "
                f"are not asked; the first is {unasked[0].source}"
            )
        )
    if num_same := len(found.conversations) - len(data.conversations):
        notes.append(ResultNote(f"{num_same:,} rows say what a held-out row says, and are not trained on"))
    return _without_empty(replace(data, notes=notes), config) if skips else replace(data, notes=notes)


def _without_empty(data: RunData, config: SupervisedSettings) -> RunData:
    """Data whose empty answers are neither trained on nor measured; of what is streamed, those held out."""
    mode = parse_train_on_what(config.train_on_what)
    train, notes = [], [*data.notes]
    for part in data.train:
        if part.conversations is not None:
            kept, remarks = left_untrained(part.conversations, mode)
            if not kept:
                raise InputError(
                    f"{part.name}: every answer is empty; nothing is left to train on (empty_answers=train trains on "
                    "their ends)"
                )
            notes += remarks
            part = replace(part, conversations=kept)
        train.append(part)
    return replace(data, train=train, test=left_untrained(data.test, mode)[0], notes=notes)


def conversation_key(conversation: Conversation) -> bytes:
    """A digest of what is said."""
    return hashlib.sha256(json.dumps(conversation.text or conversation.messages, sort_keys=True).encode()).digest()[:16]


def _check_kind(source: DataSource) -> None:
    known = source.known if isinstance(source, NamedSource) else None
    if known is not None and known.kind != "conversations":
        held = {"preferences": "preferences (chosen, rejected)", "problems": "problems without written answers"}
        raise InputError(
            f"{source} holds {held[known.kind]}, and supervised training needs conversations; give a set such as "
            "no_robots or tulu3"
        )


def _choose(
    sets: Sequence[Rows], names: Sequence[str], config: SupervisedSettings, bad: BadRows
) -> Sequence[Conversation]:
    """At most `num_eval` held-out conversations, evenly spaced through all of them."""
    if not sets or not config.num_eval:
        return []
    if sum(rows.num_bytes for rows in sets) <= stream.MAX_WHOLE_BYTES:
        held_out = [c for rows, name in zip(sets, names, strict=True) for c in conversations_of(rows, name, bad=bad)]
        count = min(config.num_eval, len(held_out))
        return [held_out[index * len(held_out) // count] for index in range(count)]
    return parse_each(sampled(JoinedRows(sets), config.num_eval), conversation_of, bad)


def _read(name: str, rows: Rows, bad: BadRows) -> TrainingRows:
    if rows.num_bytes > stream.MAX_WHOLE_BYTES:
        check_columns(rows.columns, name)
        return TrainingRows(name=name, rows=rows, conversations=None)
    conversations = [replace(c, dataset=name) for c in conversations_of(rows, name, bad=bad)]
    return TrainingRows(name=name, rows=rows, conversations=conversations)


def _without(part: TrainingRows, is_held_out: Callable[[Conversation], bool]) -> TrainingRows:
    if part.conversations is None:
        return part
    kept = [conversation for conversation in part.conversations if not is_held_out(conversation)]
    if not kept:
        raise InputError(f"{part.name}: every row says what a held-out row says; nothing is left to train on")
    return TrainingRows(name=part.name, rows=part.rows, conversations=kept)


def _ends_empty(conversation: Conversation) -> bool:
    return bool(conversation.messages) and is_empty_answer(conversation.messages[-1])


def _synthetic(sources: Mapping[str, DataSource]) -> list[str]:
    made_up = [
        str(source)
        for source in sources.values()
        if not isinstance(source, FileSource) and source.store is not None and source.store.synthetic
    ]
    return [f"synthetic: the rows of {', '.join(made_up)} are made up by the store of data sets"] if made_up else []

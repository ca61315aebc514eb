"""Texts of rollouts in lower case, to be searched: read and decoded once for a file, then kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cookhouse.errors import InputError
from cookhouse.runs.reading.rollouts import Rollout, RolloutIndex, read_group
from cookhouse.runs.reading.skeleton import read_text
from cookhouse.runs.reading.transcripts import read_tokens

END_TOKENS = 1024
"""Of the beginning and of the end of a rollout that are searched."""
LOG_CHARACTERS = 1000
"""Of each log."""

DecodeBatch: TypeAlias = Callable[[Sequence[Sequence[int]]], Sequence[str]]
"""Texts of sequences of tokens."""


@dataclass(frozen=True, kw_only=True)
class RolloutTexts:
    """The texts of the groups of an index, as far as it had come."""

    index: RolloutIndex
    of_group: Sequence[Sequence[str]] = ()
    """By place of the group in the index, of each of its rollouts."""
    num_cut: int = 0
    """Rollouts so long that their middle is not searched."""


def read_texts(index: RolloutIndex, decode: DecodeBatch | None, known: RolloutTexts | None = None) -> RolloutTexts:
    """The texts of all rollouts of an index: their tokens, if there is something to decode them, and their logs. With
    `known` only those of groups that it has not are read.
    """
    if known is not None and index.groups[: len(known.index.groups)] != known.index.groups:
        known = None
    if known is not None and len(index.groups) == len(known.index.groups):
        return known
    texts: list[Sequence[str]] = [] if known is None else [*known.of_group]
    num_cut = 0 if known is None else known.num_cut
    for facts in index.groups[len(texts) :]:
        try:
            rollouts = [] if facts.problem else read_group(index, facts.number).rollouts
            texts.append(_texts(rollouts, decode))
        except (InputError, OSError):  # that it cannot be read stands in its place on the page
            texts.append([""] * len(facts.rewards))
            continue
        num_cut += sum(rollout.num_tokens > 2 * END_TOKENS for rollout in rollouts)
    return RolloutTexts(index=index, of_group=texts, num_cut=num_cut)


def _texts(rollouts: Sequence[Rollout], decode: DecodeBatch | None) -> list[str]:
    decoded = [""] * len(rollouts) if decode is None else list(decode([_ends(rollout) for rollout in rollouts]))
    return ["\n".join([said, *_logs(rollout)]).lower() for said, rollout in zip(decoded, rollouts, strict=True)]


def _ends(rollout: Rollout) -> list[int]:
    """All tokens, or those at both ends."""
    if rollout.num_tokens <= 2 * END_TOKENS:
        return read_tokens(rollout, 0, rollout.num_tokens)
    return [
        *read_tokens(rollout, 0, END_TOKENS),
        *read_tokens(rollout, rollout.num_tokens - END_TOKENS, END_TOKENS),
    ]


def _logs(rollout: Rollout) -> list[str]:
    return [read_text(text, LOG_CHARACTERS)[0] for turn in rollout.turns for text in turn.logs.values()]

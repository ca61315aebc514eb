"""The tokens of a group side by side: what its rollouts share, and a range of what each says from there on."""

from collections.abc import Sequence
from dataclasses import dataclass

from cookhouse.errors import InputError
from cookhouse.runs.reading.rollouts import Rollout, RolloutSegment
from cookhouse.runs.reading.skeleton import read_numbers
from cookhouse.runs.reading.token_values import OfTurn, values_of

_BLOCK_TOKENS = 4096
_MAX_BLOCK_TOKENS = 1 << 17


@dataclass(frozen=True, kw_only=True)
class TokenValues:
    """Values of a rollout's sampled tokens besides the sampler's logprobs; empty: none."""

    advantages: Sequence[OfTurn] = ()
    """Of each turn."""
    trained: Sequence[OfTurn] = ()
    """The trainer's logprobs of each turn."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Neighboring tokens of one turn with their values; a value is None where a token has none."""

    turn: int
    is_sampled: bool
    start: int
    """Position of the first token in the rollout."""
    begins_turn: bool
    """Whether it is the first of its turn in the rollout, not only in what is shown."""
    tokens: Sequence[int]
    before: Sequence[int]
    """The token that stands before it, if one does."""
    logprobs: Sequence[float | None] | None = None
    advantages: Sequence[float | None] | None = None
    trained: Sequence[float | None] | None = None


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A segment in its rollout."""

    segment: RolloutSegment
    start: int
    begins_turn: bool

    @property
    def end(self) -> int:
        return self.start + self.segment.count


def shared_prefix(rollouts: Sequence[Rollout]) -> int:
    """Number of tokens with which all rollouts begin alike; 0 of fewer than two."""
    if len(rollouts) < 2:
        return 0
    longest = min(rollout.num_tokens for rollout in rollouts)
    start, count = 0, _BLOCK_TOKENS
    while start < longest:
        blocks = [read_tokens(rollout, start, min(count, longest - start)) for rollout in rollouts]
        if any(block != blocks[0] for block in blocks[1:]):
            alike = (len(set(tokens)) == 1 for tokens in zip(*blocks, strict=True))
            return start + next(index for index, is_alike in enumerate(alike) if not is_alike)
        # A block is found by counting from the beginning: few large ones, where much is alike.
        start, count = start + count, min(2 * count, _MAX_BLOCK_TOKENS)
    return longest


def read_tokens(rollout: Rollout, start: int, count: int) -> list[int]:
    """A range of the tokens of a rollout.

    Raises:
        InputError: some are no tokens.
    """
    end = start + count
    return [
        token
        for place in _places(rollout)
        if place.start < end and place.end > start
        for token in _ids(place, max(start, place.start), min(end, place.end))
    ]


def read_pieces(rollout: Rollout, start: int, count: int, values: TokenValues | None = None) -> list[Piece]:
    """A range of a rollout, a piece for each turn's observation and answer that it touches. Raises as `read_tokens`."""
    end = start + count
    pieces: list[Piece] = []
    before: Sequence[int] = read_tokens(rollout, start - 1, 1) if start else []
    for place in _places(rollout):
        if place.start < end and place.end > start:
            pieces.append(_piece(place, max(start, place.start), min(end, place.end), before, values))
            before = pieces[-1].tokens[-1:]
    return pieces


def turn_starts(rollout: Rollout) -> list[int]:
    """Position of the first token of each turn; that of what comes behind, of a turn without any."""
    found = {place.segment.turn: place.start for place in reversed(_places(rollout))}
    starts, position = [], rollout.num_tokens
    for turn in reversed(range(len(rollout.turns))):
        position = found.get(turn, position)
        starts.append(position)
    return starts[::-1]


def _places(rollout: Rollout) -> list[_Place]:
    places: list[_Place] = []
    position, turn = 0, -1
    for segment in rollout.segments:
        places.append(_Place(segment=segment, start=position, begins_turn=segment.turn != turn))
        position, turn = position + segment.count, segment.turn
    return places


def _piece(place: _Place, start: int, end: int, before: Sequence[int], values: TokenValues | None) -> Piece:
    segment = place.segment
    first, count = start - place.start, end - start
    return Piece(
        turn=segment.turn,
        is_sampled=segment.is_sampled,
        start=start,
        begins_turn=place.begins_turn and first == 0,
        tokens=_ids(place, start, end),
        before=before,
        logprobs=None if segment.logprobs is None else values_of(segment.logprobs, first, count),
        advantages=_of_turn(values.advantages, segment, first, count) if values else None,
        trained=_of_turn(values.trained, segment, first, count) if values else None,
    )


def _ids(place: _Place, start: int, end: int) -> list[int]:
    found = read_numbers(place.segment.tokens, start - place.start, end - start)
    if not all(isinstance(token, int) for token in found):
        raise InputError("the tokens of a rollout are not all whole numbers; its file was not written by a run")
    return found


def _of_turn(turns: Sequence[OfTurn], segment: RolloutSegment, first: int, count: int) -> list[float | None] | None:
    if not segment.is_sampled or segment.turn >= len(turns):
        return None
    return values_of(turns[segment.turn], first, count)

"""The page of rollouts, to read what a model was asked, what it said, and what it got for it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from cookhouse.errors import InputError
from cookhouse.pages import document
from cookhouse.report.last_message import last_message
from cookhouse.telemetry import Entry, after_step

if TYPE_CHECKING:
    from cookhouse.rl import GroupAdvantages, RolloutFailure, Trajectory, TrajectoryGroup  # loads the SDK

_CELL_CHARACTERS = 60
"""Of a question and of an answer in the table."""


class Decoder(Protocol):
    """The part of a tokenizer that reading needs."""

    def decode(self, token_ids: Sequence[int], *, clean_up_tokenization_spaces: bool) -> str | list[str]: ...


@dataclass(frozen=True, kw_only=True)
class _Turn:
    observation: str | None
    """None: it stands above all samples of the group."""
    action: str
    notes: Sequence[tuple[str, str]]
    entries: Sequence[Entry]


@dataclass(frozen=True, kw_only=True)
class _Sample:
    title: str
    anchor: str
    """Of its details on the page."""
    group: int
    member: int
    reward: float
    advantage: str
    num_turns: int
    stop_reason: str
    asked: str
    """The message that it was asked first."""
    answer: str
    """The end of what it said."""
    turns: Sequence[_Turn]
    notes: Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class _Group:
    title: str
    prompt: str | None
    """What every sample began with; None where they differ."""
    samples: Sequence[_Sample]
    failures: Sequence[str]
    entries: Sequence[Entry]


def rollouts_page(
    groups_P: "Sequence[TrajectoryGroup]",
    decoder: Decoder,
    *,
    title: str,
    advantages_P: "Sequence[GroupAdvantages | None] | None" = None,
) -> str:
    """One self-contained page: a table of the samples, which sorts and filters by reward, above what each said. Text is
    escaped, control characters are spelled out, and no script can run but the page's own.

    `advantages_P` holds what each group was trained with (`trained_advantages`), or None for one that was not; without
    it the page shows none. Of each turn it shows the mean over the tokens, and the range where they differ. An
    observation that extends what came before it shows what is new.

    Raises:
        InputError: advantages that do not match the groups.
    """
    chosen_P = [None] * len(groups_P) if advantages_P is None else advantages_P
    if len(chosen_P) != len(groups_P) or any(
        advantages_G is not None and len(advantages_G) != len(group.trajectories_G)
        for group, advantages_G in zip(groups_P, chosen_P, strict=True)
    ):
        raise InputError("advantages must be one sequence for each trajectory of each group")
    groups = [
        _group(index, group, decoder, advantages_G)
        for index, (group, advantages_G) in enumerate(zip(groups_P, chosen_P, strict=True))
    ]
    samples = [sample for group in groups for sample in group.samples]
    scripts = ["rollouts"] if samples else []
    return document("rollouts.html", scripts=scripts, title=title, groups=groups, samples=samples)


def _group(index: int, group: "TrajectoryGroup", decoder: Decoder, advantages_G: "GroupAdvantages | None") -> _Group:
    tags = f", {', '.join(group.tags)}" if group.tags else ""
    samples = [
        _sample(index, member, group, total_reward, decoder, () if advantages_G is None else advantages_G[member])
        for member, total_reward in enumerate(group.get_total_rewards())
    ]
    prompt = _shared_prompt(samples)
    return _Group(
        title=f"Group {index}{tags}, weights {after_step(group.version)}, {group.seconds:.2f} s",
        prompt=prompt,
        samples=samples if prompt is None else [_without_prompt(sample) for sample in samples],
        failures=[_failure(failure) for failure in group.failures],
        entries=group.entries,
    )


def _shared_prompt(samples: Sequence[_Sample]) -> str | None:
    prompts = {sample.turns[0].observation if sample.turns else None for sample in samples}
    return prompts.pop() if len(samples) > 1 and len(prompts) == 1 else None


def _without_prompt(sample: _Sample) -> _Sample:
    first, *others = sample.turns
    return replace(sample, turns=[replace(first, observation=None), *others])


def _end(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CELL_CHARACTERS else f"…{line[1 - _CELL_CHARACTERS :]}"


def _sample(
    index: int,
    member: int,
    group: "TrajectoryGroup",
    total_reward: float,
    decoder: Decoder,
    advantages_T: Sequence[Sequence[float]],
) -> _Sample:
    trajectory = group.trajectories_G[member]
    advantage = ", ".join(map(_advantage, advantages_T))
    figures = f"reward {total_reward:.4g}" + (f", advantage {advantage}" if advantage else "")
    turns = list(_turns(trajectory, decoder))
    return _Sample(
        title=f"Sample {member}: {figures}, {trajectory.stop_reason}",
        anchor=f"g{index}s{member}",
        group=index,
        member=member,
        reward=total_reward,
        advantage=advantage,
        num_turns=len(turns),
        stop_reason=trajectory.stop_reason,
        asked=_end(last_message(turns[0].observation or "")) if turns else "",
        answer=_end(turns[-1].action) if turns else "",
        turns=turns,
        notes=_notes(group.group_metrics_G[member]),
    )


def _advantage(tokens: Sequence[float]) -> str:
    low, high = min(tokens), max(tokens)
    if low == high:
        return f"{low:.4g}"
    return f"{sum(tokens) / len(tokens):.4g} ({low:.4g} to {high:.4g})"


def _turns(trajectory: "Trajectory", decoder: Decoder) -> Iterator[_Turn]:
    previous: list[int] = []
    for transition in trajectory.transitions:
        observation = transition.observation.to_ints()
        is_extended = observation[: len(previous)] == previous
        yield _Turn(
            observation=_decoded(decoder, observation[len(previous) if is_extended else 0 :]),
            action=_decoded(decoder, transition.action.tokens),
            notes=_notes({"reward": transition.reward, **transition.metrics, **transition.logs}),
            entries=transition.entries,
        )
        previous = [*observation, *transition.action.tokens]


def _failure(failure: "RolloutFailure") -> str:
    where = f"member {failure.member}, attempt {failure.attempt + 1}, {failure.origin}, {failure.outcome}"
    return f"{where}: {failure.reason}"


def _notes(values: Mapping[str, float | str]) -> list[tuple[str, str]]:
    return [(name, value if isinstance(value, str) else f"{value:.4g}") for name, value in values.items()]


def _decoded(decoder: Decoder, tokens: Sequence[int]) -> str:
    return str(decoder.decode(list(tokens), clean_up_tokenization_spaces=False))

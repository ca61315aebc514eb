"""An HTML page of rollouts, to read what a model was asked, what it said, and what it got for it."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Protocol

from cookhouse.errors import InputError
from cookhouse.printable import printable
from cookhouse.rl.assembly import GroupAdvantages
from cookhouse.rl.trajectory import RolloutFailure, Trajectory, TrajectoryGroup, Transition

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 14px/1.5 sans-serif; margin: 2rem auto; max-width: 72rem; color: #222; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; padding: .5rem; background: #f4f4f4; }}
pre.action {{ background: #e7f3e7; }} pre.failure {{ background: #f8e4e4; }}
section {{ border-top: 2px solid #888; margin-top: 2rem; }} details {{ margin: .5rem 0; }}
table {{ border-collapse: collapse; }} td, th {{ padding: 0 .8rem 0 0; text-align: left; vertical-align: top; }}
</style></head><body>
<h1>{title}</h1>
"""


class Decoder(Protocol):
    """The part of a tokenizer that reading needs."""

    def decode(self, token_ids: Sequence[int], *, clean_up_tokenization_spaces: bool) -> str | list[str]: ...


def groups_to_html(
    groups_P: Sequence[TrajectoryGroup],
    decoder: Decoder,
    *,
    title: str,
    advantages_P: Sequence[GroupAdvantages | None] | None = None,
) -> str:
    """One self-contained page; all text is escaped, control characters are spelled out, and no script can run.

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
    sections = [
        _group(index, group, decoder, advantages_G)
        for index, (group, advantages_G) in enumerate(zip(groups_P, chosen_P, strict=True))
    ]
    return _HEAD.format(title=_text(title)) + "\n".join(sections) + "\n</body></html>\n"


def _group(index: int, group: TrajectoryGroup, decoder: Decoder, advantages_G: GroupAdvantages | None) -> str:
    tags = f", {_text(', '.join(group.tags))}" if group.tags else ""
    members = [
        _member(member, group, total_reward, decoder, () if advantages_G is None else advantages_G[member])
        for member, total_reward in enumerate(group.get_total_rewards())
    ]
    failures = [_failure(failure) for failure in group.failures]
    head = f"<h2>Group {index}{tags}, weights of step {group.version}, {group.seconds:.2f} s</h2>"
    return "\n".join(["<section>", head, *members, *failures, "</section>"])


def _member(
    member: int,
    group: TrajectoryGroup,
    total_reward: float,
    decoder: Decoder,
    advantages_T: Sequence[Sequence[float]],
) -> str:
    trajectory = group.trajectories_G[member]
    figures = f"reward {total_reward:.4g}"
    if advantages_T:
        figures += f", advantage {', '.join(map(_advantage, advantages_T))}"
    head = f"<summary>Sample {member}: {figures}, {_text(trajectory.stop_reason)}</summary>"
    turns = _turns(trajectory, decoder)
    return "\n".join(["<details open>", head, *turns, _table(group.group_metrics_G[member]), "</details>"])


def _advantage(tokens: Sequence[float]) -> str:
    low, high = min(tokens), max(tokens)
    if low == high:
        return f"{low:.4g}"
    return f"{sum(tokens) / len(tokens):.4g} ({low:.4g} to {high:.4g})"


def _turns(trajectory: Trajectory, decoder: Decoder) -> Iterable[str]:
    previous: list[int] = []
    for transition in trajectory.transitions:
        observation = transition.observation.to_ints()
        is_extended = observation[: len(previous)] == previous
        yield _pre(decoder, observation[len(previous) if is_extended else 0 :], "observation")
        yield _pre(decoder, transition.action.tokens, "action")
        yield _table(_notes(transition))
        previous = [*observation, *transition.action.tokens]


def _notes(transition: Transition) -> Mapping[str, float | str]:
    return {"reward": transition.reward, **transition.metrics, **transition.logs}


def _failure(failure: RolloutFailure) -> str:
    where = f"member {failure.member}, attempt {failure.attempt + 1}, {failure.origin}, {failure.outcome}"
    return f'<pre class="failure">{_text(f"{where}: {failure.reason}")}</pre>'


def _table(rows: Mapping[str, float | str]) -> str:
    if not rows:
        return ""
    cells = "".join(f"<tr><th>{_text(name)}</th><td>{_text(_shown(value))}</td></tr>" for name, value in rows.items())
    return f"<table>{cells}</table>"


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _pre(decoder: Decoder, tokens: Sequence[int], kind: str) -> str:
    text = str(decoder.decode(list(tokens), clean_up_tokenization_spaces=False))
    return f'<pre class="{kind}">{_text(text)}</pre>'


def _text(text: str) -> str:
    return escape(printable(text, keep="\n\t"))

"""Output of rollouts: metrics, pages to read, and one attempt now and then for whoever watches."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

import tinker

from cookhouse.algorithms.rollouts.pool import FinishedGroup, RolloutPool
from cookhouse.chat import Message, Renderer
from cookhouse.files import file_errors, write_whole
from cookhouse.report import RecordedAnswer, rollouts_page
from cookhouse.rl import GroupFailedError, TrajectoryGroup, Transition, failure_metrics, group_metrics, group_to_json
from cookhouse.rl.env.own_metrics import own_name
from cookhouse.rl.rollouts.metrics import not_finite, own_names
from cookhouse.telemetry import Telemetry, after_step, events, step_number

_ASKED, _ANSWERED = "the1question", "the2answer"
"""Contents by which the marks of a format are found."""


class RolloutPages:
    """Keeps the groups of each step: their JSON is in the rollout log, here they become metrics and pages."""

    def __init__(self, *, folder: Path, renderer: Renderer, telemetry: Telemetry) -> None:
        self._folder = folder
        self._tokenizer: Any = renderer.encoder.tokenizer
        self._question = QuestionReader(renderer)
        self._telemetry = telemetry
        self._num_resampled = 0
        self._reported: set[str] = set()

    def measured(
        self, groups: Sequence[TrajectoryGroup], lost: Sequence[GroupFailedError], *, step: int | None = None
    ) -> dict[str, float]:
        """Metrics of groups that came back, and of those that did not; a metric of an environment's own that is not
        shown as it is, is reported once.
        """
        renamed = [name for name, shown in own_names(groups).items() if name != shown]
        self._report(
            "name",
            renamed,
            "an environment has metrics that are called as figures of the run are, which stay what they are; its own "
            f"are beside them as {own_name('NAME')}: {{names}}; call them differently",
            step,
        )
        self._report(
            "number",
            not_finite(groups),
            "metrics of an environment were NaN or infinite; such values are left out of their means, and counted as "
            "NAME_not_finite: {names}",
            step,
        )
        return {**group_metrics(groups), **failure_metrics(groups, lost)}

    def _report(self, kind: str, names: Iterable[str], text: str, step: int | None) -> None:
        new = {name: f"{kind} {name}" for name in sorted(names) if f"{kind} {name}" not in self._reported}
        if new:
            self._reported |= set(new.values())
            self._telemetry.event(events.RUN_WARNING, step=step, text=text.format(names=", ".join(new)))

    def __call__(self, pool: RolloutPool, step: int, finished: Sequence[FinishedGroup]) -> Mapping[str, float]:
        """Metrics of a step's groups; those that failed are counted.

        Raises:
            InputError: the disk is full or may not be written.
        """
        groups = [each.group for each in finished if each.group is not None]
        lost = [each.error for each in finished if each.error is not None]
        lags = [step - group.version for group in groups]
        metrics = {
            **self.measured(groups, lost, step=step),
            "rollouts/groups_resampled": float(pool.num_resampled - self._num_resampled),
        }
        if groups:
            metrics |= {
                "rollouts/lag_mean": sum(lags) / len(groups),
                "rollouts/lag_max": float(max(lags)),
                "time/group_seconds_mean": sum(group.seconds for group in groups) / len(groups),
                "time/group_seconds_max": max(group.seconds for group in groups),
            }
        self._num_resampled = pool.num_resampled
        page = rollouts_page(
            groups,
            self._tokenizer,
            title=f"Rollouts of step {step_number(step):,}",
            advantages_P=[each.advantages for each in finished if each.group is not None],
        )
        write_whole(self._folder / f"{step:06d}.html", page)
        sample = self.answers(groups[:1])
        text = {"asked": sample[0].prompt, "answered": sample[0].answer} if sample else {}
        self._telemetry.event(events.RL_ROLLOUT_COMPLETE, step=step, metrics=metrics, **text)
        return metrics

    def keep_evaluation(self, step: int, groups: Sequence[TrajectoryGroup]) -> None:
        """Keep the attempts at held-out problems, as a page and as JSON, a group a line."""
        with file_errors(self._folder):
            self._folder.mkdir(exist_ok=True)
        page = rollouts_page(groups, self._tokenizer, title=f"Held-out rollouts {after_step(step)}")
        write_whole(self._folder / f"test-{step:06d}.html", page)
        write_whole(self._folder / f"test-{step:06d}.jsonl", "".join(group_to_json(group) + "\n" for group in groups))

    def answers(self, groups: Sequence[TrajectoryGroup]) -> list[RecordedAnswer]:
        """The first attempt of each group, in words: as its environment logged it, else decoded."""
        return [self._answer(group) for group in groups]

    def _answer(self, group: TrajectoryGroup) -> RecordedAnswer:
        first = group.trajectories_G[0]
        turns = first.transitions
        logs = turns[-1].logs
        asked = next((turn.logs["question"] for turn in turns if turn.logs.get("question")), None)
        return RecordedAnswer(
            prompt=asked or self._question(turns[0].observation),
            expected=logs.get("expected", ""),
            answer=logs.get("answer") or " ⏎ ".join(self._said(turn) for turn in turns),
            is_correct=turns[-1].metrics.get("correct", group.get_total_rewards()[0]) > 0,
            group=", ".join(group.tags) or None,
        )

    def _said(self, turn: Transition) -> str:
        return self._decode(turn.action.tokens)

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens)))


class QuestionReader:
    """Reads prompts of one chat format: the last message of a user, without what the format puts around it."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def __call__(self, prompt: tinker.ModelInput) -> str:
        """The last message of a user; all of the prompt where none can be found."""
        text = self._decoded(prompt)
        begin, end = self._marks
        _, found, after = text.rpartition(begin) if begin else ("", "", text)
        if not found:
            return text
        asked = after.partition(end)[0] if end else after
        return asked.strip() or text

    @cached_property
    def _marks(self) -> tuple[str, str]:
        """Texts before and behind a user's message, wherever that is in a conversation."""
        asked: Message = {"role": "user", "content": _ASKED}
        answered: Message = {"role": "assistant", "content": _ANSWERED}
        first = self._decoded(self._renderer.build_generation_prompt([asked]))
        again = self._decoded(self._renderer.build_generation_prompt([asked, answered, asked]))
        before, _, later = again.rpartition(_ANSWERED)
        (head, found, tail), (later_head, _, later_tail) = first.partition(_ASKED), later.partition(_ASKED)
        if not found:
            return "", ""
        return _shared(head[::-1], later_head[::-1])[::-1], _shared(tail, later_tail, before.partition(_ASKED)[2])

    def _decoded(self, prompt: tinker.ModelInput) -> str:
        tokenizer: Any = self._renderer.encoder.tokenizer
        return str(tokenizer.decode(prompt.to_ints()))


def _shared(*texts: str) -> str:
    """Beginning that all of them have in common."""
    return "".join(letters[0] for letters in takewhile(lambda some: len(set(some)) == 1, zip(*texts, strict=False)))

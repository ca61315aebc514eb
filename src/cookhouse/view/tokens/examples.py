"""Examples that a step was trained on, token by token: what the loss saw."""

from collections.abc import Sequence
from typing import Any

from cookhouse.report.token_colors import Quantity, gaps
from cookhouse.report.token_colors import Values as TokenValues
from cookhouse.report.token_spans import TokenRun, scales_of
from cookhouse.runs.reading.examples import ShownExample, Values
from cookhouse.view.tokens.shown import first_shown, shown_scales, shown_spans
from cookhouse.view.tokens.words import Words


def examples_values(examples: Sequence[ShownExample], words: Words, by: str) -> dict[str, Any]:
    """Plain values of the examples of a step, and the scales over all of them."""
    runs = [example_run(example) for example in examples]
    scales = scales_of(runs)
    missing = {
        Quantity.ADVANTAGE: "only reinforcement learning has advantages",
        Quantity.GAP: "only what was sampled by the run has a logprob of the sampler",
    }
    return {
        "examples": [
            {
                "number": example.number,
                "label": example.label,
                "num_before": example.num_before,
                "num_after": example.num_after,
                "num_tokens": len(run.tokens),
                "num_trained": sum(1 for weight in run.values.get(Quantity.WEIGHT, ()) if weight),
                "spans": shown_spans(run, words, scales),
            }
            for example, run in zip(examples, runs, strict=True)
        ],
        "scales": shown_scales(scales, missing, logprob="how likely the token was before the step trained on it"),
        "by": first_shown(scales, by),
    }


def example_run(example: ShownExample) -> TokenRun:
    """An example as one sequence: its first token, then each target with its values. Of a target that is several
    tokens with shares of one weight, the token that follows in the sequence stands for all.
    """
    chosen = [_chosen(example, place) for place in range(len(example.targets))]
    trainer, weights = _of(example.logprobs, chosen), _sums(example.weights)
    sampler, teacher = (_of(each, chosen) for each in (example.sampler_logprobs, example.teacher_logprobs))
    several = {
        Quantity.LOGPROB: trainer,
        Quantity.ADVANTAGE: _of(example.advantages, chosen),
        Quantity.WEIGHT: weights,
        Quantity.GAP: _trained(gaps(sampler, trainer), weights),
        Quantity.TEACHER: _trained(gaps(teacher, trainer), weights),
    }
    following = [*example.tokens[1:], *(_last_target(example) if example.tokens else [])]
    return TokenRun(
        tokens=[*example.tokens[:1], *following],
        values={name: [None, *values] for name, values in several.items() if values is not None},
        start=example.num_before,
    )


def _trained(values: TokenValues | None, weights: TokenValues | None) -> TokenValues | None:
    """Of the tokens that were trained on: others have 0 where a logprob would be."""
    if values is None or weights is None:
        return values
    return [value if weight else None for value, weight in zip(values, weights, strict=True)]


def _last_target(example: ShownExample) -> list[int]:
    last = example.targets[-1]
    return last[:1] if isinstance(last, list) else [last]


def _chosen(example: ShownExample, place: int) -> int:
    """Among several targets of one place, the one that the sequence goes on with; else the first."""
    target = example.targets[place]
    following = example.tokens[place + 1] if place + 1 < len(example.tokens) else None
    return target.index(following) if isinstance(target, list) and following in target else 0


def _of(values: Values | None, chosen: Sequence[int]) -> list[float | None] | None:
    if values is None:
        return None
    return [
        (each[index] if index < len(each) else None) if isinstance(each, list) else each
        for each, index in zip(values, chosen, strict=True)
    ]


def _sums(values: Values | None) -> list[float | None] | None:
    if values is None:
        return None
    return [sum(filter(None, each)) if isinstance(each, list) else each for each in values]

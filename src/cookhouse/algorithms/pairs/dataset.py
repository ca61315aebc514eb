"""Pairs of answers to one prompt as tokens, and the batches that a run over preferences trains on."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import tinker

from cookhouse.chat import Message, Part, Renderer, TrainOnWhat, split_thinking, text_of
from cookhouse.data import BadRows, Example, PreferenceRow, parse_each
from cookhouse.data.batches.counting import count_positions
from cookhouse.data.batches.datum import shifted_datum
from cookhouse.errors import InputError
from cookhouse.rl import Trajectory, assemble_trajectory
from cookhouse.telemetry import ResultNote


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two answers, to one prompt or each to its own, the first of which is preferred. Only tokens of the answers have
    weight.
    """

    chosen: Example
    rejected: Example

    @property
    def examples(self) -> tuple[Example, Example]:
        return self.chosen, self.rejected

    @property
    def num_tokens(self) -> int:
        """Tokens of both, the prompt twice."""
        return self.chosen.tokens_T.size + self.rejected.tokens_T.size

    @property
    def longest_tokens(self) -> int:
        return max(self.chosen.tokens_T.size, self.rejected.tokens_T.size)

    @property
    def lost_answer(self) -> str | None:
        """Why nothing can be learned from what the cut has left, in words; None: something can."""
        for name, example in (("chosen", self.chosen), ("rejected", self.rejected)):
            if not example.num_trained_tokens:
                return f"{example.source}, whose {name} answer begins behind the {example.tokens_T.size} tokens kept"
        if np.array_equal(self.chosen.tokens_T, self.rejected.tokens_T):
            return f"{self.chosen.source}, whose answers are the same in the {self.chosen.tokens_T.size} tokens kept"
        return None


def render_pairs(
    rows: Iterable[PreferenceRow], renderer: Renderer, *, max_length: int, bad: BadRows | None = None
) -> list[Pair]:
    """The pairs of rows in order, cut on the right to `max_length` tokens; those from which the cut leaves nothing to
    learn are among them.

    Raises:
        InputError: `max_length` is below 2.
        BadRowsError: rows have an empty answer, or two that are the same, or cannot be rendered, each as
            `source: reason`.
    """
    return parse_each(rows, pair_renderer(renderer, max_length=max_length), bad)


def pair_renderer(renderer: Renderer, *, max_length: int) -> Callable[[PreferenceRow], Pair]:
    """Function that makes the pair of a row. Raises as `render_pairs`, for one row `InputError` as `source: reason`."""
    if max_length < 2:
        raise InputError(f"max_length is {max_length}; training needs at least 2 tokens, one to predict the other")
    return lambda row: _pair(row, renderer, max_length)


def _pair(row: PreferenceRow, renderer: Renderer, max_length: int) -> Pair:
    said_chosen, said_rejected = row.chosen, row.rejected
    if row.rejected_prompt is None and _any_reasons([*said_chosen, *said_rejected]):
        said_chosen, said_rejected = _saying_so(said_chosen), _saying_so(said_rejected)
    try:
        chosen, rejected = (
            _rendered(name, prompt, said, renderer)
            for name, prompt, said in (
                ("chosen", row.prompt, said_chosen),
                ("rejected", row.prompts[-1], said_rejected),
            )
        )
        if chosen[0] == rejected[0]:
            raise InputError("chosen and rejected are the same; nothing could be learned from them")
        if row.rejected_prompt is None:
            _check_prompt(chosen, rejected)
    except InputError as error:
        raise InputError(f"{row.source}: {error}") from error
    return Pair(
        chosen=_example(*chosen, row.source, max_length),
        rejected=_example(*rejected, row.source, max_length),
    )


def _any_reasons(said: Sequence[Message]) -> bool:
    return any(split_thinking(message)[0] is not None for message in said)


def _saying_so(said: Sequence[Message]) -> list[Message]:
    """Answers of which each says whether there was reasoning: next to one that has some, the empty block of another is
    what the model is to write, and no part of what both are asked.
    """
    return [_without_reasoning(m) if m["role"] == "assistant" and not _any_reasons([m]) else m for m in said]


def _without_reasoning(message: Message) -> Message:
    parts: list[Part] = [{"type": "thinking", "thinking": ""}, {"type": "text", "text": text_of(message)}]
    return {**message, "content": parts}


def _rendered(
    name: str, prompt: Sequence[Message], said: Sequence[Message], renderer: Renderer
) -> tuple[list[int], list[float]]:
    """Tokens and weights of a prompt and an answer to it, which may have several turns."""
    if not any(text_of(message).strip() or message.get("tool_calls") for message in said):
        raise InputError(f"{name} is empty; a pair needs two answers")
    messages: list[Message] = [{**message, "trainable": False} for message in prompt]
    messages += [
        {**message, "trainable": message["role"] == "assistant" and message.get("weight") != 0} for message in said
    ]
    rendered = renderer.build_supervised_examples(messages, TrainOnWhat.CUSTOMIZED)
    if len(rendered) != 1:
        raise InputError(
            f"{name} has several turns, and in this chat format each is a sequence of its own; keep the last turn alone"
        )
    model_input, weights = rendered[0]
    if not any(weights):
        raise InputError(f"every message of {name} has weight 0; nothing could be learned from it")
    return model_input.to_ints(), weights


def _check_prompt(chosen: tuple[list[int], list[float]], rejected: tuple[list[int], list[float]]) -> None:
    prompts = [tokens[: weights.index(1.0)] for tokens, weights in (chosen, rejected)]
    if prompts[0] != prompts[1]:
        raise InputError(
            "this chat format writes what stands before the answers differently for chosen and rejected; keep one "
            "message of the assistant in each, and what is asked the same"
        )


def _example(tokens: Sequence[int], weights: Sequence[float], source: str, max_length: int) -> Example:
    return Example(
        tokens_T=np.array(tokens[:max_length], dtype=np.int32),
        weights_T=np.array(weights[:max_length], dtype=np.float32),
        source=source,
        num_cut_tokens=max(len(tokens) - max_length, 0),
    )


def sampled_pair(chosen: Trajectory, rejected: Trajectory) -> Pair:
    """The pair of two rollouts, of what was sampled in the last sequence of each."""
    return Pair(chosen=_sampled(chosen), rejected=_sampled(rejected))


def _sampled(trajectory: Trajectory) -> Example:
    inputs = assemble_trajectory(trajectory, [0.0] * len(trajectory.transitions))[-1]
    first, targets = inputs.model_input.to_ints()[0], inputs.loss_fn_inputs["target_tokens"].to_numpy()
    return Example(
        tokens_T=np.array([first, *targets], dtype=np.int32),
        weights_T=np.array([0.0, *inputs.loss_fn_inputs["mask"].to_numpy()], dtype=np.float32),
        source="a rollout",
        num_cut_tokens=0,
    )


class PairDataset:
    """Batches of `batch_size` pairs; what does not fill another makes a last, smaller one. Before `set_epoch` the order
    is that of the pairs.

    Pairs from which the cut leaves nothing to learn are left out before batches are made, so that none is smaller for
    it. `notes` says what a person should know.

    Raises:
        InputError: no pair is left, or `batch_size` is below 1.
    """

    def __init__(self, pairs: Sequence[Pair], *, batch_size: int, seed: int = 0) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it must be at least 1")
        self.pairs = [pair for pair in pairs if pair.lost_answer is None]
        self.batch_size = batch_size
        self._lost = [reason for pair in pairs if (reason := pair.lost_answer) is not None]
        self._seed = seed
        self._order = list(range(len(self.pairs)))
        if not self.pairs:
            first = f" (the first is {self._lost[0]})" if self._lost else ""
            raise InputError(
                f"there is no pair to learn from{first}; set max_length higher, or see what the data holds"
            )

    def __len__(self) -> int:
        return -(-len(self.pairs) // self.batch_size)

    def get_batch(self, index: int) -> list[Pair]:
        """The pairs of batch `index` in the present order. Raises `IndexError` outside `range(len(self))`."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        return [self.pairs[i] for i in self._order[index * self.batch_size : (index + 1) * self.batch_size]]

    def set_epoch(self, epoch: int) -> None:
        """Shuffle for an epoch: the order depends on it and on the data set's seed alone."""
        self._order = self._order_of(epoch)

    def count_positions(self, total_steps: int, steps_per_epoch: int) -> int:
        """Number of positions of the datums of a run's first steps, each as often as it is trained on."""
        return count_positions(
            [pair.num_tokens - 2 for pair in self.pairs],
            lambda epoch, _: self._order_of(epoch),
            batch_size=self.batch_size,
            total_steps=total_steps,
            steps_per_epoch=steps_per_epoch,
        )

    def _order_of(self, epoch: int) -> list[int]:
        order = list(range(len(self.pairs)))
        random.Random(f"{self._seed}/{epoch}").shuffle(order)
        return order

    @property
    def notes(self) -> list[str]:
        """A sentence for each thing about the batches that is not as one may expect it."""
        num_left, num_over = len(self.pairs), len(self.pairs) % self.batch_size
        notes = left_out(self._lost, num_left + len(self._lost), "pairs")
        if num_left < self.batch_size:
            notes.append(f"batch_size is {self.batch_size} and there are {num_left} pairs: they make one batch")
        elif num_over:
            notes.append(f"the last batch of an epoch has {num_over} of the {num_left} pairs, not {self.batch_size}")
        return notes


def left_out(reasons: Sequence[str], num_all: int, what: str) -> list[str]:
    """Note that pairs are left out, with the first reason; empty if none is."""
    if not reasons:
        return []
    count = f"{len(reasons):,} of {num_all:,} {what}"
    return [ResultNote(f"{count} are left out, since the cut leaves nothing to compare; the first is {reasons[0]}")]


def interleaved(pairs: Sequence[Pair]) -> list[tinker.Datum]:
    """The datums of pairs: chosen, rejected, chosen, and so on; each token of an answer has weight 1."""
    return [shifted_datum(each.tokens_T, each.weights_T, "none") for pair in pairs for each in pair.examples]

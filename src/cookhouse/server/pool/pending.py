"""Commands that have no answer yet, and the tokens that clients have of those that are streamed."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from cookhouse.engine.contract import (
    Account,
    Amount,
    Command,
    Forget,
    NoMemoryError,
    Output,
    SampledSequence,
    SampleOutput,
)

OnTokens = Callable[[SampleOutput], None]
_BY_TOKEN = ("tokens_T", "logprobs_T", "topk_tokens_TK", "topk_logprobs_TK", "free_logprobs_T", "is_masked_T")
"""Fields of a sequence that have a row for each token."""


class StreamedTokens:
    """Tokens of one sample, of which a client gets each once, whichever worker generates it. They are counted by
    sequence: sequences of one sample step together at one worker, and not at another.
    """

    def __init__(self) -> None:
        self._num_sent: Counter[int] = Counter()
        """Tokens that the client has."""
        self._num_generated: Counter[int] = Counter()
        """Those that the present worker has reported."""

    def begin_again(self) -> None:
        """Another worker generates it, from the first token on."""
        self._num_generated.clear()

    def newest(self, output: SampleOutput) -> SampleOutput | None:
        """Part of a step that the client does not have; None: it has all of it."""
        newest = [self._cut(index, sequence) for index, sequence in enumerate(output.sequences)]
        if all(before is after for before, after in zip(output.sequences, newest, strict=True)):
            return output
        return replace(output, sequences=newest) if any(sequence.tokens_T.size for sequence in newest) else None

    def _cut(self, index: int, sequence: SampledSequence) -> SampledSequence:
        num_known = max(0, self._num_sent[index] - self._num_generated[index])
        self._num_generated[index] += sequence.tokens_T.size
        self._num_sent[index] = max(self._num_sent[index], self._num_generated[index])
        if not num_known or not sequence.tokens_T.size:
            return sequence
        by_token: dict[str, NDArray[Any] | None] = {name: getattr(sequence, name) for name in _BY_TOKEN}
        newest: dict[str, Any] = {n: None if values is None else values[num_known:] for n, values in by_token.items()}
        return replace(sequence, **newest)


@dataclass(slots=True, kw_only=True, eq=False)
class PendingCommand:
    command: Command
    answer: "asyncio.Future[Output]"
    on_tokens: OnTokens | None = None
    streamed: StreamedTokens | None = None
    worker: str | None = None
    """The worker that it is with; None: it waits for weights, or for a place."""
    num_tokens: int = 0
    """What it counts as where it is."""
    num_losses: int = 0
    """Workers that ended before they answered."""
    is_over: bool = False
    """Whether it was answered, has failed, or was canceled."""
    makes_model: bool = False
    """Whether there is no model unless it is done."""
    spent: list[Amount] = field(default_factory=list)
    """What the present worker has used for it."""
    is_counted: bool = True
    """Whether that is counted when it is answered; else who sent it does so."""
    is_tried_again: bool = False
    """Whether it has been placed again since a worker found its weights damaged."""
    refusals: dict[str, str] = field(default_factory=dict)
    """The sentences of workers that have no memory for it, by name."""

    def refusal(self) -> NoMemoryError:
        """The error of a command for which no worker has memory."""
        said = "; ".join(f"{worker}: {words}" for worker, words in self.refusals.items())
        return NoMemoryError(f"no worker has room: {said}")

    def report(self, output: SampleOutput) -> None:
        """Hand on what of a streamed sample is new in a step."""
        if self.on_tokens is None:
            return
        if self.streamed is None:
            self.streamed = StreamedTokens()
        newest = self.streamed.newest(output)
        if newest is not None:
            self.on_tokens(newest)

    def begin_again(self) -> None:
        """Another worker does it."""
        self.spent.clear()
        if self.streamed is not None:
            self.streamed.begin_again()


def forget_command(
    owner: str,
    session_id: str,
    *,
    model_ids: tuple[str, ...] = (),
    snapshot_ids: tuple[str, ...] = (),
    command_ids: tuple[str, ...] = (),
) -> Forget:
    """Command by which a worker frees things of an owner's."""
    return Forget(
        command_id="",
        account=Account(owner, session_id),
        model_ids=model_ids,
        snapshot_ids=snapshot_ids,
        command_ids=command_ids,
    )

"""A command under way, and who waits for its answer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from cookhouse.engine.contract import (
    Account,
    Amount,
    Command,
    Forget,
    NoMemoryError,
    Output,
    Pass,
    Sample,
    SampleOutput,
)
from cookhouse.server.pool.streamed import Streamed

OnTokens = Callable[[SampleOutput], None]
_UNBOUNDED_TOKENS = 1024
"""What a sample counts that names no `max_tokens`."""


@dataclass(slots=True, kw_only=True, eq=False)
class PendingCommand:
    command: Command
    answer: "asyncio.Future[Output]"
    on_tokens: OnTokens | None = None
    worker: str | None = None
    """The worker that it is with; None: it waits for weights, or for a place."""
    streamed: Streamed = field(default_factory=Streamed)
    num_losses: int = 0
    """Workers that ended before they answered."""
    makes_model: bool = False
    """Whether there is no model unless it is done."""
    spent: list[Amount] = field(default_factory=list)
    """What the present worker has used for it."""
    is_counted: bool = True
    """Whether that is counted when it is answered; else who sent it does so."""
    is_tried_again: bool = False
    """Whether it has been placed again since a worker found its weights damaged."""
    refusals: dict[str, str] = field(default_factory=dict)
    """What workers said that have no memory for it, by name."""

    def refusal(self) -> NoMemoryError:
        """What its caller is told where no worker has memory for it."""
        said = "; ".join(f"{worker}: {words}" for worker, words in self.refusals.items())
        return NoMemoryError(f"no worker has room: {said}")

    def tell(self, output: SampleOutput) -> None:
        """Hand on what of a streamed sample is new in a step."""
        newest = None if self.on_tokens is None else self.streamed.newest(output)
        if self.on_tokens is not None and newest is not None:
            self.on_tokens(newest)

    def finish(self, output: Output) -> None:
        if not self.answer.done():
            self.answer.set_result(output)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


def num_tokens(command: Command) -> int:
    """What a command counts as when the load of workers is compared."""
    match command:
        case Pass(request=request):
            return sum(datum.tokens_T.size for datum in request.data_D)
        case Sample(request=request):
            most = _UNBOUNDED_TOKENS if request.max_tokens is None else request.max_tokens
            return int(request.prompt_T.size) + request.num_samples * most
    return 0


def forget_command(
    owner: str,
    session_id: str,
    *,
    model_ids: tuple[str, ...] = (),
    snapshot_ids: tuple[str, ...] = (),
    command_ids: tuple[str, ...] = (),
) -> Forget:
    """What has a worker free things of an owner's."""
    return Forget(
        command_id="",
        account=Account(owner, session_id),
        model_ids=model_ids,
        snapshot_ids=snapshot_ids,
        command_ids=command_ids,
    )

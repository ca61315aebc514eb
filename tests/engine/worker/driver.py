"""Drives a worker from a test: commands in, answers out, each by name."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from cookhouse.engine.contract import (
    Account,
    AdamStep,
    Command,
    Create,
    Done,
    Event,
    Failed,
    ForwardBackward,
    LoraSpec,
    Output,
    Pass,
    Publish,
    Sample,
    SampleRequest,
    Save,
    SaveSnapshot,
    Step,
    TrainingDatum,
    Up,
    Worker,
)

BASE = "cookhouse/tiny"
LORA = LoraSpec(rank=1)
ALICE, BOB = Account("alice", "session-a"), Account("bob", "session-b")
ADAM = AdamStep(learning_rate=0.1)
PATIENCE_SECONDS = 30.0


class Driver:
    """Holds an event loop of its own, on which a worker's events are taken."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.runner = asyncio.Runner()
        self.events: list[Event] = []
        self._num_commands = 0

    def __enter__(self) -> "Driver":
        self.until(lambda event: isinstance(event, Up))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, seconds: float = PATIENCE_SECONDS) -> bool:
        is_closed = self.runner.run(self.worker.close(seconds))
        self.runner.close()
        return is_closed

    def until(self, is_wanted: Any) -> Event:
        """The first event of this kind, also one that has come already."""
        seen = 0
        while True:
            for event in self.events[seen:]:
                if is_wanted(event):
                    return event
            seen = len(self.events)
            assert self.take(), f"the worker ended after {self.events[-3:]}"

    def take(self) -> Sequence[Event]:
        """Wait for more events."""
        events = self.runner.run(asyncio.wait_for(self.worker.events(), PATIENCE_SECONDS))
        self.events += events
        return events

    def submit(self, *commands: Command) -> None:
        self.worker.submit(commands)

    def answer(self, command_id: str) -> Done | Failed:
        event = self.until(lambda event: isinstance(event, Done | Failed) and event.command_id == command_id)
        assert isinstance(event, Done | Failed)
        return event

    def run(self, command: Command) -> Done | Failed:
        """Submit a command and wait for its answer."""
        self.submit(command)
        return self.answer(command.command_id)

    def done(self, command: Command) -> Output:
        """What a command gives, which must not fail."""
        answer = self.run(command)
        assert isinstance(answer, Done), answer
        return answer.output

    def failure(self, command: Command) -> str:
        """Why a command fails, which must."""
        answer = self.run(command)
        assert isinstance(answer, Failed), answer
        return answer.failure.message

    def answered(self) -> list[str]:
        """Ids of the commands that were answered, in that order."""
        return [event.command_id for event in self.events if isinstance(event, Done | Failed)]

    def new_id(self) -> str:
        self._num_commands += 1
        return f"c{self._num_commands}"

    def create(self, model_id: str, account: Account = ALICE) -> Create:
        return Create(command_id=self.new_id(), account=account, model_id=model_id, base_model=BASE, lora=LORA)

    def a_pass(
        self,
        model_id: str,
        tokens: Sequence[int] = (1, 2, 3),
        account: Account = ALICE,
        *,
        loss: str = "cross_entropy",
        forward_only: bool = False,
    ) -> Pass:
        return Pass(
            command_id=self.new_id(),
            account=account,
            model_id=model_id,
            request=forward_backward(model_id, tokens, loss=loss, forward_only=forward_only),
        )

    def step(self, model_id: str, account: Account = ALICE) -> Step:
        return Step(command_id=self.new_id(), account=account, model_id=model_id, adam=ADAM)

    def save(
        self, model_id: str, url: str, form: Any = "state", account: Account = ALICE, *, with_gradient: bool = False
    ) -> Save:
        return Save(
            command_id=self.new_id(),
            account=account,
            model_id=model_id,
            url=url,
            form=form,
            with_optimizer=form == "state",
            with_gradient=with_gradient,
            base_name=BASE,
        )

    def publish(self, model_id: str, snapshot_id: str, account: Account = ALICE) -> Publish:
        return Publish(command_id=self.new_id(), account=account, model_id=model_id, snapshot_id=snapshot_id)

    def save_snapshot(self, snapshot_id: str, url: str, account: Account = ALICE) -> SaveSnapshot:
        return SaveSnapshot(command_id=self.new_id(), account=account, snapshot_id=snapshot_id, url=url)

    def sample(
        self, snapshot_id: str | None = None, account: Account = ALICE, *, seed: int = 1, **settings: Any
    ) -> Sample:
        command_id = self.new_id()
        settings = {"prompt_T": np.array([1, 2, 3]), "max_tokens": 4, "stop": [], **settings}
        request = SampleRequest(
            request_id=command_id,
            base_model=BASE,
            snapshot_id=snapshot_id,
            owner=account.owner,
            seed=seed,
            **settings,
        )
        return Sample(command_id=command_id, account=account, request=request)

    def tokens(self, command: Sample) -> list[int]:
        """What a sample gives: of its only sequence."""
        output: Any = self.done(command)
        tokens: list[int] = output.sequences[0].tokens_T.tolist()
        return tokens


def forward_backward(
    model_id: str, tokens: Sequence[int], *, loss: str = "cross_entropy", forward_only: bool = False
) -> ForwardBackward:
    """A pass over one sequence, each of whose tokens is to be followed by the next number."""
    tokens_T = np.array(tokens)
    datum = TrainingDatum(
        tokens_T=tokens_T,
        loss_fn_inputs={"target_tokens": (tokens_T + 1), "weights": np.ones(len(tokens_T), np.float32)},
    )
    return ForwardBackward(model_id=model_id, data_D=[datum], loss_fn=loss, forward_only=forward_only)

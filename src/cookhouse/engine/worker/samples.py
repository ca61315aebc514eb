"""Samples under way in an engine: whose they are, and what becomes of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cookhouse.engine.contract import Done, Event, Sample, SampleOutput, Tokens
from cookhouse.engine.engine import Engine, SampleFailure
from cookhouse.engine.worker.failing import failed
from cookhouse.engine.worker.snapshots import Snapshot
from cookhouse.engine.worker.status import Meter


@dataclass(frozen=True, slots=True)
class _Running:
    command: Sample
    snapshot: Snapshot | None


class Samples:
    """Told by the loop what to start and when to step; what has been used is counted."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._running: dict[str, _Running] = {}

    def commands(self) -> Sequence[Sample]:
        """Samples under way."""
        return [running.command for running in self._running.values()]

    def start(self, engine: Engine, command: Sample, snapshot: Snapshot | None) -> None:
        """Hand a request to the engine; raises what the engine raises."""
        assert command.request.request_id == command.command_id
        account = command.account
        engine.submit_sample(replace(command.request, owner=account.owner, session_id=account.session_id))
        self._running[command.command_id] = _Running(command, snapshot)
        if snapshot is not None:
            snapshot.num_samples += 1

    def cancel(self, engine: Engine, command_id: str) -> bool:
        """Stop a sample; whether it was under way."""
        is_running = self._end(command_id) is not None
        if is_running:
            engine.cancel_sample(command_id)
        return is_running

    def step(self, engine: Engine) -> Iterator[Event]:
        """Advance all; what they give. An engine that raises cannot say which is to blame, so that all fail."""
        try:
            outputs = engine.step_samples()
        except Exception as error:
            for command_id in list(self._running):
                yield failed(command_id, error)
                self.cancel(engine, command_id)
            return
        for output in outputs:
            event = self._event(output)
            if event is not None:
                yield event

    def _event(self, output: SampleOutput | SampleFailure) -> Event | None:
        command_id = output.request_id
        if isinstance(output, SampleOutput) and output.is_partial:
            return Tokens(command_id=command_id, output=output) if command_id in self._running else None
        running = self._end(command_id)
        if running is None:
            return None
        if isinstance(output, SampleFailure):
            return failed(command_id, output.error)
        account = running.command.account
        num_sampled = sum(sequence.tokens_T.size for sequence in output.sequences)
        self._meter.count(account, "prompt_tokens", running.command.request.prompt_T.size, command_id)
        self._meter.count(account, "sampled_tokens", num_sampled, command_id)
        return Done(command_id=command_id, output=output)

    def _end(self, command_id: str) -> _Running | None:
        running = self._running.pop(command_id, None)
        if running is not None and running.snapshot is not None:
            running.snapshot.num_samples -= 1
        return running

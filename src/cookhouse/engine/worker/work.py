"""Carries commands out on an engine, each to its answer; what models, snapshots and saves there are is known here."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from cookhouse.engine.contract import (
    Command,
    Create,
    Done,
    Event,
    Evicted,
    Fetch,
    Forget,
    Load,
    LoraSpec,
    Output,
    Pass,
    Publish,
    Read,
    Sample,
    SampleOutput,
    Save,
    SaveSnapshot,
    SpentKind,
    Step,
    Tokens,
    WorkerOptions,
)
from cookhouse.engine.engine import Engine, SampleFailure
from cookhouse.engine.files.checksums import verify
from cookhouse.engine.worker.failing import canceled, failed
from cookhouse.engine.worker.folders import Folders
from cookhouse.engine.worker.saves import MakeWriter, Saves
from cookhouse.engine.worker.snapshots import Snapshot, Snapshots
from cookhouse.engine.worker.status import Served, WorkMeter
from cookhouse.engine.worker.turns import Turn, Turns, num_tokens
from cookhouse.errors import InputError


@dataclass(frozen=True, slots=True)
class _Running:
    command: Sample
    snapshot: Snapshot | None


class Samples:
    """Told by the loop what to start and when to step; what has been used is counted."""

    def __init__(self, meter: WorkMeter) -> None:
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


class Work:
    """`tell` takes the answers of saves, in a writer's thread; `wake` is called there when a file has been written."""

    def __init__(
        self,
        engine: Engine,
        options: WorkerOptions,
        *,
        tell: Callable[[Event], None],
        wake: Callable[[], None],
        make_writer: MakeWriter,
    ) -> None:
        options.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._engine = engine
        self._wake = wake
        self._writers = make_writer("saves"), make_writer("snapshots")
        self._folders = Folders(options.worker, options.folder / "files")
        self._saves = Saves(self._folders, self._writers[0], tell=tell, on_written=self._note_saved)
        self._saved: deque[str] = deque()
        """Saves whose answer has been told; filled by the writer's thread."""
        self._snapshots = Snapshots(
            options.folder / "snapshots",
            max_bytes=options.max_snapshot_bytes,
            max_file_bytes=options.max_snapshot_file_bytes,
            writer=self._writers[1],
            on_written=wake,
            on_dropped=self._note_dropped,
        )
        self._weights: dict[str, Snapshot] = {}
        """Snapshots by id, with those that there are not any more."""
        self._coming: dict[str, str] = {}
        """Commands that are to make a snapshot, by its id."""
        self._models: dict[str, tuple[str, LoraSpec]] = {}
        """Base model and shape of each that there is."""
        self._dropped: list[Event] = []
        """What has not been told yet of snapshots that were dropped."""
        self.meter = WorkMeter()
        self.samples = Samples(self.meter)

    def expect(self, command: Command) -> None:
        """Take note of a command that waits for its turn."""
        if isinstance(command, Fetch | Publish):
            self._coming[command.snapshot_id] = command.command_id

    def is_held(self, command: Command) -> bool:
        """True if a command has to wait: for the disk, or for weights that are yet to be made."""
        match command:
            case Save():
                return self._saves.are_full
            case SaveSnapshot():
                return self._saves.are_full or command.snapshot_id in self._coming
            case Publish() | Fetch():
                return self._snapshots.must_wait
            case Sample():
                return command.request.snapshot_id in self._coming
        return False

    def served(self, turn: Turn) -> Sequence[Served]:
        """Whom a turn is about to serve, and by what weights they share its time. Errands are free."""
        if turn.kind == "sample":
            return [(command.account, command.command_id, 1) for command in self.samples.commands()]
        is_free = turn.kind == "other"
        return [] if is_free else [_served(command) for command in turn.commands]

    def run(self, turn: Turn) -> Iterator[Event]:
        """Take a turn; what comes of it, in order."""
        if turn.kind == "sample":
            yield from self.samples.step(self._engine)
        elif isinstance(turn.commands[0], Pass):
            yield from self._run_passes([command for command in turn.commands if isinstance(command, Pass)])
        else:
            yield from filter(None, map(self._run, turn.commands))
        yield from self._take_dropped()

    def tidy(self) -> Iterator[Event]:
        """Let go of what has been written meanwhile; what is to be reported of that."""
        while self._saved:
            self._saves.finish(self._engine, self._saved.popleft())
        self._snapshots.tidy(self._engine)
        yield from self._take_dropped()

    def forget(self, command: Forget, turns: Turns) -> Iterator[Event]:
        """Free what is named and end what is not done; the answers of the latter."""
        ended = [waiting for model_id in command.model_ids for waiting in turns.drop_model(model_id)]
        coming = [self._coming[name] for name in command.snapshot_ids if name in self._coming]
        for command_id in (*command.command_ids, *coming):
            waiting = turns.drop(command_id)
            if waiting is not None:
                ended.append(waiting)
            elif self.samples.cancel(self._engine, command_id):
                yield canceled(command_id)
            else:
                self._saves.cancel(command_id)
        for waiting in ended:
            self._settle(waiting)
            yield canceled(waiting.command_id)
        for model_id in command.model_ids:
            if self._models.pop(model_id, None) is not None:
                self._engine.delete_model(model_id)
        for snapshot_id in command.snapshot_ids:
            snapshot = self._weights.pop(snapshot_id, None)
            if snapshot is not None:
                self._snapshots.free(self._engine, snapshot)
        for url in command.urls:
            self._folders.free(url)

    def close(self) -> None:
        """Leave undone what has not been written."""
        for writer in self._writers:
            writer.shutdown(wait=False, cancel_futures=True)

    def _run(self, command: Command) -> Event | None:
        """One command, and its answer; None: it is sent later."""
        try:
            output = self._output(command)
        except Exception as error:
            return failed(command.command_id, error)
        finally:
            self._settle(command)
        is_later = isinstance(command, Sample | SaveSnapshot) or (isinstance(command, Save) and output is None)
        return None if is_later else Done(command_id=command.command_id, output=output)

    def _output(self, command: Command) -> Output:
        engine = self._engine
        match command:
            case Create():
                if command.model_id in self._models:
                    raise InputError(f"there is a model {command.model_id!r} already")
                engine.create_model(command.model_id, command.base_model, command.lora)
                self._models[command.model_id] = command.base_model, command.lora
            case Load():
                folder = self._folders.path(command.url)
                verify(folder, command.sha256)
                engine.load_state(
                    command.model_id,
                    command.base_model,
                    command.lora,
                    folder,
                    with_optimizer=command.with_optimizer,
                    with_gradient=command.with_gradient,
                )
                self._models[command.model_id] = command.base_model, command.lora
            case Step():
                return dict(engine.optim_step(command.model_id, command.adam))
            case Save():
                return self._saves.save(engine, command)
            case Publish():
                self._publish(command)
            case Fetch():
                self._fetch(command)
            case Sample():
                self._start_sample(command)
            case SaveSnapshot():
                self._use(command.snapshot_id)
                self._saves.save_snapshot(engine, command)
            case Read():
                return self._folders.read(command.url, command.offset, command.num_bytes)
            case _:
                raise AssertionError(f"{type(command).__name__} is no command of a worker")
        return None

    def _run_passes(self, passes: Sequence[Pass]) -> Iterator[Event]:
        assert all(command.request.model_id == command.model_id for command in passes)
        try:
            outputs = self._engine.forward_backward([command.request for command in passes])
        except Exception as error:
            yield from (failed(command.command_id, error) for command in passes)
            return
        for command, output in zip(passes, outputs, strict=True):
            if isinstance(output, Exception):
                yield failed(command.command_id, output)
                continue
            kind: SpentKind = "scored_tokens" if command.request.forward_only else "trained_tokens"
            self.meter.count(command.account, kind, num_tokens(command), command.command_id)
            yield Done(command_id=command.command_id, output=output)

    def _publish(self, command: Publish) -> None:
        if command.model_id not in self._models:
            raise InputError(f"unknown model {command.model_id!r}; create it first")
        if command.snapshot_id in self._weights:
            raise InputError(f"there is a snapshot {command.snapshot_id!r} already")
        base_model, lora = self._models[command.model_id]
        snapshot = Snapshot(
            snapshot_id=command.snapshot_id,
            owner=command.account.owner,
            base_model=base_model,
            lora=lora,
            model_id=command.model_id,
        )
        self._snapshots.admit(self._engine)
        self._engine.snapshot(command.model_id, command.snapshot_id)
        try:
            self._snapshots.add(self._engine, snapshot)
        except BaseException:
            self._snapshots.free(self._engine, snapshot)
            raise
        self._weights[command.snapshot_id] = snapshot

    def _fetch(self, command: Fetch) -> None:
        snapshot = Snapshot(
            snapshot_id=command.snapshot_id,
            owner=command.account.owner,
            base_model=command.base_model,
            lora=command.lora,
            folder=self._folders.path(command.url),
            sha256=command.sha256,
        )
        self._weights[command.snapshot_id] = snapshot
        try:
            self._snapshots.admit(self._engine)
            self._snapshots.use(self._engine, snapshot)
        except Exception as error:
            snapshot.error = error  # each sample that wants these weights fails with it
            raise

    def _start_sample(self, command: Sample) -> None:
        snapshot_id = command.request.snapshot_id
        self.samples.start(self._engine, command, None if snapshot_id is None else self._use(snapshot_id))

    def _use(self, snapshot_id: str) -> Snapshot:
        """A snapshot, which the engine holds now."""
        snapshot = self._weights.get(snapshot_id)
        if snapshot is None:
            raise InputError(f"unknown snapshot {snapshot_id!r}; publish it first")
        if snapshot.error is not None:
            raise snapshot.error
        self._snapshots.use(self._engine, snapshot)
        return snapshot

    def _settle(self, command: Command) -> None:
        """Take note that a command does not wait any more."""
        if isinstance(command, Fetch | Publish) and self._coming.get(command.snapshot_id) == command.command_id:
            del self._coming[command.snapshot_id]

    def _note_saved(self, command_id: str) -> None:
        self._saved.append(command_id)
        self._wake()

    def _note_dropped(self, snapshot: Snapshot) -> None:
        self._dropped.append(Evicted(snapshot_id=snapshot.snapshot_id))

    def _take_dropped(self) -> Sequence[Event]:
        dropped, self._dropped = self._dropped, []
        return dropped


def _served(command: Command) -> Served:
    # The writer may answer a save before its turn is over.
    return command.account, "" if isinstance(command, Save) else command.command_id, num_tokens(command)

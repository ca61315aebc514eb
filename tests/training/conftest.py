"""A data set of a few tokens, and a loop over the fake service."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinker

from cookhouse.settings import OptimizerSettings, TrainingSettings
from cookhouse.telemetry import JsonlSink, Sink, Telemetry
from cookhouse.training import (
    CROSS_ENTROPY,
    AdamSchedule,
    BatchSource,
    CheckpointKind,
    FakeService,
    Interrupt,
    LoopSlots,
    Objective,
    ScheduledEvaluation,
    SessionSpec,
    StepLog,
    TrainingLoop,
    as_datums,
    open_session,
    submit_checkpoint,
)
from cookhouse.weights.checkpoints import CheckpointFile, Cursor


class ShuffledTokens:
    """Batches of two datums whose tokens say which epoch and batch they are of."""

    def __init__(self, num_batches: int = 3) -> None:
        self._num_batches = num_batches
        self._order: Sequence[int] = range(num_batches)

    def set_epoch(self, epoch: int) -> None:
        self._order = [int(index) for index in np.random.default_rng(epoch).permutation(self._num_batches)]

    def get_batch(self, index: int) -> list[tinker.Datum]:
        return [make_datum([10 * self._order[index] + member + 1] * 3) for member in range(2)]

    def __len__(self) -> int:
        return self._num_batches


def make_datum(tokens_T: Sequence[int]) -> tinker.Datum:
    weights = np.ones(len(tokens_T), dtype=np.float32)
    weights[0] = 0.0
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(list(tokens_T)),
        loss_fn_inputs={
            "target_tokens": tinker.TensorData.from_numpy(np.array(tokens_T, dtype=np.int64) + 1),
            "weights": tinker.TensorData.from_numpy(weights),
        },
    )


class LoopKit:
    """Builds loops that write to one folder, as the runs of one interrupted job do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoints = CheckpointFile(folder / "checkpoints.jsonl")
        self.interrupt = Interrupt()
        self.telemetry = Telemetry()

    async def loop(
        self,
        service: FakeService,
        *,
        total_steps: int = 6,
        save_every: int = 0,
        evaluate: Sequence[ScheduledEvaluation] = (),
        objective: Objective[Any] = CROSS_ENTROPY,
        sinks: Sequence[Sink] = (),
        dataset: ShuffledTokens | None = None,
        **settings: Any,
    ) -> TrainingLoop[None]:
        last = self.checkpoints.last_state()
        resume_path = None if last is None else last.state_path
        spec = SessionSpec(settings=TrainingSettings(lora_rank=4), resume_path=resume_path)
        session = await open_session(service.connect, spec)
        self.telemetry.close()
        self.telemetry = Telemetry([JsonlSink(self.folder / "metrics.jsonl"), *sinks])
        cursor = Cursor() if last is None else last.cursor
        data = dataset or ShuffledTokens()
        return TrainingLoop(
            client=session.client,
            slots=LoopSlots(
                evaluate=evaluate,
                get_work=BatchSource(
                    data, as_datums, total_steps=total_steps, steps_per_epoch=len(data), cursor=cursor
                ),
                forward_backward=objective,
                optim_step=AdamSchedule(settings=OptimizerSettings(learning_rate=0.1), total_steps=total_steps),
                checkpoint=lambda client, at: submit_checkpoint(client, at, kind=CheckpointKind.STATE),
                log=StepLog(self.telemetry, total_steps, steps_per_epoch=total_steps),
            ),
            save_every=save_every,
            total_steps=total_steps,
            checkpoints=self.checkpoints,
            telemetry=self.telemetry,
            interrupt=self.interrupt,
            **settings,
        )


@pytest.fixture
def new_kit(tmp_path: Path) -> Iterator[Callable[[str], LoopKit]]:
    kits: list[LoopKit] = []

    def make(name: str) -> LoopKit:
        (tmp_path / name).mkdir()
        kits.append(LoopKit(tmp_path / name))
        return kits[-1]

    yield make
    for kit in kits:
        kit.telemetry.close()


@pytest.fixture
def kit(new_kit: Callable[[str], LoopKit]) -> LoopKit:
    return new_kit("run")


@pytest.fixture
def datum() -> Callable[[Sequence[int]], tinker.Datum]:
    return make_datum


class CountingEvaluation:
    """Requests a snapshot when submitted, and reports which step it was for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.steps: list[int] = []

    async def begin(self, client: Any, step: int) -> Any:
        self.steps.append(step)
        return self._finish(client.save_weights_and_get_sampling_client(), step)

    async def _finish(self, snapshot: Any, step: int) -> Mapping[str, float]:
        await snapshot
        return {f"{self._name}/step": float(step)}


@pytest.fixture
def evaluation() -> CountingEvaluation:
    return CountingEvaluation("test")


@pytest.fixture
def rare_evaluation() -> CountingEvaluation:
    return CountingEvaluation("rare")

"""Which workers a server has, and what each of them is to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cookhouse.engine.contract import WorkerOptions
from cookhouse.errors import InputError
from cookhouse.server.settings import Settings

FOLDER = "snapshots"
"""Below a state folder: files of the workers' own, and weights on their way between them; deleted at each start."""
_MAX_WORKERS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """A worker that a server starts, and starts again whenever it is lost."""

    name: str = "engine"
    index: int = 0
    """Its number among those of the server."""
    num_sharing: int = 1
    """Workers that share a machine, each with its part of cores and memory."""
    trains: bool = True
    samples: bool = True


def plans_of(
    *, workers: int | None = None, trainers: int | None = None, samplers: int | None = None, samplers_only: bool = False
) -> list[WorkerPlan]:
    """`workers` that train and sample; or `trainers` that only train beside `samplers` that only sample.

    Raises:
        InputError: numbers that make no sense together.
    """
    apart = trainers is not None or samplers is not None
    if workers is not None and apart:
        raise InputError(
            "--workers train and sample, --trainers and --samplers do one of the two; give one or the other"
        )
    if apart and samplers_only:
        raise InputError(
            "--samplers-only has no worker train; use --workers N with it, in place of --trainers --samplers"
        )
    if apart and not (trainers and samplers):
        raise InputError(
            "--trainers and --samplers go together, at least one of each; a server that only samples is started with "
            "--samplers-only, and --workers N for several"
        )
    number = (trainers or 0) + (samplers or 0) if apart else (1 if workers is None else workers)
    if not 1 <= number <= _MAX_WORKERS:
        raise InputError(f"{number} workers were asked for; allowed are 1 to {_MAX_WORKERS}")
    if number == 1:
        return [WorkerPlan()]
    roles = [(True, False)] * (trainers or 0) + [(False, True)] * (samplers or 0) if apart else [(True, True)] * number
    return [_plan(index, number, trains=trains, samples=samples) for index, (trains, samples) in enumerate(roles)]


def next_plan(plans: Sequence[WorkerPlan], index: int) -> WorkerPlan:
    """Of a worker that is added to others, with a number that none has had."""
    if all(plan.trains and plan.samples for plan in plans):
        return _plan(index, len(plans) + 1, trains=True, samples=True)
    return _plan(index, len(plans) + 1, trains=False, samples=True)


def worker_options(settings: Settings, state_dir: Path, plan: WorkerPlan = WorkerPlan()) -> WorkerOptions:
    return WorkerOptions(
        worker=plan.name,
        folder=state_dir / FOLDER / plan.name,
        max_snapshot_bytes=settings.max_snapshot_bytes,
        max_snapshot_file_bytes=settings.max_snapshot_file_bytes,
        max_pass_tokens=settings.max_pass_tokens,
        deterministic=settings.deterministic,
        index=plan.index,
        num_sharing=plan.num_sharing,
        trains=plan.trains,
    )


def _plan(index: int, number: int, *, trains: bool, samples: bool) -> WorkerPlan:
    kind = "worker" if trains and samples else "trainer" if trains else "sampler"
    return WorkerPlan(name=f"{kind}{index}", index=index, num_sharing=number, trains=trains, samples=samples)

"""Plans of a server's workers: what each of them is to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cookhouse.engine.contract import WorkerOptions
from cookhouse.errors import InputError
from cookhouse.server.settings import Settings

FOLDER = "snapshots"
"""Below a state folder: files of the workers' own, and weights on their way between them; deleted at each start."""
_MAX_WORKERS = 256

Kind = Literal["worker", "trainer", "sampler"]
"""What a worker does: both, or one of the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """A worker that a server starts, and starts again whenever it is lost."""

    name: str = "engine"
    index: int = 0
    """Its number among all that the server has had."""
    part: int = 0
    """Which part of the machine it takes; from `num_sharing` on: what the others leave over."""
    num_sharing: int = 1
    """Parts of a machine's cores and memory: as many as the workers that the server was started with."""
    trains: bool = True
    samples: bool = True


def plans_of(
    *, workers: int | None = None, trainers: int | None = None, samplers: int | None = None
) -> list[WorkerPlan]:
    """`workers` that train and sample; or `trainers` that only train and `samplers` that only sample.

    Raises:
        InputError: numbers that make no sense together.
    """
    apart = trainers is not None or samplers is not None
    if workers is not None and apart:
        raise InputError(
            "--workers train and sample, --trainers and --samplers do one of the two; give one or the other"
        )
    if apart and min(trainers or 0, samplers or 0) < 1:
        raise InputError(
            "--trainers and --samplers go together, at least one of each; a server that only samples is started with "
            "--samplers-only, and --workers N for several"
        )
    number = (trainers or 0) + (samplers or 0) if apart else (1 if workers is None else workers)
    if not 1 <= number <= _MAX_WORKERS:
        raise InputError(f"{number} workers were asked for; allowed are 1 to {_MAX_WORKERS}")
    if number == 1:
        return [WorkerPlan()]
    both: list[Kind] = ["worker"] * number
    kinds = ["trainer"] * (trainers or 0) + ["sampler"] * (samplers or 0) if apart else both
    return [_plan(index, index, number, kind) for index, kind in enumerate(kinds)]


def next_plan(plans: Sequence[WorkerPlan], index: int, kind: Kind | None = None) -> WorkerPlan:
    """Of a worker that is added to others, with a number that none has had, and the part of the machine of one that
    left; where none has, one beyond theirs, which are as large as they were. Of no `kind`, it does both, or samples
    where these are apart.

    Raises:
        InputError: there are as many as there may be, or none that would leave work to one of this kind.
    """
    if len(plans) >= _MAX_WORKERS:
        raise InputError(f"the server has {len(plans)} workers already, the most that are allowed")
    are_apart = not all(plan.trains and plan.samples for plan in plans)
    kind = kind or ("sampler" if are_apart else "worker")
    if are_apart and kind == "worker":
        raise InputError("the server has trainers and samplers apart; add a trainer or a sampler")
    if not are_apart and kind != "worker":
        raise InputError(f"the server's workers train and sample, so that a {kind} is not added; add a worker")
    taken = {plan.part for plan in plans}
    part = next(part for part in range(len(plans) + 1) if part not in taken)
    return _plan(index, part, plans[0].num_sharing, kind)


def worker_options(settings: Settings, state_dir: Path, plan: WorkerPlan = WorkerPlan()) -> WorkerOptions:
    return WorkerOptions(
        worker=plan.name,
        folder=state_dir / FOLDER / plan.name,
        max_snapshot_bytes=settings.max_snapshot_bytes,
        max_snapshot_file_bytes=settings.max_snapshot_file_bytes,
        max_pass_tokens=settings.max_pass_tokens,
        deterministic=settings.deterministic,
        index=plan.part,
        num_sharing=plan.num_sharing,
        trains=plan.trains,
    )


def _plan(index: int, part: int, number: int, kind: str) -> WorkerPlan:
    trains, samples = kind != "sampler", kind != "trainer"
    return WorkerPlan(name=f"{kind}{index}", index=index, part=part, num_sharing=number, trains=trains, samples=samples)

"""Saves of what is being trained: requested at one step, and finished while later ones are under way."""

import asyncio
import json
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import tinker

from cookhouse.callables.arguments import checked
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.files import file_errors
from cookhouse.training.clients.client import TrainingClient
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, Checkpoint, CheckpointFile, Cursor


class CheckpointKind(StrEnum):
    """Kind of checkpoint: weights with optimizer state, weights to sample from, or one of each."""

    STATE = "state"
    SAMPLER = "sampler"
    BOTH = "both"


@dataclass(frozen=True, kw_only=True)
class PendingCheckpoint:
    """A save that has been requested: it holds the weights as of the request, whatever is trained meanwhile."""

    name: str
    cursor: Cursor
    is_final: bool
    is_rolling: bool
    best: Mapping[str, float]
    state: Awaitable[tinker.types.SaveWeightsResponse] | None
    sampler: Awaitable[tinker.types.SaveWeightsForSamplerResponse] | None

    async def finish(self) -> Checkpoint:
        """Wait until the service has it."""
        state_path = None if self.state is None else (await self.state).path
        sampler_path = None if self.sampler is None else (await self.sampler).path
        return Checkpoint(
            name=self.name,
            epoch=self.cursor.epoch,
            batch=self.cursor.batch,
            step=self.cursor.step,
            final=self.is_final,
            rolling=self.is_rolling,
            best=self.best,
            state_path=state_path,
            sampler_path=sampler_path,
            loop_state=self.cursor.loop_state,
        )


def submit_checkpoint(
    client: TrainingClient,
    cursor: Cursor,
    *,
    kind: CheckpointKind,
    is_final: bool = False,
    is_rolling: bool = False,
    best: Mapping[str, float] | None = None,
    ttl_seconds: int | None = None,
) -> PendingCheckpoint:
    """Request a save of the weights after the work submitted so far, without waiting. Named by the step, or `final`.

    A rolling one, and one of the best weights by a metric, has a name of its own: another save of the step may take its
    place, and has to outlive it.
    """
    mark = "-rolling" if is_rolling else "-best" if best else ""
    return _submit(
        client,
        "final" if is_final else f"{cursor.step:06d}{mark}",
        cursor,
        kind,
        is_final=is_final,
        is_rolling=is_rolling,
        best=best,
        ttl_seconds=ttl_seconds,
    )


@checked
def save_checkpoint(
    training_client: TrainingClient,
    name: str,
    log_path: str | Path,
    loop_state: Mapping[str, Any],
    kind: str = "state",
    ttl_seconds: int | None = None,
) -> dict[str, str]:
    """`save_checkpoint_async`, and wait for it. Raises `InputError` where an event loop runs, too."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass  # there is none, as there should be
    else:
        raise InputError("save_checkpoint waits, and an event loop runs here: await save_checkpoint_async")
    return asyncio.run(save_checkpoint_async(training_client, name, log_path, loop_state, kind, ttl_seconds))


@checked
async def save_checkpoint_async(
    training_client: TrainingClient,
    name: str,
    log_path: str | Path,
    loop_state: Mapping[str, Any],
    kind: str = "state",
    ttl_seconds: int | None = None,
) -> dict[str, str]:
    """Save what a loop of one's own trains, and add a line to checkpoints.jsonl of its folder.

    Args:
        training_client: the SDK's.
        name: of the checkpoint, the last part of its path.
        log_path: the folder, which is made.
        loop_state: what `get_last_checkpoint` is to find again, in JSON's types; `epoch`, `batch` and `step` among it
            are those of the checkpoint, the next to be trained, and `final` says that nothing is.
        kind: `state` to train on from, `sampler` to sample from, or `both`.
        ttl_seconds: after which the service may delete it; default: never.

    Returns:
        Paths of what was saved, by `state_path` and `sampler_path`.

    Raises:
        InputError: the kind or the state cannot be, and nothing was saved; or the file cannot be written.
        tinker.TinkerError: the service refused, or failed.
    """
    if kind not in set(CheckpointKind):
        raise UnknownNameError("kind of checkpoint", kind, tuple(CheckpointKind))
    cursor = _cursor(loop_state)
    pending = _submit(
        training_client,
        name,
        cursor,
        CheckpointKind(kind),
        is_final=loop_state.get("final") is True,
        ttl_seconds=ttl_seconds,
    )
    saved = replace(await pending.finish(), loop_state=dict(loop_state))
    await asyncio.to_thread(_append, Path(log_path), saved)
    paths = {"state_path": saved.state_path, "sampler_path": saved.sampler_path}
    return {name: path for name, path in paths.items() if path is not None}


def _append(folder: Path, checkpoint: Checkpoint) -> None:
    with file_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    CheckpointFile(folder / CHECKPOINTS_FILE).append(checkpoint)


def _cursor(loop_state: Mapping[str, Any]) -> Cursor:
    try:
        json.dumps(dict(loop_state), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"loop_state cannot be written as JSON ({error}); keep numbers, texts and lists in it"
        ) from error
    places = {name: loop_state.get(name, 0) for name in ("epoch", "batch")}
    places["step"] = loop_state.get("step", places["batch"])
    for name, place in places.items():
        if type(place) is not int or place < 0:
            raise InputError(f"{name} of loop_state is {place!r}; it must be a whole number that is at least 0")
    return Cursor(epoch=places["epoch"], batch=places["batch"], step=places["step"])


def _submit(
    client: TrainingClient,
    name: str,
    cursor: Cursor,
    kind: CheckpointKind,
    *,
    is_final: bool,
    is_rolling: bool = False,
    best: Mapping[str, float] | None = None,
    ttl_seconds: int | None,
) -> PendingCheckpoint:
    wants_state = kind is not CheckpointKind.SAMPLER
    wants_sampler = kind is not CheckpointKind.STATE
    return PendingCheckpoint(
        name=name,
        cursor=cursor,
        is_final=is_final,
        is_rolling=is_rolling,
        best=best or {},
        state=client.save_state(name, ttl_seconds=ttl_seconds) if wants_state else None,
        sampler=client.save_weights_for_sampler(name, ttl_seconds=ttl_seconds) if wants_sampler else None,
    )

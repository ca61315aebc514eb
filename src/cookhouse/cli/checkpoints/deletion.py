"""`cookhouse checkpoints delete`: asks, says what goes, and leaves what others need."""

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cookhouse.cli.checkpoints.saved import (
    TINKER,
    SavedCheckpoint,
    find_saved,
    is_run_folder,
    is_unread,
    list_saved,
    meant,
    saved_by,
)
from cookhouse.cli.models.commands import Registry
from cookhouse.cli.runs.names import NAMING, complete_run, run_folder
from cookhouse.errors import InputError
from cookhouse.extras import require_engine
from cookhouse.runs.names import RUNS_FOLDER
from cookhouse.service.connection import check_reachable, configured_service
from cookhouse.service.local import default_state_dir, service_folder
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE
from cookhouse.weights.names import is_checkpoint_path


@dataclass(frozen=True, kw_only=True)
class _Going:
    """A checkpoint that is to be deleted."""

    path: str
    num_bytes: int
    run: Path | None
    """The folder of the run that recorded it, if that is here."""
    state_dir: Path | None
    """Of the server on this machine that keeps it; None: it is on the configured service."""
    is_named: bool = False
    """Whether it is what is meant where its run is named."""


def delete(
    which: Annotated[
        list[str],
        typer.Argument(
            metavar="CHECKPOINT",
            help=f"tinker:// paths; or runs, meaning all that they saved: {NAMING}.",
            autocompletion=complete_run,
        ),
    ],
    keep: Annotated[
        int, typer.Option(min=0, help="Of each run named, leave those of its last so many saves, and the best.")
    ] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[
        bool, typer.Option(help="Delete weights that are registered or that other runs were started from, too.")
    ] = False,
    run: Annotated[
        str | None, typer.Option(help="The run that saved the tinker:// paths.", autocompletion=complete_run)
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(help="State folder of the server that keeps them.", show_default="~/.local/state/cookhouse/serve"),
    ] = None,
    registry: Registry = None,
) -> None:
    """Delete checkpoints, and say how much that frees. The record of a run, its metrics and its page stay.

    Those on this machine are deleted in the folder of their server, which must not be running; those of the service
    that TINKER_BASE_URL and TINKER_API_KEY name, there. Weights that are registered, that other runs were started from,
    or whose run is going on are refused.
    """
    going = [each for name in which for each in _meant(name, keep, run, state_dir)]
    going = list({each.path: each for each in going}.values())
    if not going:
        raise InputError(f"nothing to delete: the runs have saved no more than the {keep} to keep")
    _check_not_running(going)
    needs = _needs(going, registry)
    if needs and not force:
        raise InputError("; ".join(needs) + "; delete these first, or pass --force")
    if not yes:
        _confirm([*needs, *(f"{each.path} ({_size(each.num_bytes)})" for each in going)])
    for each in going:
        _delete(each)
        typer.echo(f"deleted {each.path} ({_size(each.num_bytes)})")
    typer.echo(f"{_size(sum(each.num_bytes for each in going))} freed")


def _meant(name: str, keep: int, run: str | None, state_dir: Path | None) -> list[_Going]:
    if is_checkpoint_path(name):
        return [_of_path(name, run, state_dir)]
    folder = run_folder(name)
    if not is_run_folder(folder):
        raise InputError(f"{folder} is no run that has saved anything; name a run, or a checkpoint's {TINKER} path")
    saved = list_saved(folder)
    steps = sorted({each.step for each in saved if each.step is not None})
    kept = {*steps[len(steps) - keep :], meant(saved).step} if keep and saved else set()
    return [_of_run(each, folder, saved) for each in saved if each.step not in kept]


def _of_path(path: str, run: str | None, state_dir: Path | None) -> _Going:
    folder = run_folder(run) if run is not None else saved_by(path)
    if folder is not None and is_run_folder(folder):
        saved = list_saved(folder)
        found = next((each for each in saved if each.path == path), None)
        if found is not None:
            return _of_run(found, folder, saved)
    if state_dir is None and configured_service(os.environ) is not None:
        return _Going(path=path, num_bytes=asyncio.run(_bytes_there(path)), run=None, state_dir=None)
    row = find_saved(path, run, state_dir).row
    assert row is not None
    kept_in = state_dir or default_state_dir(os.environ)
    return _Going(path=path, num_bytes=row.size_bytes, run=None, state_dir=kept_in)


def _of_run(saved: SavedCheckpoint, folder: Path, every: Sequence[SavedCheckpoint]) -> _Going:
    assert saved.path is not None
    is_named = saved.step == meant(every).step
    if saved.row is not None:
        size, state_dir = saved.row.size_bytes, service_folder(folder)
        return _Going(path=saved.path, num_bytes=size, run=folder, state_dir=state_dir, is_named=is_named)
    if is_unread(saved):
        require_engine(f"deleting what the service of the run in {folder} keeps")
    num_bytes = asyncio.run(_bytes_there(saved.path))
    return _Going(path=saved.path, num_bytes=num_bytes, run=folder, state_dir=None, is_named=is_named)


def _check_not_running(going: Sequence[_Going]) -> None:
    from cookhouse.runs.lock import is_held

    for folder in dict.fromkeys(each.run for each in going if each.run is not None):
        if is_held(folder):
            raise InputError(f"a run is going on in {folder}; stop it first (Ctrl-C saves), or wait for its end")


def _needs(going: Sequence[_Going], registry: str | None) -> list[str]:
    """Names of those that have these weights, or was started from them."""
    from cookhouse.registry import Query, open_registry
    from cookhouse.runs.listing.deletion import runs_that_name
    from cookhouse.runs.listing.find import find_runs

    models = open_registry(registry, os.environ)
    registered = {each.path: [model.id for model in models.find(Query(artifact_path=each.path))] for each in going}
    lines = [f"{path} is registered as {', '.join(names)}" for path, names in registered.items() if names]
    places = dict.fromkeys([RUNS_FOLDER, *(each.run.parent for each in going if each.run is not None)])
    others = {run.path.resolve(): run for place in places for run in find_runs(place)}.values()
    for each in going:
        named_by_run = each.run if each.is_named else None
        found = runs_that_name({each.path, *registered[each.path]}, named_by_run, others)
        own = None if each.run is None else each.run.resolve()
        names = [run.name for run in found if run.path.resolve() != own]
        lines += [f"{each.path} is what other runs were started from: {', '.join(names)}"] if names else []
    return lines


def _confirm(lines: Sequence[str]) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("there is no terminal to ask on; pass --yes to delete without being asked")
    for line in lines:
        typer.echo(f"  {line}")
    if not typer.confirm(f"delete {'it' if len(lines) == 1 else 'them'}? What is deleted is gone"):
        raise typer.Abort


def _delete(going: _Going) -> None:
    """The weights first: the other way round, nobody would know of what is left where that fails."""
    from cookhouse.runs.lock import hold
    from cookhouse.weights.checkpoints import CheckpointFile

    with nullcontext() if going.run is None else hold(going.run):
        if going.state_dir is None:
            asyncio.run(_delete_there(going.path))
        else:
            from cookhouse.server.storage.checkpoints.offline import delete_checkpoint

            has_files = delete_checkpoint(going.state_dir, going.path)
            if not has_files:
                typer.echo(
                    f"{going.path} had no files in {going.state_dir}; those in the object store of a server with "
                    "--checkpoints are left there, under files/: delete such a checkpoint through its server",
                    err=True,
                )
        if going.run is not None:
            CheckpointFile(going.run / CHECKPOINTS_FILE).forget(going.path)


async def _rest() -> Any:
    """The SDK's client of the configured service.

    Raises:
        InputError: there is none.
        ServiceError: nothing answers there.
    """
    address = configured_service(os.environ)
    if address is None:
        raise InputError(
            "these weights are on no server of this machine; set TINKER_BASE_URL and TINKER_API_KEY to the service "
            "that has them"
        )
    await check_reachable(address)
    import tinker

    return await asyncio.to_thread(tinker.RestClient, base_url=address.base_url, api_key=address.api_key)


async def _bytes_there(path: str) -> int:
    """Of a checkpoint on the configured service. Raises `InputError` where it has none, and as `_rest`."""
    rest = await _rest()
    import tinker

    from cookhouse.training import service_errors

    try:
        model_id = tinker.types.ParsedCheckpointTinkerPath.from_tinker_path(path).training_run_id
    except ValueError as error:
        raise InputError(f"{path} is not the path of a checkpoint: {error}") from error
    with service_errors("looking for a checkpoint"):
        saved = (await rest.list_checkpoints(model_id)).checkpoints
    found = next((each for each in saved if each.tinker_path == path), None)
    if found is None:
        raise InputError(f"the service has no checkpoint {path}; it has been deleted, or belongs to somebody else")
    return int(found.size_bytes or 0)


async def _delete_there(path: str) -> None:
    rest = await _rest()
    from cookhouse.training import service_errors

    with service_errors("deleting a checkpoint"):
        await rest.delete_checkpoint_from_tinker_path(path)


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"

"""The options of `cookhouse serve`, and what they come to."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from cookhouse.assets import TINY_MODEL
from cookhouse.cli.runs.names import NAMING, complete_run, run_folder
from cookhouse.cli.serve.backup import back_up_state, check_backup
from cookhouse.cli.serve.checks import check_command, check_port_is_free, is_loopback, parse_keys
from cookhouse.cli.serve.foreground import run_in_foreground
from cookhouse.errors import InputError
from cookhouse.extras import require_engine
from cookhouse.models.names import parse_served
from cookhouse.server.leases.sharing import sharing_of
from cookhouse.service.local import default_state_dir, service_folder

_PORT = 8000

serve_app = typer.Typer()


class ServeCommand(TyperCommand):
    """Takes `--ray` with and without an address behind it, which its parser cannot."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _with_address(args))


def _with_address(words: Sequence[str]) -> list[str]:
    """The words of a command line, with `local` behind a `--ray` that has nothing of its own there."""
    end = words.index("--") if "--" in words else len(words)
    completed: list[str] = []
    for index, word in enumerate(words):
        completed.append(word)
        has_own = index + 1 < end and not words[index + 1].startswith("-")
        if word == "--ray" and index < end and not has_own:
            completed.append("local")
    return completed


@serve_app.command(cls=ServeCommand)
def serve(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND",
            help="Serve while this command runs, which finds the address and a key in its environment, and exit as it "
            "does.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port to listen on; 0 takes a free one.",
            show_default="8000; beside a command a free one",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "--base-model",
            "-m",
            help="Base model: cookhouse/tiny, a hub id or a folder, or NAME=FOLDER to serve a folder under a name that "
            "programs ask for. Repeatable.",
            show_default=TINY_MODEL,
        ),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of checkpoints and database.", show_default="~/.local/state/cookhouse/serve"),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            envvar="COOKHOUSE_DATABASE",
            help="postgresql://USER:PASSWORD@HOST/NAME, a database of PostgreSQL's of its own (extra `postgres`).",
            show_default="server.db in --state-dir",
        ),
    ] = None,
    shared_folder: Annotated[
        Path | None,
        typer.Option(
            help="One of several servers over the same --database: the folder of checkpoints and journal, which all of "
            "them see.",
            show_default="the only server",
        ),
    ] = None,
    server_url: Annotated[
        str | None,
        typer.Option(
            help="Beside --shared-folder: where the other servers reach this one, as in http://10.0.0.1:8000.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(envvar="COOKHOUSE_DEVICE", help="cpu, cuda or cuda:N.", show_default="cuda where there is a GPU"),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]",
            help="Run the engine on Ray (extra `ray`): HOST:PORT of its head, or auto on a machine that is a node of "
            "its cluster; without either on a cluster of this machine, which it starts.",
            show_default="in a process of its own",
        ),
    ] = None,
    worker_cpus: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Cores that an engine takes of a node of Ray's.",
            show_default="1 with a GPU; else all, or an equal part for each of several",
        ),
    ] = None,
    worker_gpus: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="GPUs that an engine takes of a node of Ray's; 0.5 shares one.",
            show_default="1 where there are any",
        ),
    ] = None,
    worker_memory_bytes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Memory that is reserved for an engine at a node of Ray's, and bounds it.", show_default="none"
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            envvar="COOKHOUSE_PRECISION",
            help="float32 or bfloat16, of base model and activations.",
            show_default="bfloat16 where the GPU or the processor gains from it, else float32",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes that train and sample side by side, each with its part of this machine's cores and memory, "
            "or a GPU of its own.",
            show_default="1",
        ),
    ] = None,
    trainers: Annotated[
        int | None, typer.Option(min=1, help="In place of --workers: processes that only train.", show_default=False)
    ] = None,
    samplers: Annotated[
        int | None, typer.Option(min=1, help="Beside --trainers: processes that only sample.", show_default=False)
    ] = None,
    silent_minutes: Annotated[
        float,
        typer.Option(
            min=0.5,
            help="Drop the samples of a client not heard of for this long, waiting and running ones; one that is alive "
            "beats every ten seconds, and samples again by itself.",
        ),
    ] = 1.0,
    session_minutes: Annotated[
        float,
        typer.Option(
            min=0.5,
            help="End the session of a client not heard of for this long: its models are freed, each with all its "
            "waiting requests. One that says goodbye is done at once.",
        ),
    ] = 5.0,
    end_sessions: Annotated[
        Literal["missing"] | None,
        typer.Option(
            help="missing: give up sessions that have not ended and need a base model that is not named here; without, "
            "the start is refused where there are such.",
            show_default="keep all",
        ),
    ] = None,
    max_connections: Annotated[
        int | None,
        typer.Option(
            min=16, help="Connections at a time.", show_default="what the limit of open files leaves (ulimit -n)"
        ),
    ] = None,
    max_address_connections: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of these, from one address, that have not sent a key; beyond it the oldest are closed.",
            show_default="half of all",
        ),
    ] = None,
    max_cache_bytes: Annotated[
        int | None,
        typer.Option(
            envvar="COOKHOUSE_MAX_CACHE_BYTES",
            min=1,
            help="Memory for a base model's key-value cache.",
            show_default="up to half of what is free, as it is needed",
        ),
    ] = None,
    max_snapshot_file_bytes: Annotated[
        int | None,
        typer.Option(
            envvar="COOKHOUSE_MAX_SNAPSHOT_FILE_BYTES",
            min=1,
            help="Disk for weights of sampling clients that wait in files, for each worker.",
            show_default="8 GiB",
        ),
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(
            help="Where requests are kept until they need not be done again: files in the state folder, a URL for "
            "large ones, rows of the database, or off: a killed engine or server then loses its models.",
            show_default="files",
        ),
    ] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where the files of checkpoints are kept, in an object store: s3://BUCKET/FOLDER, gs:// or az:// "
            "(extras `s3`, `gcs`, `azure`). Several servers then need no folder in common for them.",
            show_default="--state-dir, or --shared-folder",
        ),
    ] = None,
    drain_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help="When told to stop, by Ctrl-C or SIGTERM, answer for so long what was accepted; a second one stops at "
            "once.",
        ),
    ] = 30.0,
    samplers_only: Annotated[
        bool,
        typer.Option(
            "--samplers-only",
            help="Sample and refuse to train: a base model then takes the memory of its weights once, as sampling "
            "reads them.",
        ),
    ] = False,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Give each training request a pass of its own: its numbers are the same to the bit whatever other "
            "clients ask for meanwhile. Costs speed where many small models are trained at once.",
        ),
    ] = False,
    stable_reinforce: Annotated[
        Literal["own"] | None,
        typer.Option(
            help="own: where a program asks for the loss stable_reinforce, train by an objective of cookhouse's: that "
            "of the hosted service is not published.",
            show_default="refuse it",
        ),
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(
            help="Run to serve to OpenAI's clients: its last weights, as a model named by its folder: "
            f"{NAMING}. Repeatable.",
            autocompletion=complete_run,
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            envvar="COOKHOUSE_REGISTRY",
            help="Registry to serve to OpenAI's clients, who name its models as name@version or name@stage: a file "
            "that ends in .db, mlflow, module:NAME or file.py:NAME.",
            show_default="none",
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="COOKHOUSE_API_KEYS", help="Keys to accept, comma-separated; default: one that the folder keeps."
        ),
    ] = None,
    backup: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Do not serve: copy the state folder, whose server may be running, to this new folder, and exit.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve models for training and sampling until Ctrl-C, or while a command runs.

    \b
      cookhouse serve
      cookhouse serve -- python train.py

    NAME is asked for with a context suffix as well (NAME:peft:262144): the context is always the model's whole one.
    A sample ends at the model's own end tokens beside what a request names in `stop`; with an empty list it goes on to
    max_tokens.
    """  # noqa: D301  \b keeps lines as they are
    require_engine("cookhouse serve")
    state = state_dir or default_state_dir(os.environ)
    if backup is not None:
        check_backup(state, command=command, database=database, shared_folder=shared_folder, checkpoints=checkpoints)
        back_up_state(state, backup, journal, checkpoints)
        return
    models = model or [TINY_MODEL]
    names = ", ".join(parse_served(models))
    keys = parse_keys(api_key)
    if not keys and not is_loopback(host):
        raise InputError(f"--host {host} is open to other machines; give the keys to accept with --api-key")
    if command:
        check_command(shared_folder, server_url)
    sharing_of(
        folder=shared_folder,
        url=server_url,
        database=database,
        api_keys=keys,
        journal=journal,
        samplers_only=samplers_only,
        end_sessions=[end_sessions] if end_sessions else (),
    )
    listening = port if port is not None else 0 if command else _PORT
    check_port_is_free(host, listening)
    settings = {
        "--device": device,
        "--ray": ray,
        "--worker-cpus": worker_cpus,
        "--worker-gpus": worker_gpus,
        "--worker-memory-bytes": worker_memory_bytes,
        "--precision": precision,
        "--workers": workers,
        "--trainers": trainers,
        "--samplers": samplers,
        "--silent-minutes": silent_minutes,
        "--session-minutes": session_minutes,
        "--end-sessions": end_sessions,
        "--drain-seconds": drain_seconds,
        "--journal": journal,
        "--checkpoints": checkpoints,
        "--stable-reinforce": stable_reinforce,
        "--max-connections": max_connections,
        "--max-address-connections": max_address_connections,
        "--max-cache-bytes": max_cache_bytes,
        "--max-snapshot-file-bytes": max_snapshot_file_bytes,
        "--shared-folder": None if shared_folder is None else shared_folder.absolute(),
        "--server-url": server_url,
    }
    options = [word for name, value in settings.items() if value is not None for word in (name, str(value))]
    options += ["--samplers-only"] * samplers_only + ["--deterministic"] * deterministic
    options += named_weights(run or [], registry)
    code = asyncio.run(run_in_foreground(host, listening, models, names, state, database, keys, command or [], options))
    if command:
        raise typer.Exit(code)


def named_weights(runs: Sequence[str], registry: str | None) -> list[str]:
    """The server's options for weights by name, and for the folders where embedded services keep them.

    Raises:
        InputError: a run is not there or has saved nothing, or the registry cannot be read.
    """
    options: list[str] = []
    folders = [run_folder(run) for run in runs]
    if folders:
        from cookhouse.weights.names import find_weights
    for folder in folders:
        options += ["--run", f"{folder}={find_weights(str(folder)).path('sampling')}"]
    if registry is not None:
        from cookhouse.registry import Query, open_registry

        options += ["--registry", registry]
        versions = open_registry(registry, os.environ).find(Query())
        folders += [Path(version.run_folder) for version in versions if version.run_folder is not None]
    states = [service_folder(folder) for folder in dict.fromkeys(folder.absolute() for folder in folders)]
    return options + [word for state in states if state.is_dir() for word in ("--read-state-dir", str(state))]

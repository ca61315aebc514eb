"""Options of `cookhouse serve`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from cookhouse.assets import TINY_MODEL
from cookhouse.cli.runs.names import NAMING, complete_run


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Each field is an option of the command line, with its help next to it."""

    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND",
            help="Serve while this command runs, which finds the address and a key in its environment, and exit as it "
            "does.",
            show_default=False,
        ),
    ] = None
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port to listen on; 0 takes a free one.",
            show_default="8000; beside a command a free one",
        ),
    ] = None
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "--base-model",
            "-m",
            help="Base model: cookhouse/tiny, a hub id or a folder, or NAME=FOLDER to serve a folder, or "
            "cookhouse/tiny, under a name that programs ask for. Repeatable.",
            show_default=TINY_MODEL,
        ),
    ] = None
    state_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of checkpoints and database.", show_default="~/.local/state/cookhouse/serve"),
    ] = None
    database: Annotated[
        str | None,
        typer.Option(
            envvar="COOKHOUSE_DATABASE",
            help="postgresql://USER:PASSWORD@HOST/NAME, a database of PostgreSQL's of its own (extra `postgres`).",
            show_default="server.db in --state-dir",
        ),
    ] = None
    shared_folder: Annotated[
        Path | None,
        typer.Option(
            help="One of several servers over the same --database: the folder of checkpoints and journal, which all of "
            "them see.",
            show_default="the only server",
        ),
    ] = None
    server_url: Annotated[
        str | None,
        typer.Option(
            help="Beside --shared-folder: where the other servers reach this one, as in http://10.0.0.1:8000.",
            show_default=False,
        ),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(envvar="COOKHOUSE_DEVICE", help="cpu, cuda or cuda:N.", show_default="cuda where there is a GPU"),
    ] = None
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]",
            help="Run the engine on Ray (extra `ray`): HOST:PORT of its head, or auto on a machine that is a node of "
            "its cluster; without either on a cluster of this machine, which it starts.",
            show_default="in a process of its own",
        ),
    ] = None
    worker_cpus: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Cores that an engine takes of a node of Ray's.",
            show_default="1 with a GPU; else all, or an equal part for each of several",
        ),
    ] = None
    worker_gpus: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="GPUs that an engine takes of a node of Ray's; 0.5 shares one.",
            show_default="1 where there are any",
        ),
    ] = None
    worker_memory_bytes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Memory that is reserved for an engine at a node of Ray's, and bounds it.", show_default="none"
        ),
    ] = None
    precision: Annotated[
        str | None,
        typer.Option(
            envvar="COOKHOUSE_PRECISION",
            help="float32 or bfloat16, of base model and activations.",
            show_default="bfloat16 where the GPU or the processor gains from it, else float32",
        ),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes that train and sample side by side, each with its part of this machine's cores and memory, "
            "or a GPU of its own.",
            show_default="1",
        ),
    ] = None
    trainers: Annotated[
        int | None, typer.Option(min=1, help="In place of --workers: processes that only train.", show_default=False)
    ] = None
    samplers: Annotated[
        int | None, typer.Option(min=1, help="Beside --trainers: processes that only sample.", show_default=False)
    ] = None
    silent_minutes: Annotated[
        float,
        typer.Option(
            min=0.5,
            help="Drop the samples of a client not heard of for this long, waiting and running ones; one that is alive "
            "beats every ten seconds, and samples again by itself.",
        ),
    ] = 1.0
    session_minutes: Annotated[
        float,
        typer.Option(
            min=0.5,
            help="End the session of a client not heard of for this long: its models are freed, each with all its "
            "waiting requests. One that says goodbye is done at once.",
        ),
    ] = 5.0
    end_sessions: Annotated[
        Literal["missing"] | None,
        typer.Option(
            help="missing: give up sessions that have not ended and need a base model that is not named here; without, "
            "the start is refused where there are such.",
            show_default="keep all",
        ),
    ] = None
    max_connections: Annotated[
        int | None,
        typer.Option(
            min=16, help="Connections at a time.", show_default="what the limit of open files leaves (ulimit -n)"
        ),
    ] = None
    max_address_connections: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of these, from one address, that have not sent a key; beyond it the oldest are closed.",
            show_default="half of all",
        ),
    ] = None
    max_answer_body_bytes: Annotated[
        int | None,
        typer.Option(
            min=1024,
            help="Largest request of OpenAI's and Anthropic's clients; a larger one gets 413. Agents send megabytes.",
            show_default="8388608",
        ),
    ] = None
    allowed_origins: Annotated[
        str | None,
        typer.Option(
            metavar="ORIGINS",
            help="Pages that may ask the endpoint of OpenAI's and Anthropic's clients by a browser (CORS): "
            "https://HOST, comma-separated, or * for any.",
            show_default="none",
        ),
    ] = None
    max_cache_bytes: Annotated[
        int | None,
        typer.Option(
            envvar="COOKHOUSE_MAX_CACHE_BYTES",
            min=1,
            help="Memory for a base model's key-value cache.",
            show_default="up to half of what is free, as it is needed",
        ),
    ] = None
    max_snapshot_file_bytes: Annotated[
        int | None,
        typer.Option(
            envvar="COOKHOUSE_MAX_SNAPSHOT_FILE_BYTES",
            min=1,
            help="Disk for weights of sampling clients that wait in files, for each worker.",
            show_default="8 GiB",
        ),
    ] = None
    journal: Annotated[
        str | None,
        typer.Option(
            help="Where requests are kept until they need not be done again: files in the state folder, a URL for "
            "large ones, rows of the database, or off: a killed engine or server then loses its models.",
            show_default="files",
        ),
    ] = None
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where the files of checkpoints are kept, in an object store: s3://BUCKET/FOLDER, gs:// or az:// "
            "(extras `s3`, `gcs`, `azure`). Several servers then need no folder in common for them.",
            show_default="--state-dir, or --shared-folder",
        ),
    ] = None
    drain_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help="When told to stop, by Ctrl-C or SIGTERM, answer for so long what was accepted; a second one stops at "
            "once.",
        ),
    ] = 30.0
    samplers_only: Annotated[
        bool,
        typer.Option(
            "--samplers-only",
            help="Sample and refuse to train: a base model then takes the memory of its weights once, as sampling "
            "reads them.",
        ),
    ] = False
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Give each training request a pass of its own: its numbers are the same to the bit whatever other "
            "clients ask for meanwhile. Costs speed where many small models are trained at once.",
        ),
    ] = False
    stable_reinforce: Annotated[
        Literal["own"] | None,
        typer.Option(
            help="own: where a program asks for the loss stable_reinforce, train by an objective of cookhouse's: that "
            "of the hosted service is not published.",
            show_default="refuse it",
        ),
    ] = None
    as_hosted: Annotated[
        bool,
        typer.Option(
            "--as-hosted",
            help="Refuse what the hosted service refuses, in its words and with its codes, so that what runs here runs "
            "there. Without, such a request is done, and a line in the log says so.",
        ),
    ] = False
    max_samples: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Sampling requests that a key may have waiting or running; beyond it 429, and the SDK waits.",
            show_default="8192; 2000 with --as-hosted",
        ),
    ] = None
    max_samplers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Weights that a key may sample from at a time: samples of others wait, and the SDK says so.",
            show_default="any number",
        ),
    ] = None
    run: Annotated[
        list[str] | None,
        typer.Option(
            help="Run to serve to OpenAI's clients: its last weights, as a model named by its folder: "
            f"{NAMING}. Repeatable.",
            autocompletion=complete_run,
        ),
    ] = None
    registry: Annotated[
        str | None,
        typer.Option(
            envvar="COOKHOUSE_REGISTRY",
            help="Registry to serve to OpenAI's clients, who name its models as name@version or name@stage: a file "
            "that ends in .db, mlflow, module:NAME or file.py:NAME.",
            show_default="none",
        ),
    ] = None
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="COOKHOUSE_API_KEYS", help="Keys to accept, comma-separated; default: one that the folder keeps."
        ),
    ] = None
    started_as: Annotated[str, typer.Option(hidden=True, help="The words of the command line, as typed.")] = ""
    backup: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Do not serve: copy the state folder, whose server may be running, to this new folder, and exit.",
            show_default=False,
        ),
    ] = None

    def words(self) -> list[str]:
        """The options that the server's process takes by the same names, as words of its command line."""
        named = [(f"--{name.replace('_', '-')}", getattr(self, name)) for name in HANDED_ON]
        given = [(name, value) for name, value in named if value is not None and value is not False]
        return [word for name, value in given for word in ([name] if value is True else [name, str(value)])]


HANDED_ON = (
    *("device", "ray", "worker_cpus", "worker_gpus", "worker_memory_bytes", "precision"),
    *("workers", "trainers", "samplers", "silent_minutes", "session_minutes", "end_sessions", "drain_seconds"),
    *("journal", "checkpoints", "stable_reinforce", "as_hosted", "max_samples", "max_samplers"),
    *("max_connections", "max_address_connections", "max_answer_body_bytes", "allowed_origins"),
    *("max_cache_bytes", "max_snapshot_file_bytes", "shared_folder", "server_url", "samplers_only", "deterministic"),
)

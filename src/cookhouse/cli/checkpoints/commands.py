"""`cookhouse checkpoints`: what is saved on this machine, and its way to other libraries and back."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cookhouse.blobs import open_blobs, put_folder
from cookhouse.cli.checkpoints.deletion import delete
from cookhouse.cli.checkpoints.saved import SavedCheckpoint, find_saved, folder_of, list_saved
from cookhouse.cli.help import WholeSentences
from cookhouse.cli.runs.names import NAMING, complete_run, run_folder
from cookhouse.cli.tables import side_by_side, when
from cookhouse.errors import InputError
from cookhouse.extras import require_engine
from cookhouse.models.names import plain_name
from cookhouse.models.serving import serving_note
from cookhouse.runs.names import CONFIG_FILE
from cookhouse.service.local import default_state_dir

checkpoints_app = typer.Typer(cls=WholeSentences, help="List, inspect, export, push, import and delete checkpoints.")

_THE_BASES = "that of the base model"
_UNTIED = (
    "the output projection was trained: it has weights of its own in this model, and no longer those of the embeddings"
)
_KINDS = {"weights": "state", "sampler_weights": "sampler", "external_weights": "external"}


class Format(StrEnum):
    """Format in which a checkpoint is written."""

    PEFT = "peft"
    MERGED = "merged"


class Precision(StrEnum):
    """Of a merged model's weights."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


Which = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="tinker:// path, a checkpoint's folder, a registered model such as sums@1, or a run, meaning its best if "
        f"it keeps that, else its last: {NAMING}.",
        autocompletion=complete_run,
    ),
]
Run = Annotated[
    str | None, typer.Option(help="The run that saved the tinker:// path, named as above.", autocompletion=complete_run)
]
StateDir = Annotated[
    Path | None,
    typer.Option(help="State folder of the server that keeps it.", show_default="~/.local/state/cookhouse/serve"),
]


@checkpoints_app.callback(invoke_without_command=True)
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@checkpoints_app.command("list")
def list_(
    where: Annotated[
        str, typer.Argument(help=f"A run ({NAMING}), or the state folder of a server.", autocompletion=complete_run)
    ],
) -> None:
    """List checkpoints, oldest first."""
    found = list_saved(run_folder(where))
    from cookhouse.telemetry import make_console, say

    header = ("checkpoint", "step", "kind", "rank", "size", "saved")
    console = make_console()
    for line in side_by_side(header, [_row(saved) for saved in found], console.width if console.is_terminal else None):
        say(console, line)
    for best in dict.fromkeys(saved.best for saved in found if saved.best is not None):
        typer.echo(f"the best: {best}")


@checkpoints_app.command()
def info(which: Which, run: Run = None, state_dir: StateDir = None) -> None:
    """Show what a checkpoint holds."""
    saved = find_saved(which, run, state_dir)
    facts = [*_recorded(saved), *_contained(folder_of(saved))]
    for name, fact in facts:
        typer.echo(f"{name:<12} {fact}")


@checkpoints_app.command()
def export(
    which: Which,
    output: Annotated[
        str, typer.Argument(help="Folder to make, or where to put its files: s3://, gs:// or az:// with a bucket.")
    ],
    format: Annotated[  # noqa: A002  the flag is called so
        Format, typer.Option(help="peft: the adapter alone. merged: a whole model, the adapter added to its weights.")
    ] = Format.PEFT,
    precision: Annotated[
        Precision | None,
        typer.Option(
            help="Of a merged model; float32 keeps all that was learned, bfloat16 rounds it.", show_default=_THE_BASES
        ),
    ] = None,
    run: Run = None,
    state_dir: StateDir = None,
) -> None:
    """Write a checkpoint as a folder that peft or transformers loads, with the same outputs."""
    require_engine("exporting a checkpoint")
    saved = find_saved(which, run, state_dir)
    origin = _origin(saved)
    write = partial(
        _write_export, folder_of(saved), base_name=_base_name(saved), form=format, precision=precision, origin=origin
    )
    is_elsewhere = "://" in output
    blobs = open_blobs(output) if is_elsewhere else None  # refused before minutes are spent on a merge
    if not is_elsewhere and Path(output).exists():
        raise InputError(f"{output} exists; choose another folder")
    if blobs is not None and blobs.list(""):
        raise InputError(f"{output} holds files; choose another place")
    typer.echo(f"exporting {which}", err=True)
    _quiet_unless_watched()
    if blobs is None:
        lines, notes = write(Path(output))
        needs = " (python -m pip install peft)" if format is Format.PEFT else ""
        typer.echo(f"wrote {output} ({_size(_num_bytes(Path(output)))}); in Python{needs}:\n")
        for line in lines:
            typer.echo(f"  {line}")
        _tell(notes)
        return
    with tempfile.TemporaryDirectory(prefix="cookhouse-export-") as temporary:
        _, notes = write(Path(temporary) / "export")
        put = put_folder(blobs, Path(temporary) / "export", "")
    typer.echo(f"wrote {output} ({_size(sum(blob.num_bytes for blob in put))}, {len(put)} files)")
    _tell(notes)


def _tell(notes: Sequence[str]) -> None:
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def _write_export(
    folder: Path,
    output: Path,
    *,
    base_name: str | None,
    form: Format,
    precision: Precision | None,
    origin: Mapping[str, str],
) -> tuple[Sequence[str], Sequence[str]]:
    """Write a checkpoint's folder in a form; lines of Python that load it on this machine, and notes for a person."""
    from cookhouse.engine.export import export_merged, export_peft, inspect
    from cookhouse.engine.files.model_card import load_merged_lines, load_peft_lines
    from cookhouse.engine.model.pretrained import auto_class

    found = inspect(folder)
    loaded_by = auto_class(found.base_model)
    if form is Format.PEFT:
        export_peft(folder, output, base_name=base_name, origin=origin)
        note = serving_note(rank=found.lora.rank, train_unembed=found.lora.train_unembed)
        return load_peft_lines(found.base_model, str(output), loaded_by), [] if note is None else [note]
    asked = None if precision is None else precision.value
    merged = export_merged(folder, output, precision=asked, base_name=base_name, origin=origin)
    return load_merged_lines(str(output), merged.precision, loaded_by), [_UNTIED] if merged.is_untied else []


@checkpoints_app.command("import")
def import_(
    folder: Annotated[
        Path, typer.Argument(help="PEFT folder, with its weights in safetensors, or folder of a checkpoint.")
    ],
    name: Annotated[str, typer.Option(help="Name to save it under.")] = "imported",
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Base model; default: the one that the adapter names.")
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            help="State folder of the server to keep it, which must not be running.",
            show_default="~/.local/state/cookhouse/serve",
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="COOKHOUSE_API_KEYS", help="Key that may use it; default: one that the folder keeps."),
    ] = None,
) -> None:
    """Make a PEFT adapter, or a folder that a server put aside, a checkpoint to train on from or to sample."""
    require_engine("importing a checkpoint")
    _quiet_unless_watched()
    from cookhouse.engine.export import import_peft
    from cookhouse.engine.files.manifest import is_checkpoint, read_num_steps, read_spec
    from cookhouse.server.storage.checkpoints.offline import add_checkpoint
    from cookhouse.service.local import folder_key

    kept_in = state_dir or default_state_dir(os.environ)
    kept_in.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept_in, prefix=".import-") as temporary:
        files = Path(temporary) / "checkpoint"
        if is_checkpoint(folder):
            (base_model, lora), has_optimizer = read_spec(folder), read_num_steps(folder) > 0
            shutil.copytree(folder, files)
        else:
            (base_model, lora), has_optimizer = import_peft(folder, files, base_model=model), False
        row = add_checkpoint(
            kept_in,
            files,
            name=name,
            base_model=base_model,
            lora=lora,
            has_optimizer=has_optimizer,
            api_key=(api_key or "").split(",")[0].strip() or folder_key(kept_in),
            source=str(folder),
        )
    typer.echo(f"{row.path}\n")
    typer.echo(f"  cookhouse serve --model {base_model}" + (f" --state-dir {state_dir}" if state_dir else ""))
    typer.echo(f"  cookhouse run supervised model_name={base_model} load_checkpoint_path={row.path}")


@checkpoints_app.command()
def push(
    which: Which,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the repository on the hub, such as me/my-model.")],
    format: Annotated[  # noqa: A002  the flag is called so
        Format, typer.Option(help="peft: the adapter alone. merged: a whole model, the adapter added to its weights.")
    ] = Format.PEFT,
    precision: Annotated[Precision | None, typer.Option(help="Of a merged model.", show_default=_THE_BASES)] = None,
    public: Annotated[bool, typer.Option("--public", help="Make a new repository public; it is private else.")] = False,
    run: Run = None,
    state_dir: StateDir = None,
) -> None:
    """Put a checkpoint on the hub, exported as `export` does, with a model card.

    The token is that of HF_TOKEN or of `hf auth login`, and must be allowed to write. A repository that is there keeps
    its visibility, and gets a new commit.
    """
    require_engine("exporting a checkpoint")
    from cookhouse.models.hub import check_name, current_hub

    check_name(name)
    hub = current_hub()
    saved = find_saved(which, run, state_dir)
    origin = _origin(saved)
    _quiet_unless_watched()
    with tempfile.TemporaryDirectory(prefix="cookhouse-push-") as temporary:
        folder = Path(temporary) / "export"
        _, notes = _write_export(
            folder_of(saved), folder, base_name=_base_name(saved), form=format, precision=precision, origin=origin
        )
        size = _size(_num_bytes(folder))
        typer.echo(f"pushing {size} to {'public' if public else 'private'} {name}", err=True)
        address = hub.upload(folder, name, private=not public)
    typer.echo(f"{address} ({size})")
    _tell(notes)


checkpoints_app.command()(delete)


def _base_name(saved: SavedCheckpoint) -> str | None:
    """Name under which the base model of a checkpoint was served; None: no server knows of the checkpoint."""
    return None if saved.row is None else plain_name(saved.row.base_model)


def _origin(saved: SavedCheckpoint) -> dict[str, str]:
    """Entries of a model card on where a checkpoint came from; of a run also its recipe and chat format."""
    config_file = (saved.run or Path()) / CONFIG_FILE
    is_known = saved.run is not None and config_file.is_file()
    try:
        recorded = dict(json.loads(config_file.read_text(encoding="utf-8"))) if is_known else {}
        config = dict(recorded.get("config", {}))
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{config_file} is not the config of a run ({error}); name the checkpoint's own folder"
        ) from error
    facts = {
        "recipe": recorded.get("recipe"),
        "chat format (renderer)": config.get("renderer_name"),
        "learning rate": config.get("learning_rate"),
        "seed": recorded.get("seed"),
        "optimizer steps": saved.step,
        "checkpoint": saved.path,
        "cookhouse": recorded.get("version"),
    }
    return {name: str(fact) for name, fact in facts.items() if fact is not None}


def _row(saved: SavedCheckpoint) -> Sequence[str]:
    step = "-" if saved.step is None else str(saved.step)
    if saved.row is None:
        return (saved.path or "-", step, "-", "-", "-", "-")
    return (
        saved.row.path,
        step,
        _KINDS[saved.row.kind],
        _rank(saved.row.lora_spec.rank),
        _size(saved.row.size_bytes),
        when(saved.row.created_at),
    )


def _recorded(saved: SavedCheckpoint) -> Iterable[tuple[str, str]]:
    """Facts about a checkpoint that its files do not hold."""
    if saved.path is not None:
        yield "path", saved.path
    if saved.step is not None:
        yield "step", str(saved.step)
    if saved.best is not None:
        yield "best", saved.best
    if saved.row is not None:
        yield "kind", _KINDS[saved.row.kind]
        yield "saved", when(saved.row.created_at)
        yield "expires", "never" if saved.row.expires_at is None else when(saved.row.expires_at)


def _contained(folder: Path) -> Iterable[tuple[str, str]]:
    """Facts that the files of a checkpoint hold."""
    from cookhouse.engine.export import inspect

    found = inspect(folder)
    parts = {"attention": found.lora.train_attn, "MLP": found.lora.train_mlp, "output": found.lora.train_unembed}
    yield "base model", found.base_model
    yield "rank", _rank(found.lora.rank)
    yield "trained", ", ".join(name for name, is_trained in parts.items() if is_trained)
    yield "optimizer", f"after {found.num_steps} steps" if found.num_steps else "none"
    yield "size", _size(found.num_bytes)
    yield "folder", str(folder)


def _quiet_unless_watched() -> None:
    """No progress bars in a file or a pipe."""
    if not sys.stderr.isatty():
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()


def _num_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _rank(rank: int) -> str:
    return str(rank) if rank else "all weights"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"

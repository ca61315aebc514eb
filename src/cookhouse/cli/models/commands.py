"""`cookhouse models`: registered models, their stages, and where they came from."""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cookhouse.cli.runs.names import NAMING, complete_run
from cookhouse.cli.tables import aligned, when
from cookhouse.errors import InputError, printable

if TYPE_CHECKING:
    from cookhouse.registry import Artifact, ModelRegistry, ModelVersion

models_app = typer.Typer(
    help="""Registered models: versions under names, their stages, metrics and lineage.

    A run registers what it trained when it is given a name:

        cookhouse run supervised registered_model_name=sums

    A registered model names weights wherever a path of them is asked for, by version or by stage:

        cookhouse run rl load_checkpoint_path=sums@1

        cookhouse sample sums@production "a question"

    The registry is runs/registry.db, unless COOKHOUSE_REGISTRY or --registry names another.""",
    rich_markup_mode=None,
)

Which = Annotated[
    str, typer.Argument(metavar="MODEL", help="name@version, name@stage, or a name: its highest version.")
]
Registry = Annotated[
    str | None,
    typer.Option(
        envvar="COOKHOUSE_REGISTRY",
        help="A file that ends in .db, mlflow (at MLFLOW_TRACKING_URI), module:NAME or file.py:NAME.",
        show_default="runs/registry.db",
    ),
]


_WIDEST = 1000
"""Cells of a line: whoever looks at it wraps it."""


@models_app.callback(invoke_without_command=True)
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@models_app.command("list")
def list_(
    name: Annotated[str | None, typer.Argument(help="Versions of this name; default: of every name.")] = None,
    stage: Annotated[str | None, typer.Option(help="experiment, staging, production or archived.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="BOUND", help="What a metric has to be, as in 'accuracy>=0.9'; may be repeated."),
    ] = None,
    sort: Annotated[str | None, typer.Option(metavar="METRIC", help="The highest of this metric first.")] = None,
    ascending: Annotated[bool, typer.Option("--ascending", help="With --sort: the lowest first.")] = False,
    registry: Registry = None,
) -> None:
    """List versions, by name, stage and metrics.

    Such as the best of those that are not in use yet:

    \b
      cookhouse models list --stage experiment --where 'nll<0.5' --sort accuracy
    """  # noqa: D301  \b keeps lines as they are
    from cookhouse.registry import Query, parse_bound, parse_stage

    query = Query(
        name=name,
        stage=None if stage is None else parse_stage(stage),
        bounds=tuple(parse_bound(text) for text in where or ()),
        order_by=sort,
        is_ascending=ascending,
    )
    found = _open(registry).find(query)
    if not found:
        of_all = "; a run registers what it trained when it is given a name: registered_model_name=NAME"
        typer.echo("no registered model" + (of_all if query == Query() else " fits"))
        return
    titles = ("model", "stage", "base model", "came from", sort or "headline", "registered")
    for line in aligned([titles, *(_row(version, sort) for version in found)]):
        typer.echo(line)


@models_app.command()
def show(which: Which, registry: Registry = None) -> None:
    """Show a version and its lineage.

    What it is, the stages it came to, what it measured, whether its weights are still what was registered, and, as a
    tree, what it came from and what came from it:

    \b
      cookhouse models show sums@production
    """  # noqa: D301  \b keeps lines as they are
    from rich.console import Console

    from cookhouse.cli.models.lineage import lineage_tree
    from cookhouse.telemetry import make_console, say, say_fact

    opened = _open(registry)
    version = opened.get(which)
    console = make_console()
    facts = list(_facts(version))
    width = 1 + max(len(name) for name, _ in facts)
    for name, fact in facts:
        say_fact(console, f"{name:<{width}}", fact)
    if version.metrics:
        say(console, "measured")
        for line in aligned([(f"  {printable(metric)}", _number(version, metric)) for metric in version.metrics]):
            say(console, line)
    say(console, "")
    Console(highlight=False, width=_WIDEST).print(lineage_tree(opened, version), crop=False, no_wrap=True)


@models_app.command()
def register(
    name: Annotated[str, typer.Argument(help="The name; its next version is made.")],
    weights: Annotated[
        str,
        typer.Argument(
            help=f"A run, meaning its best checkpoint if it keeps that, else its last ({NAMING}), a tinker:// path, or "
            "a folder of weights.",
            autocompletion=complete_run,
        ),
    ],
    run: Annotated[
        str | None,
        typer.Option(help="The run that saved a tinker:// path, named as above.", autocompletion=complete_run),
    ] = None,
    base_model: Annotated[str | None, typer.Option(help="Default: what the run or the folder says.")] = None,
    parent: Annotated[str | None, typer.Option(help="The model that it came from; default: the run's.")] = None,
    descent: Annotated[
        str, typer.Option(help="fine_tuned_from, dpo_trained_from, rl_trained_from or distilled_from.")
    ] = "fine_tuned_from",
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="What it measured, the headline first; may be repeated."),
    ] = None,
    registry: Registry = None,
) -> None:
    """Register weights by hand.

    Those of a run that was given no name, or from elsewhere:

    \b
      cookhouse models register sums runs/first --metric accuracy=0.95
      cookhouse models register sums ./peft --parent sums@1
    """  # noqa: D301  \b keeps lines as they are
    from cookhouse.cli.models.registering import model_by_hand

    opened = _open(registry)
    new = model_by_hand(
        opened, name, weights, run=run, base_model=base_model, parent=parent, descent=descent, metrics=metric or ()
    )
    version = opened.register(new)
    typer.echo(f"registered {version.id}")


@models_app.command()
def promote(
    which: Which,
    stage: Annotated[str, typer.Argument(help="experiment, staging, production or archived.")],
    registry: Registry = None,
) -> None:
    """Bring a version to another stage.

    One version of a name is in production at most, and the one before it is archived:

    \b
      cookhouse models promote sums@3 production
    """  # noqa: D301  \b keeps lines as they are
    from cookhouse.registry import ModelStage, Query, parse_stage

    to = parse_stage(stage)
    opened = _open(registry)
    version = opened.get(which)
    before = opened.find(Query(name=version.name, stage=ModelStage.PRODUCTION)) if to == "production" else ()
    promoted = opened.promote(version.id, to)
    typer.echo(f"{promoted.id}: {version.stage} -> {promoted.stage}")
    for other in before:
        if other.id != promoted.id:
            typer.echo(f"{other.id}: production -> {opened.get(other.id).stage}")


@models_app.command()
def compare(
    which: Annotated[list[str], typer.Argument(metavar="MODEL", help="Two or more, each as name@version.")],
    registry: Registry = None,
) -> None:
    """Put versions side by side.

    What they are, and what they measured:

    \b
      cookhouse models compare sums@production sums@4
    """  # noqa: D301  \b keeps lines as they are
    if len(which) < 2:
        raise InputError("name two models or more to compare, such as sums@production sums@4")
    opened = _open(registry)
    versions = [opened.get(name) for name in which]
    for line in aligned([("", *(version.id for version in versions)), *_compared(versions)]):
        typer.echo(line)


@models_app.command("set-parent")
def set_parent(
    which: Which,
    parent: Annotated[str | None, typer.Argument(help="The model that it came from; default: its base model.")] = None,
    descent: Annotated[
        str, typer.Option(help="fine_tuned_from, dpo_trained_from, rl_trained_from or distilled_from.")
    ] = "fine_tuned_from",
    registry: Registry = None,
) -> None:
    """Say where a version came from.

    One that was registered by hand, or before its parent:

    \b
      cookhouse models set-parent sums@2 sums@1 --descent rl_trained_from
    """  # noqa: D301  \b keeps lines as they are
    from cookhouse.cli.models.registering import parse_descent

    version = _open(registry).set_parent(which, parent, parse_descent(descent))
    typer.echo(f"{version.id} {version.descent} {version.parent or version.base_model}")


@models_app.command()
def delete(
    which: Which,
    force: Annotated[bool, typer.Option("--force", help="Even if other versions came from it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    registry: Registry = None,
) -> None:
    """Forget a version.

    Its weights stay where they are, and its number is not given again:

    \b
      cookhouse models delete sums@2
    """  # noqa: D301  \b keeps lines as they are
    opened = _open(registry)
    version = opened.get(which)
    if not yes:
        _confirm(version)
    opened.delete(version.id, force=force)
    typer.echo(f"deleted {version.id}; its weights are still at {printable(version.artifact.path)}")


def _confirm(version: "ModelVersion") -> None:
    if not sys.stdin.isatty():
        raise InputError(f"deleting {version.id} has to be confirmed, and there is no terminal to ask on; add --yes")
    typer.confirm(f"delete {version.id}, in {version.stage}?", abort=True)


def _open(registry: str | None) -> "ModelRegistry":
    from cookhouse.registry import open_registry

    return open_registry(registry, os.environ)


def _row(version: "ModelVersion", metric: str | None) -> Sequence[str]:
    from cookhouse.cli.models.lineage import headline

    measured = headline(version) if metric is None else _number(version, metric)
    return (
        version.id,
        version.stage + (" (synthetic)" if version.is_synthetic else ""),
        printable(version.base_model),
        f"{version.descent} {version.parent}" if version.parent else "-",
        measured or "-",
        when(version.created_at),
    )


def _facts(version: "ModelVersion") -> Iterator[tuple[str, str]]:
    yield "model", version.id + ("   SYNTHETIC: something that no service computed went into it" * version.is_synthetic)
    yield "stage", ", ".join(f"{change.stage} ({when(change.at)})" for change in version.history)
    yield "base model", printable(version.base_model)
    yield "came from", f"{version.descent} {version.parent or 'its base model'}"
    for name, fact in (("recipe", version.recipe), ("run", version.run_folder), ("config sha256", version.config_hash)):
        if fact is not None:
            yield name, printable(fact)
    yield "weights", _weights(version.artifact)
    if version.sampler is not None:
        yield "to sample", _weights(version.sampler)


def _weights(artifact: "Artifact") -> str:
    """Place of weights, and a remark where they are not those that were registered."""
    from cookhouse.registry import ArtifactState, artifact_state

    said = {
        ArtifactState.INTACT: f"intact, sha256 {artifact.sha256}",
        ArtifactState.CHANGED: f"CHANGED since they were registered with sha256 {artifact.sha256}",
        ArtifactState.GONE: f"GONE: there are no files in {artifact.files}",
        ArtifactState.ELSEWHERE: "on another service: not checked"
        + ("" if artifact.sha256 is None else f", sha256 {artifact.sha256}"),
    }
    return f"{printable(artifact.path)}   {printable(said[artifact_state(artifact)])}"


def _compared(versions: "Sequence[ModelVersion]") -> Iterator[Sequence[str]]:
    facts = {
        "stage": [str(version.stage) for version in versions],
        "base model": [printable(version.base_model) for version in versions],
        "came from": [version.parent or "base model" for version in versions],
        "descent": [str(version.descent) for version in versions],
        "recipe": [printable(version.recipe or "-") for version in versions],
        "config sha256": [(version.config_hash or "-")[:12] for version in versions],
        "registered": [when(version.created_at) for version in versions],
        "synthetic": ["yes" if version.is_synthetic else "no" for version in versions],
    }
    yield from ((name, *values) for name, values in facts.items())
    for metric in dict.fromkeys(metric for version in versions for metric in version.metrics):
        yield (printable(metric), *(_number(version, metric) or "-" for version in versions))


def _number(version: "ModelVersion", metric: str) -> str:
    from cookhouse.telemetry import find_metric

    return find_metric(metric).text(version.metrics[metric]) if metric in version.metrics else ""

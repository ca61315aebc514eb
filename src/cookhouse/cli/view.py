"""`cookhouse view`: runs in a browser, while they learn."""

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import typer

from cookhouse.cli.runs.names import NAMING, Under, complete_run
from cookhouse.errors import InputError
from cookhouse.runs.names import RUNS_FOLDER

if TYPE_CHECKING:
    from cookhouse.view.place import Place


def view(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUNS",
            help=f"A run, to open its page: {NAMING}. Several, to compare them. A folder of runs, to show those. "
            "Default: all runs.",
            autocompletion=complete_run,
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, help="Port to listen on; 0: a free one.", show_default="8600, or a free one if it is in use"
        ),
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser of this machine as well.")
    ] = False,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of preferences given in the playground; a recipe over pairs takes it.",
            show_default="labels.jsonl in the folder of runs",
        ),
    ] = None,
    under: Under = RUNS_FOLDER,
) -> None:
    """Show runs in a browser while they learn: curves that grow, rollouts, tokens, what the model says now.

    Prints an address to click. It holds a token, without which nothing is shown, and is served to this machine alone,
    until Ctrl-C. The page reads the files of runs and changes none; runs need not be told of it.

    \b
      cookhouse view              all runs in runs/, those that start later too
      cookhouse view 3            one of them
      cookhouse view 3 4          two, compared
      cookhouse view /data/runs   those of another folder

    From another machine, through a tunnel (with the address that was printed there):

    \b
      ssh -L 8600:localhost:8600 THERE

    A run serves its own page as long as it goes with view=true: cookhouse run supervised view=true
    """  # noqa: D301  \b keeps lines as they are
    from cookhouse.view.access import Access
    from cookhouse.view.serving import serve

    place, path = _shown(runs or [], under)
    access = Access()

    def tell(url: str) -> None:
        address = url + access.with_token(path)
        typer.echo(f"serving the runs in {place.folder}/ until Ctrl-C; open\n\n  {address}\n")
        if open_ and not webbrowser.open(address):
            typer.echo("no browser could be opened here; click the address, or copy it", err=True)

    serve(place, access, port, tell, labels=labels)


def _shown(names: Sequence[str], under: Path) -> "tuple[Place, str]":
    """The place, and the path of the page to begin with."""
    from cookhouse.files import is_folder
    from cookhouse.pages import run_address
    from cookhouse.runs.listing.find import find_run, find_runs, is_run
    from cookhouse.view.place import Place, place_of

    if not names:
        if under != RUNS_FOLDER and not under.is_dir():
            raise InputError(f"there is no folder {under}; name one of runs with --under")
        return Place(under), "/"
    if len(names) == 1 and is_folder(Path(names[0])) and not is_run(Path(names[0])):
        if not find_runs(Path(names[0])):
            raise InputError(f"there are no runs in {names[0]}; name a run, or a folder of runs")
        return Place(Path(names[0])), "/"
    found = [place_of(find_run(name, under), under) for name in names]
    place, name = found[0]
    if len(found) == 1:
        return place, run_address(name)
    if len({other.folder.resolve() for other, _ in found}) > 1 or place.only is not None:
        raise InputError(f"runs are compared that lie in one folder; name that one with --under, not {under}")
    return place, "/compare?" + urlencode([("run", name) for _, name in found])

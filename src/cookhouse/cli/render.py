"""`cookhouse render`: a conversation as the model sees it, and whether that can be trusted."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cookhouse.assets import TINY_MODEL
from cookhouse.cli.help import WholeSentences

if TYPE_CHECKING:
    from cookhouse.chat import Renderer
    from cookhouse.chat.checks import CheckResult
    from cookhouse.report import RenderedExample

EXIT_BROKEN = 1
_SHOW = "show"
_ONLY_ROWS = 3
_Model = Annotated[str, typer.Option("--model", "-m", help="Embedded model, hub id or local folder.")]
_RendererName = Annotated[
    str, typer.Option("--renderer", help="Renderer by name, module:NAME or file.py:NAME; default: the model's own.")
]


class _ShowUnlessNamed(WholeSentences):
    """`render mine.jsonl` is `render show mine.jsonl`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_asked = ctx.resilient_parsing or (args and (args[0] in self.commands or args[0] in ("--help", "-h")))
        if not is_asked:
            args = [_SHOW, *args]
        return list(super().parse_args(ctx, args))


render_app = typer.Typer(
    cls=_ShowUnlessNamed,
    help="Show conversations as a model sees them, every token with its weight; or check a renderer.\n\n"
    "\b\n  cookhouse render mine.jsonl -m Qwen/Qwen3-8B --page tokens.html\n"
    "  cookhouse render check ./my_model",
    rich_markup_mode=None,
    no_args_is_help=False,
)


@render_app.command(_SHOW)
def show(
    data: Annotated[
        str, typer.Argument(help="Conversations as a run takes them; default: the bundled ones.", show_default=False)
    ] = "",
    model: _Model = TINY_MODEL,
    renderer: _RendererName = "",
    train_on_what: Annotated[str, typer.Option(help="Which messages carry weight.")] = "all_assistant_messages",
    columns: Annotated[
        str, typer.Option(help="Your columns of our fields, as in prompt:Question,completion:Answer.")
    ] = "",
    rows: Annotated[int, typer.Option(min=1, help="How many conversations, from the first.")] = _ONLY_ROWS,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="A line for each token: position, id, weight, text.")
    ] = False,
    force_renderer: Annotated[bool, typer.Option("--force-renderer", help="Take one that does not fit.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="Write an HTML page there instead of the terminal.", show_default=False)
    ] = None,
) -> None:
    """Show conversations as the model sees them: trained tokens stand out, special ones are spelled.

    On a terminal as text in color, marks reversed; otherwise, or with --tokens, a line for each token, with `mark`
    behind those that are marks and no letters.
    """
    from cookhouse.assets import data_file
    from cookhouse.data import (
        build_renderer,
        data_source,
        mark_remarks,
        parse_columns,
        parse_train_on_what,
        read_conversations,
        rendered,
    )
    from cookhouse.errors import printable
    from cookhouse.report import render_page
    from cookhouse.telemetry import make_console, say

    mode = parse_train_on_what(train_on_what)
    found = build_renderer(model, renderer or None, force=force_renderer)
    source = data_source(data or data_file("conversations/train.jsonl"), limit=rows, columns=parse_columns(columns))
    conversations = read_conversations(source)
    examples = [
        _example(f"{conversation.source}, example {number}", found, *example)
        for conversation in conversations
        for number, example in enumerate(rendered(conversation, found, mode), start=1)
    ]
    for remark in mark_remarks(conversations, found.encoder):
        say(make_console(stderr=True), printable(remark))
    if page is not None:
        page.write_text(render_page(examples, title=f"{data or 'bundled conversations'} for {model}"), encoding="utf-8")
        typer.echo(page)
        return
    _print_examples(examples, as_lines=tokens)


@render_app.command("check")
def check(
    model: Annotated[str, typer.Argument(help="Embedded model, hub id or local folder.")],
    renderer: _RendererName = "",
    force_renderer: Annotated[bool, typer.Option("--force-renderer", help="Take one that does not fit.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Every conversation that is refused or differs.")
    ] = False,
) -> None:
    """Check a renderer on awkward conversations.

    prefix: a trained answer follows the prompt that it would be sampled from. round trip: what is written of an answer
    is read as that answer. extension: each prompt begins with all turns before it, where the renderer says so. stop: a
    response ends where sampling stops. no forgery: no text becomes a special token. template: tokens are those of the
    model's chat template; a renderer may differ from that on purpose. Exits with 1 if a promise is broken.
    """
    from cookhouse.chat.checks import AWKWARD, CheckOutcome, check_renderer
    from cookhouse.data import build_renderer

    found = build_renderer(model, renderer or None, force=force_renderer)
    results = check_renderer(found, AWKWARD)
    _print_results(results, is_whole=verbose)
    if any(result.outcome is CheckOutcome.BROKEN for result in results):
        raise typer.Exit(EXIT_BROKEN)


def _example(title: str, renderer: "Renderer", model_input: Any, weights: Sequence[float]) -> "RenderedExample":
    from cookhouse.report import RenderedExample, RenderedToken

    special = {*renderer.encoder.marks.values()}
    tokens = [
        RenderedToken(
            position=position,
            id=token,
            text=renderer.encoder.decode([token]),
            weight=weight,
            is_special=token in special,
        )
        for position, (token, weight) in enumerate(zip(model_input.to_ints(), weights, strict=True))
    ]
    return RenderedExample(title=title, tokens=tokens)


def _print_examples(examples: Sequence["RenderedExample"], *, as_lines: bool) -> None:
    from rich.text import Text

    from cookhouse.errors import printable
    from cookhouse.telemetry import make_console, say

    console = make_console()
    for example in examples:
        say(console, f"{example.title}: {len(example.tokens)} tokens, {example.num_trained} trained", style="bold")
        if as_lines or not console.is_terminal:
            for token in example.tokens:
                mark = "\tmark" if token.is_special else ""
                typer.echo(f"{token.position}\t{token.id}\t{token.weight:g}\t{token.text!r}{mark}")
            continue
        text = Text()
        for token in example.tokens:
            shade = "underline" if token.position % 2 else ""
            style = f"{'bold green' if token.weight else 'dim'} {shade} {'reverse' if token.is_special else ''}"
            text.append(printable(token.text, keep="\n\t"), style=" ".join(style.split()))
        console.print(text)
        console.print()


def _print_results(results: Sequence["CheckResult"], *, is_whole: bool) -> None:
    from rich.table import Table

    from cookhouse.chat.checks import CheckOutcome
    from cookhouse.errors import printable
    from cookhouse.telemetry import make_console, say

    console = make_console()
    table = Table(box=None, pad_edge=False)
    for name in ("promise", *CheckOutcome):
        table.add_column(name, justify="left" if name == "promise" else "right")
    for promise in dict.fromkeys(result.promise for result in results):
        counts = Counter(result.outcome for result in results if result.promise == promise)
        table.add_row(promise, *(str(counts[outcome] or "") for outcome in CheckOutcome))
    console.print(table)
    told: dict[str, list[str]] = {}
    for result in results:
        if result.detail:
            told.setdefault(f"{result.outcome}: {result.detail}", []).append(
                f"{result.promise} of {result.conversation}"
            )
    for detail, where in told.items():
        more = f" and {len(where) - 1} more" if len(where) > 1 and not is_whole else ""
        say(console, f"{', '.join(where) if is_whole else where[0]}{more} {printable(detail)}")

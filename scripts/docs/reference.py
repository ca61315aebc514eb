"""What pages have from the code: `<!-- generated: NAME -->` in a page stands for what `PARTS` makes of that name."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import typer
from scripts.docs.signatures import with_directives

from cookhouse.cli.main import app as command_line
from cookhouse.diagnosis import RULES
from cookhouse.losses.pair_losses import BUILT_IN_PAIR_LOSSES
from cookhouse.losses.policy_losses import POLICY_LOSSES
from cookhouse.recipes import Recipe, aliases_of, config_fields, every_recipe
from cookhouse.telemetry import Metric
from cookhouse.telemetry.keys import BUILT_IN
from cookhouse.telemetry.main_metrics import DETAILS, DETAILS_OF_ONE, FAILURES

HELP_WIDTH = 100
_MARK = re.compile(r"^<!-- generated: (?P<name>[a-z-]+) -->$", re.MULTILINE)


def fill_in(app: Any, page: str, source: list[str]) -> None:
    """What Sphinx calls with the text of each page, which is replaced in place."""
    del app, page
    source[0] = with_directives(filled_in(source[0]))


def filled_in(text: str) -> str:
    """A page with its generated parts.

    Raises:
        KeyError: a part that there is not.
    """
    return _MARK.sub(lambda mark: PARTS[mark["name"]](), text)


def recipes() -> str:
    """A table of the recipes, each with a link to its settings."""
    rows = [
        (
            f"[`{recipe.name}`](../reference/settings.md#{_slug(recipe.name)})",
            _codes(recipe.aliases),
            recipe.description,
        )
        for recipe in every_recipe()
    ]
    return table(("recipe", "also", "what it does"), rows)


def settings() -> str:
    """A section for each recipe with a table of its settings."""
    return "\n\n".join(_section(recipe) for recipe in every_recipe())


def commands() -> str:
    """A section for each command with its help, as the terminal shows it."""
    return "\n\n".join(f"## {name}\n\n```text\n{text}\n```" for name, text in command_helps())


def metrics() -> str:
    """A table of the declared metrics that have a place, and a line of the others for each way that is better."""
    placed = [metric for metric in BUILT_IN.values() if (metric.chart, metric.headline) != (None, None)]
    placed.sort(key=lambda metric: (metric.chart is None, metric.chart or metric.headline))
    rows = [(f"`{each.name}`", each.direction or "", _place(each.chart), _place(each.headline)) for each in placed]
    ways = {"Less is better": "less", "More is better": "more"}
    others = [f"{title} of {_codes(_unplaced(way))}." for title, way in ways.items()]
    return "\n\n".join([table(("metric", "better", "`chart`", "`headline`"), rows), *others])


def _place(place: int | None) -> str:
    return "" if place is None else str(place)


def _unplaced(way: str) -> list[str]:
    def is_one(metric: Metric) -> bool:
        return metric.direction == way and (metric.chart, metric.headline) == (None, None)

    return sorted(metric.name for metric in BUILT_IN.values() if is_one(metric))


def command_helps() -> Iterator[tuple[str, str]]:
    """Each command by its whole name with its help; those of recipes are settings, and have a page of their own."""
    yield from _helps("cookhouse", typer.main.get_command(command_line), None)


def pair_losses() -> str:
    """A table of the losses over pairs, with what is known of each."""
    rows = [
        (
            f"`{name}`",
            "yes" if loss.needs_reference else "no",
            "no" if loss.compares_answers else "yes",
            f"{loss.default_beta:g}",
            _codes(loss.reads),
        )
        for name, loss in BUILT_IN_PAIR_LOSSES.items()
    ]
    return table(("loss", "needs a reference", "takes single answers", "`dpo_beta` by default", "also reads"), rows)


def policy_losses() -> str:
    """A table of the service's losses over sampled tokens, with what is known of each."""
    ratios = {"token": "of each token", "sequence": "one for the whole sequence", None: "none"}
    rows = [
        (
            f"`{name}`",
            ratios[loss.ratio],
            ", ".join(f"`{option}` {value:g}" for option, value in loss.options.items()),
            "yes" if loss.options and loss.are_defaults_published else "",
        )
        for name, loss in POLICY_LOSSES.items()
    ]
    return table(("loss", "ratio", "options, by default", "these are the hosted service's"), rows)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    titles = [*head]
    lines = [titles, ["---"] * len(titles), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _section(recipe: Recipe[Any]) -> str:
    fields = {field.name: field for field in config_fields(recipe)}
    also: dict[str, list[str]] = {name: [] for name in fields}
    for alias in aliases_of(recipe.config_class).values():
        for name in alias.means:
            also[name].append(alias.name)
    rows = [
        (f"`{name}`", _prose(field.default or ""), _prose(field.doc) + _also(also[name]))
        for name, field in fields.items()
    ]
    head = f"## {recipe.name}\n\n{recipe.description}"
    if recipe.aliases:
        head += f" Also called {_codes(recipe.aliases)}."
    return f"{head}\n\n{table(('setting', 'default', 'meaning'), rows)}"


def _helps(name: str, command: Any, parent: Any) -> Iterator[tuple[str, str]]:
    context = command.make_context(
        name.rpartition(" ")[2], [], parent, resilient_parsing=True, terminal_width=HELP_WIDTH
    )
    yield name, context.get_help().strip()
    if name == "cookhouse run":
        return
    for child in getattr(command, "commands", {}).values():
        yield from _helps(f"{name} {child.name}", child, context)


def _also(names: Sequence[str]) -> str:
    return f" Also {_codes(names)}." if names else ""


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _prose(text: str) -> str:
    """A doc as it reads in a page: what would be markup there is not."""
    return re.sub(r"([*_<>\[\]])", r"\\\1", text)


def _slug(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def diagnosis() -> str:
    """A table of the rules of diagnosis, the gravest first."""
    rows = [
        (
            f"`{rule.name}`",
            rule.severity,
            rule.when.format(threshold=f"{rule.threshold:.3g}", steps=rule.steps),
            f"{rule.steps}",
            _codes(name + "NAME" * name.endswith("/") for name in rule.reads),
        )
        for rule in RULES
    ]
    return table(("rule", "severity", "found when", "fewest steps", "reads"), rows)


def details() -> str:
    """A table of the metrics that are no main ones."""
    rows = [
        ("with `metrics=all` alone", _codes(DETAILS)),
        ("the same, of one environment among several, behind `env/TAG/`", _codes(DETAILS_OF_ONE)),
        ("where it is not 0, or with `metrics=all`", _codes(FAILURES)),
    ]
    return table(("written", "metrics"), rows)


PARTS: Mapping[str, Callable[[], str]] = {
    "recipes": recipes,
    "settings": settings,
    "commands": commands,
    "pair-losses": pair_losses,
    "policy-losses": policy_losses,
    "metrics": metrics,
    "details": details,
    "diagnosis": diagnosis,
}
"""What makes a generated part, by its name."""

"""Running a recipe from Python; the command line is a thin layer over these two functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cookhouse.recipes.recipe import Recipe, find_recipe

if TYPE_CHECKING:
    from cookhouse.telemetry import Sink
    from cookhouse.training import Connect
    from cookhouse.workflows import DryRunReport, RunResult

AskWhatToDo = Callable[[str], str]
"""Given a question, returns delete, resume or raise; called only when the run folder exists and the config says ask."""


async def run(
    recipe: Recipe | str,
    config: Any = None,
    *,
    connect: Connect | None = None,
    sinks: Sequence[Sink] = (),
    ask: AskWhatToDo | None = None,
) -> RunResult:
    """Run a recipe to its end, to an interrupt, or to an error.

    Args:
        recipe: the recipe, its name or an alias.
        config: an object of the recipe's config class; default: its defaults.
        connect: opens a connection to the training service; awaited once the data has been read; default:
            `connect_to(config.base_url)`.
        sinks: where telemetry goes besides the run folder; a terminal gets `TerminalSink`.
        ask: asks the user about an existing run folder; without it, `behavior_if_log_dir_exists=ask` is refused.

    The first Ctrl-C (SIGINT) stops submitting, finishes what is in flight, saves, and returns a result whose
    `summary.is_interrupted` is set; the second raises `KeyboardInterrupt` at once.

    Raises:
        InputError: something in the config or the data cannot be used; nothing half-made is left behind.
        ServiceError: the training service failed.
    """
    from cookhouse.telemetry import Telemetry
    from cookhouse.training import Interrupt, connect_to

    chosen = find_recipe(recipe) if isinstance(recipe, str) else recipe
    settled = chosen.resolve(chosen.config_class() if config is None else config)
    with Telemetry(sinks) as telemetry:
        interrupt = Interrupt(on_request=lambda: telemetry.event("run.interrupt"))
        with interrupt.on_sigint():
            result: RunResult = await chosen.execute(
                settled,
                connect=connect or connect_to(settled.base_url),
                telemetry=telemetry,
                interrupt=interrupt,
                ask=ask,
            )
            return result


def dry_run(recipe: Recipe | str, config: Any = None) -> DryRunReport:
    """What a run would do: paths, tokens, truncation, steps, memory. Makes no request and no folder.

    It blocks, and is not to be called inside an event loop.

    Raises:
        InputError: as `run` would.
    """
    chosen = find_recipe(recipe) if isinstance(recipe, str) else recipe
    report: DryRunReport = chosen.dry_run(chosen.config_class() if config is None else config)
    return report

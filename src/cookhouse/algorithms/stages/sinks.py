"""The sinks that a run's settings name."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from cookhouse.algorithms.stages.state import RunContext
from cookhouse.telemetry import TerminalSink, sink_names, start_sink
from cookhouse.training import Waiting


def named_sinks(context: RunContext) -> Sequence[str]:
    """Their names."""
    config = context.folder.config
    return sink_names(config.get("sinks", ""), config.get("wandb_project"))


async def start_sinks(context: RunContext, folder: Path) -> None:
    """Start them over the run directory, one after another; from then on they hear of everything.

    Raises:
        InputError: one cannot start.
    """
    telemetry = context.telemetry
    for name in named_sinks(context):
        if name != "terminal" or not telemetry.has(TerminalSink):
            starting = asyncio.to_thread(start_sink, name, folder, context.folder.config)
            telemetry.add(await Waiting(telemetry).wait(starting, f"the sink {name} to start"))

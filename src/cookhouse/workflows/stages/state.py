"""The context that a run is started with, and the state that every workflow has."""

import shlex
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from cookhouse.adapters import Adapters
from cookhouse.runs import FolderChoice, FolderSpec
from cookhouse.telemetry import Telemetry
from cookhouse.training import Connect, Interrupt, SessionStatus


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Context with which a run is started, besides its config."""

    recipe: str
    """As a person names it to run it again."""
    folder: FolderSpec
    choice: FolderChoice
    adapters: Adapters
    telemetry: Telemetry
    interrupt: Interrupt
    files_of: Callable[[str], Path | None] = lambda _: None
    """The folder of the weights at a `tinker://` path, where the run's service keeps them on this machine."""

    @property
    def connect(self) -> Connect:
        """Opens the connection to the training service."""
        connect = self.adapters.service
        assert callable(connect), "a stage that connects has to need the port `service`"
        return connect

    @property
    def command(self) -> str:
        """Words behind `cookhouse` that run the recipe again, without its settings."""
        name = self.adapters.name
        return f"run {self.recipe}" + ("" if name is None else f" --adapters {shlex.quote(name)}")


@dataclass(kw_only=True)
class RunState:
    """State that stages share. A dataclass of a workflow adds fields: those with `init` or a default are there
    from the start, the others are written by stages.
    """

    context: RunContext
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What stages opened and cleanup closes, the last first."""
    status: SessionStatus = "success"
    """How the run ends; set before cleanup."""
    error: BaseException | None = None
    """What ended the run early, if something did."""

    @property
    def telemetry(self) -> Telemetry:
        return self.context.telemetry

    @property
    def interrupt(self) -> Interrupt:
        return self.context.interrupt

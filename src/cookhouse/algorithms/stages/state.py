"""The context that a run is started with, and the state that every workflow has."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cookhouse.adapters import Adapters
from cookhouse.registry import ModelRegistry
from cookhouse.runs import FolderChoice, FolderSpec, Preview, RunResult
from cookhouse.runs.names import RUNS_FOLDER
from cookhouse.telemetry import Telemetry
from cookhouse.training import Connect, Interrupt, SessionStatus


@dataclass(kw_only=True)
class RunContext:
    """Context of a run, besides its config: every stage may take it."""

    recipe: str
    """As a person names it to run it again."""
    folder: FolderSpec
    choice: FolderChoice
    adapters: Adapters
    telemetry: Telemetry
    interrupt: Interrupt
    files_of: Callable[[str], Path | None] = lambda _: None
    """The folder of the weights at a `tinker://` path, where the run's service keeps them on this machine."""
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
    """Closed at the end of the run, the last entry first."""
    notes: list[str] = field(default_factory=list)
    """Notes for a person on the data and the settings, a sentence each. A stage may add to them."""
    status: SessionStatus = "success"
    """End of the run; set before cleanup."""
    error: BaseException | None = None
    """Error that ended the run early."""

    @property
    def connect(self) -> Connect:
        """Opens the connection to the training service."""
        connect = self.adapters.service
        assert callable(connect), "a stage that connects has to need the port `service`"
        return connect

    @property
    def registry(self) -> ModelRegistry | None:
        return self.adapters.registry

    @property
    def run_folders(self) -> tuple[Path, Path]:
        """Folders in which other runs are looked for."""
        return self.folder.path.parent, RUNS_FOLDER

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

    def facts(self) -> Mapping[str, str]:
        """Facts of a dry run, in words and with units, after the stages that need no port."""
        return {}

    def previews(self) -> Sequence[Preview]:
        """First examples, after the same stages."""
        return ()

    def result(self, seconds: float) -> RunResult[Any]:
        """Result of the run, which took so long and came to its end or was interrupted."""
        raise NotImplementedError

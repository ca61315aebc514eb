"""The run directory: opened by making it, putting aside what lies in it, or going on in it; and the files in it."""

import json
import logging
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from cookhouse.data import fingerprint_of
from cookhouse.errors import InputError
from cookhouse.files import file_errors, write_whole
from cookhouse.models.base_files import files_of_model
from cookhouse.report import RecordedAnswer
from cookhouse.runs.folder.choice import FolderChoice, FolderSpec, recorded_base
from cookhouse.runs.folder.replaced import delete_replaced, is_replacing, put_aside, settle_replaced
from cookhouse.runs.folder.run_json import RunJson, earlier_launches, new_launch
from cookhouse.runs.listing.find import find_runs
from cookhouse.runs.lock import hold
from cookhouse.runs.names import (
    BASE_FILE,
    CONFIG_FILE,
    DATA_FILE,
    EVALUATIONS_FOLDER,
    EXAMPLES_FOLDER,
    LOG_FILE,
    METRICS_FILE,
    ROLLOUTS_FOLDER,
    TRACE_FILE,
)
from cookhouse.runs.page import write_report
from cookhouse.runs.samples import answers_path, read_answers, write_answers
from cookhouse.telemetry import cut_metrics, log_file
from cookhouse.training import SessionStatus
from cookhouse.version import __version__
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, Checkpoint, CheckpointFile

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class RunFolder:
    """An open run directory, held until it is closed. `resume` is the checkpoint to continue from, if it holds one."""

    path: Path
    is_new: bool
    has_parent: bool
    """Whether the folder around it was there before."""
    resume: Checkpoint | None
    write_page: Callable[[Path], object] = write_report
    """Writes report.html into a folder."""
    run_json: RunJson = field(init=False)
    """The sink that writes run.json."""
    _resources: ExitStack = field(default_factory=ExitStack)

    @property
    def metrics(self) -> Path:
        return self.path / METRICS_FILE

    @property
    def trace(self) -> Path:
        return self.path / TRACE_FILE

    @property
    def checkpoints(self) -> CheckpointFile:
        return CheckpointFile(self.path / CHECKPOINTS_FILE)

    @property
    def rollouts(self) -> Path:
        return self.path / ROLLOUTS_FOLDER

    @property
    def examples(self) -> Path:
        return self.path / EXAMPLES_FOLDER

    @property
    def evaluations(self) -> Path:
        return self.path / EVALUATIONS_FOLDER

    def write_answers(self, step: int, answers: Sequence[RecordedAnswer]) -> None:
        """Keep the answers of the weights after `step` steps."""
        write_answers(answers_path(self.path, step), answers)

    def read_answers(self, step: int) -> list[RecordedAnswer]:
        """Read what `write_answers` kept; none if it kept none. Raises `InputError` if that cannot be read."""
        path = answers_path(self.path, step)
        return read_answers(path) if path.exists() else []

    def end(self, status: SessionStatus, error: BaseException | None = None) -> None:
        """Record how this launch ended, and draw the run's page if there is something to see.

        What ended it matters more than whether that can be written.
        """
        try:
            self.run_json.end(status, error)
            if self.metrics.exists() or find_runs(self.path):
                self.write_page(self.path)
        except InputError as problem:
            logger.warning("the end of the run is not recorded as a whole: %s", problem)

    def close(self) -> None:
        """Stop logging to the folder, and let others have it."""
        self._resources.close()

    @property
    def replaces(self) -> bool:
        """True if another run lies aside, to be put back unless this one begins."""
        return is_replacing(self.path)

    def begin(self) -> None:
        """Nothing can refuse this run any more: delete the one that it replaces, if it does."""
        delete_replaced(self.path)

    def discard(self) -> None:
        """Remove a folder that this run made, if nothing was trained in it; what it replaces, `settling` puts back."""
        has_trained = self.metrics.exists() and self.metrics.stat().st_size > 0
        if self.is_new and not has_trained and not self.replaces:
            shutil.rmtree(self.path, ignore_errors=True)
            parent = self.path.parent
            if not self.has_parent and parent.exists() and not any(parent.iterdir()):
                parent.rmdir()


def open_folder(
    spec: FolderSpec, choice: FolderChoice, write_page: Callable[[Path], object] = write_report
) -> RunFolder:
    """Make or resume the folder of a run, or put aside what lies in it; record its config, and log to it from here on.

    `write_page` writes its report.html once it ends; default: the page of one run.

    Raises:
        InputError: it cannot be written, a run is going on in it, or what lies in it must not be replaced.
    """
    if choice is FolderChoice.DELETE:
        spec.check_replaceable()
    has_parent = spec.path.parent.exists()
    with file_errors(spec.path):
        spec.path.mkdir(parents=True, exist_ok=True)
        lock = hold(spec.path)
    folder = RunFolder(
        path=spec.path,
        is_new=choice is not FolderChoice.RESUME,
        has_parent=has_parent,
        resume=None,
        write_page=write_page,
    )
    folder._resources.enter_context(lock)
    try:
        with file_errors(spec.path):
            if choice is FolderChoice.DELETE:
                put_aside(spec.path)
            before = earlier_launches(spec.path) if choice is FolderChoice.RESUME else []
            folder._resources.enter_context(log_file(spec.path / LOG_FILE))
        revision = _code_revision()
        folder.run_json = RunJson(spec.path, before, new_launch(spec, revision))
        folder.resume = folder.checkpoints.last_state()
        cut_metrics(folder.metrics, 0 if folder.resume is None else folder.resume.step)
        write_whole(spec.path / CONFIG_FILE, json.dumps(_record(spec, revision), indent=1) + "\n")
        if spec.data and choice is not FolderChoice.RESUME:
            found = {name: asdict(fingerprint_of(path)) for name, path in spec.data.items()}
            write_whole(spec.path / DATA_FILE, json.dumps(found) + "\n")
        if spec.base_models is not None:
            _record_base(spec.path, spec.base_models())
    except BaseException:
        folder.close()
        if not settle_replaced(spec.path):
            folder.discard()
        raise
    return folder


def _record_base(folder: Path, names: Sequence[str]) -> None:
    """Of the models that are on this machine by now; what was recorded before stays."""
    before = recorded_base(folder)
    found = {name: files_of_model(name) for name in names if name not in before}
    if new := {name: files for name, files in found.items() if files}:
        write_whole(folder / BASE_FILE, json.dumps({**before, **new}, indent=1) + "\n")


def _record(spec: FolderSpec, revision: str | None) -> dict[str, Any]:
    return {
        "recipe": spec.recipe,
        "config": dict(spec.config),
        "origins": dict(spec.origins),
        "free_on_resume": sorted(spec.free_fields),
        "weights": sorted({named.name for named in spec.weights}),
        "seed": spec.seed,
        "version": __version__,
        "revision": revision,
        "synthetic": list(spec.synthetic),
    }


@cache
def _code_revision() -> str | None:
    """Commit of the checkout that this code lies in, with `-dirty` if it was changed; None outside of a checkout. Asked
    once: what this process runs is what it has loaded.
    """
    git = shutil.which("git")
    if git is None:
        return None
    here = [git, "-C", str(Path(__file__).parent)]
    # Installed into a virtual environment inside someone's checkout, the code is there but not tracked.
    for arguments in (
        ["ls-files", "--error-unmatch", Path(__file__).name],
        ["describe", "--always", "--dirty", "--abbrev=40"],
    ):
        done = subprocess.run([*here, *arguments], capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            logger.info("no code revision: %s", done.stderr.strip())
            return None
    return done.stdout.strip()

"""The run folder: opened by making it, emptying it or going on in it; and the files that lie in it."""

import json
import logging
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from cookhouse.data import Fingerprint, fingerprint_of
from cookhouse.errors import InputError
from cookhouse.telemetry import cut_metrics, log_file
from cookhouse.training import Checkpoint, CheckpointFile
from cookhouse.training.files import file_errors, write_whole
from cookhouse.version import __version__

logger = logging.getLogger(__name__)

CONFIG_FILE = "config.json"
DATA_FILE = "data.json"
METRICS_FILE = "metrics.jsonl"
CHECKPOINTS_FILE = "checkpoints.jsonl"
LOG_FILE = "logs.log"
TRACE_FILE = "trace.json"
SAMPLES_FOLDER = "samples"
ROLLOUTS_FOLDER = "rollouts"

_CHOICES = ("delete", "resume", "raise")


class FolderChoice(StrEnum):
    """What becomes of a run folder when a run starts."""

    CREATE = "create"
    DELETE = "delete"
    RESUME = "resume"


@dataclass(frozen=True, kw_only=True)
class FolderSpec:
    """Which folder a run writes to, and what to do if it is there already."""

    path: Path
    recipe: str
    config: Mapping[str, Any]
    """Every field, resolved; recorded in config.json."""
    seed: int
    behavior: str
    """delete, resume, raise or ask."""
    free_fields: Collection[str]
    """Fields of the config that a resumed run may change."""
    data: Mapping[str, Path] = field(default_factory=dict)
    """Files that the run reads, by what for; their fingerprints are recorded in data.json, and a resume on files with
    others is refused."""
    ask: Callable[[str], str] | None = None


@dataclass(frozen=True, kw_only=True)
class RecordedAnswer:
    """A held-out conversation that a model answered."""

    prompt: str
    """The message before the answer."""
    expected: str
    answer: str
    is_correct: bool
    group: str | None = None
    """What kind of problem it is, if that is known."""


@dataclass(kw_only=True)
class RunFolder:
    """An open run folder. `resume` is the checkpoint to continue from, if it holds one."""

    path: Path
    is_new: bool
    has_parent: bool
    """Whether the folder around it was there before."""
    resume: Checkpoint | None
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

    def write_answers(self, step: int, answers: Sequence[RecordedAnswer]) -> None:
        """Keep the answers of the weights after `step` steps."""
        path = self._answers_path(step)
        with file_errors(path):
            path.parent.mkdir(exist_ok=True)
        write_whole(path, json.dumps([asdict(answer) for answer in answers], indent=1) + "\n")

    def read_answers(self, step: int) -> list[RecordedAnswer]:
        """What `write_answers` kept; none if it kept none."""
        path = self._answers_path(step)
        if not path.exists():
            return []
        return [RecordedAnswer(**answer) for answer in json.loads(path.read_text(encoding="utf-8"))]

    def close(self) -> None:
        """Stop logging to the folder."""
        self._resources.close()

    def discard(self) -> None:
        """Remove a folder that this run made, if nothing was trained in it."""
        has_trained = self.metrics.exists() and self.metrics.stat().st_size > 0
        if self.is_new and not has_trained:
            shutil.rmtree(self.path, ignore_errors=True)
            parent = self.path.parent
            if not self.has_parent and parent.exists() and not any(parent.iterdir()):
                parent.rmdir()

    def _answers_path(self, step: int) -> Path:
        return self.path / SAMPLES_FOLDER / f"{step:06d}.json"


def choose_folder(spec: FolderSpec) -> FolderChoice:
    """What to do with the folder, before anything is done: the user is asked here if the spec says so.

    Raises:
        InputError: the folder is there and may not be used, or holds another run, or one of other data.
    """
    choice = FolderChoice(_choose(spec))
    if choice is FolderChoice.RESUME:
        _check_same_run(spec)
        _check_same_data(spec)
    return choice


def open_folder(spec: FolderSpec, choice: FolderChoice) -> RunFolder:
    """Make, empty or resume the folder of a run, record its config, and log to it from here on.

    Raises:
        InputError: it cannot be written.
    """
    if choice is FolderChoice.DELETE:
        with file_errors(spec.path):
            shutil.rmtree(spec.path)
    has_parent = spec.path.parent.exists()
    folder = RunFolder(path=spec.path, is_new=choice is not FolderChoice.RESUME, has_parent=has_parent, resume=None)
    try:
        with file_errors(spec.path):
            spec.path.mkdir(parents=True, exist_ok=True)
            folder._resources.enter_context(log_file(spec.path / LOG_FILE))
        folder.resume = folder.checkpoints.last_state()
        cut_metrics(folder.metrics, 0 if folder.resume is None else folder.resume.step)
        write_whole(spec.path / CONFIG_FILE, json.dumps(_record(spec), indent=1) + "\n")
        if spec.data and choice is not FolderChoice.RESUME:
            found = {name: asdict(fingerprint_of(path)) for name, path in spec.data.items()}
            write_whole(spec.path / DATA_FILE, json.dumps(found) + "\n")
    except BaseException:
        folder.close()
        folder.discard()
        raise
    return folder


def _choose(spec: FolderSpec) -> str:
    if spec.path.exists() and not spec.path.is_dir():
        raise InputError(f"log_path {spec.path} is a file; choose a folder")
    if not spec.path.exists() or not any(spec.path.iterdir()):
        return FolderChoice.CREATE
    choice = spec.behavior
    if choice == "ask":
        if spec.ask is None:
            raise InputError(
                f"run folder {spec.path} exists, and there is no terminal to ask on; "
                "set behavior_if_log_dir_exists to delete or resume, or choose another log_path"
            )
        choice = spec.ask(f"run folder {spec.path} exists; what now?")
    if choice not in _CHOICES:
        raise InputError(f"{choice!r} is no way to treat an existing run folder; allowed: {', '.join(_CHOICES)}")
    if choice == "raise":
        raise InputError(
            f"run folder {spec.path} exists; choose another log_path, "
            "or set behavior_if_log_dir_exists to delete or resume"
        )
    if not (spec.path / CONFIG_FILE).exists():
        raise InputError(f"{spec.path} holds files but no run ({CONFIG_FILE} is missing); choose another log_path")
    return choice


def _check_same_run(spec: FolderSpec) -> None:
    path = spec.path / CONFIG_FILE
    try:
        recorded = json.loads(path.read_text(encoding="utf-8"))
        before, recipe = dict(recorded["config"]), recorded["recipe"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not the config of a run ({error}); choose another log_path") from error
    if recipe != spec.recipe:
        raise InputError(f"{spec.path} holds a run of {recipe}, not of {spec.recipe}; choose another log_path")
    for name, value in spec.config.items():
        if name in before and name not in spec.free_fields and before[name] != value:
            raise InputError(
                f"{name}={value!r}, but the run in {spec.path} was started with {before[name]!r}, and going on with "
                "another would be another run; leave it as it was, or choose another log_path"
            )


def _check_same_data(spec: FolderSpec) -> None:
    path = spec.path / DATA_FILE
    if not spec.data:
        return
    if not path.exists():
        logger.warning("%s does not exist, so that nobody can tell whether the data is what it was", path)
        return
    try:
        recorded = {
            name: Fingerprint(**{**value, "marks": tuple(value["marks"])})
            for name, value in json.loads(path.read_text(encoding="utf-8")).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} does not hold fingerprints of data ({error}); choose another log_path") from error
    for name in recorded.keys() & spec.data.keys():
        changes = recorded[name].changes_to(fingerprint_of(spec.data[name], stride=recorded[name].stride))
        if changes is not None:
            raise InputError(
                f"{spec.data[name]} has changed since the run in {spec.path} was started: {changes}. Going on with it "
                "would be another run; restore the file, or choose another log_path"
            )


def _record(spec: FolderSpec) -> dict[str, Any]:
    return {
        "recipe": spec.recipe,
        "config": dict(spec.config),
        "seed": spec.seed,
        "version": __version__,
        "revision": _code_revision(),
    }


def _code_revision() -> str | None:
    """Commit of the checkout that this code lies in, with `-dirty` if it was changed; None outside of a checkout."""
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

"""An experiment as a document: the runs of a sweep with their settings, for people and programs to write and read."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cookhouse.callables.arguments import checked
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.settings.documents import read_document

VERSION: Final = 2
_OF_SECOND: Final = {"min_steps": None, "reduction_factor": 3}
"""Fields of version 2, with their defaults."""
ENDINGS = (".json", ".yaml", ".yml")


class Experiment(BaseModel):
    """Runs of one recipe. Each has `settings`; there is one for every combination of the values of `grid`, with each of
    `runs` where there are some.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1, 2] = Field(default=1, description="Of this format: 2 where min_steps is given.")
    recipe: str = Field(min_length=1, description="Its name, module:NAME or file.py:NAME.")
    settings: dict[str, Any] = Field(default={}, description="What all runs have, by setting.")
    grid: dict[str, list[Any]] = Field(default={}, description="Values by setting: a run for each combination.")
    runs: list[dict[str, Any]] = Field(default=[], description="What single runs have besides, by setting.")
    jobs: int = Field(default=1, ge=1, strict=True, description="Runs at a time.")
    min_steps: int | None = Field(
        default=None,
        ge=1,
        strict=True,
        description="Evaluate every run after this many steps and promote only the best; null: every run takes all.",
    )
    reduction_factor: int = Field(
        default=3, ge=2, strict=True, description="Promote the best 1/N at each rung and multiply the steps by N."
    )
    metric: str | None = Field(
        default=None,
        description="By which runs are compared; null: the most telling one, with min_steps the held-out loss.",
    )
    direction: Literal["less", "more"] | None = Field(
        default=None, description="Whether lower or higher is better; null: as the metric is declared."
    )

    @model_validator(mode="before")
    @classmethod
    def _has_a_version(cls, values: Any) -> Any:
        """Give a document without a version the least version that has all its fields."""
        if isinstance(values, dict) and "version" not in values:
            return {**values, "version": 2 if _is_second(values) else 1}
        return values

    @model_validator(mode="after")
    def _fits_its_version(self) -> "Experiment":
        if self.version == 1 and _is_second(self.model_dump(include=set(_OF_SECOND))):
            raise ValueError(f"{' and '.join(_OF_SECOND)} are of version 2; write version: 2")
        return self


def _is_second(values: Mapping[str, Any]) -> bool:
    return any(values.get(name, default) != default for name, default in _OF_SECOND.items())


def experiment_from(document: Any, source: str) -> Experiment:
    """An experiment from a document as JSON or YAML give it; `source` names it in errors.

    Raises:
        InputError: it is none, of a version that is not known here, or has a field that there is not.
    """
    if not isinstance(document, Mapping):
        raise InputError(f"{source} holds no experiment; write version: 1, recipe: NAME, and runs or a grid")
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise InputError(f"{source} does not say which version of the format it has; write version: 1")
    if version > VERSION:
        raise InputError(
            f"{source} is an experiment of version {version}, and this cookhouse reads version {VERSION} at "
            "most; install a newer one, or write the older format"
        )
    for name in document:
        if name not in Experiment.model_fields:
            raise UnknownNameError(f"field of the experiment {source}", str(name), tuple(Experiment.model_fields))
    try:
        return Experiment(**document)
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"])) or "its version"
        raise InputError(f"{source}: {where} cannot be used: {wrong['msg']}") from error


def is_experiment_file(name: str) -> bool:
    """True if a name is that of a file that may hold an experiment, and not of a recipe."""
    return name.endswith(ENDINGS)


@checked
def read_experiment(path: str | Path) -> Experiment:
    """The experiment of a YAML or JSON file. Raises `InputError` as `experiment_from`, or if it cannot be read."""
    return experiment_from(read_document(Path(path).expanduser()), str(path))


@checked
def write_experiment(experiment: Experiment, path: str | Path) -> None:
    """Write an experiment to a new YAML or JSON file.

    Raises:
        InputError: there is such a file already, it has another ending, or a setting has no form there.
    """
    path = Path(path).expanduser()
    if path.suffix not in ENDINGS:
        raise InputError(
            f"{path} ends in {path.suffix or 'nothing'}; an experiment's file ends in {', '.join(ENDINGS)}"
        )
    text = experiment_text(experiment, as_yaml=path.suffix != ".json")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; name a file that is not there") from error


def experiment_text(experiment: Experiment, *, as_yaml: bool = False) -> str:
    """As a document, without what is left to its default. Raises `InputError` for a setting that has no form there."""
    document = {"version": experiment.version, **experiment.model_dump(exclude_defaults=True)}
    try:
        text = json.dumps(document, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"a setting of the experiment cannot be written: {error}; give texts and numbers") from error
    if not as_yaml:
        return text + "\n"
    import yaml

    return str(yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True))


def experiment_of_runs(
    recipe: str, shared: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], **how: Any
) -> Experiment:
    """The experiment whose runs are these, what all of them have apart."""
    first = runs[0]
    same = {name for name in first if all(name in run and run[name] == first[name] for run in runs)}
    return Experiment(
        recipe=recipe,
        settings={**shared, **{name: first[name] for name in first if name in same}},
        runs=[{name: value for name, value in run.items() if name not in same} for run in runs],
        **how,
    )

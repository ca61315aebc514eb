"""examples/STEP.jsonl: some of what a step was trained on, as plain data."""

from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from cookhouse.errors import InputError
from cookhouse.runs.names import EXAMPLES_FOLDER
from cookhouse.runs.reading.ranges import open_file

MAX_FILE_BYTES = 8 * 2**20
"""More than a run writes of a step."""
_MAX_NAME_DIGITS = 12

Token: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]
Values: TypeAlias = list[FiniteFloat | None] | list[list[FiniteFloat | None]]
"""One for each target, in their shape; None: not finite."""


class ShownExample(BaseModel):
    """A datum, as a step was trained on it, or the part of a long one that is shown. What it does not have is None."""

    model_config = ConfigDict(frozen=True, strict=True)

    number: Annotated[int, Field(ge=0)]
    """Among the datums of the step."""
    label: Annotated[str, Field(max_length=100)]
    """Its role among the datums of its row, such as `chosen` and `rejected`; empty: it stands alone."""
    num_before: Annotated[int, Field(ge=0)]
    """Targets before the part that is shown."""
    num_after: Annotated[int, Field(ge=0)]
    tokens: list[Token | None]
    """The inputs: from those up to here each target is predicted. None: part of an image."""
    targets: list[Token] | list[list[Token]]
    """The next token, or several that share its weight."""
    weights: Values | None = None
    """How much each target counts; of rollouts, 1 for what was sampled."""
    logprobs: Values | None = None
    """Of the targets, in the weights that the step began with."""
    advantages: Values | None = None
    sampler_logprobs: Values | None = None
    """As the target was sampled."""
    teacher_logprobs: Values | None = None

    @model_validator(mode="after")
    def _fits(self) -> "ShownExample":
        values = (self.weights, self.logprobs, self.advantages, self.sampler_logprobs, self.teacher_logprobs)
        shape = _shape(self.targets)
        if len(self.tokens) != len(self.targets) or any(_shape(each) != shape for each in values if each is not None):
            raise ValueError("tokens, targets and values differ in number")
        return self


def _shape(rows: "list[Token] | list[list[Token]] | Values") -> list[int | None]:
    return [len(row) if isinstance(row, list) else None for row in rows]


def example_steps(folder: Path) -> list[int]:
    """The steps of a run directory, counted from 0, of which there are examples, in their order."""
    names = [path.stem for path in (folder / EXAMPLES_FOLDER).glob("*.jsonl")]
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal() and len(name) <= _MAX_NAME_DIGITS)


def read_examples(folder: Path, step: int) -> list[ShownExample]:
    """The examples of a step, counted from 0; none if there are none.

    Raises:
        InputError: the file holds something else, or more than a run writes.
    """
    path = folder / EXAMPLES_FOLDER / f"{step:06d}.jsonl"
    try:
        with open_file(path) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        if not path.exists():
            return []
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise InputError(f"{path} is larger than {MAX_FILE_BYTES:,} bytes, which no run writes; remove it")
    return [_example(path, number, line) for number, line in enumerate(content.splitlines(), start=1)]


def _example(path: Path, number: int, line: bytes) -> ShownExample:
    try:
        return ShownExample.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        at = ".".join(map(str, first["loc"][:1]))
        raise InputError(
            f"{path}, line {number}, is no example of a step ({at + ': ' if at else ''}{first['msg']}); remove the file"
        ) from error

"""Strict and loose scores of an answer to a prompt."""

from collections.abc import Sequence
from dataclasses import dataclass

from cookhouse.grading.ifeval.instructions import Instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionScores:
    """Which instructions of a prompt an answer follows, one by one."""

    strict: tuple[bool, ...]
    """As it was written."""
    loose: tuple[bool, ...]
    """As it was written, or without its first line, its last line, or both, each with and without stars."""

    @property
    def prompt_strict(self) -> bool:
        """Whether it follows all of them as it was written."""
        return all(self.strict)

    @property
    def prompt_loose(self) -> bool:
        """Whether it follows each of them, loosely."""
        return all(self.loose)


def score_instructions(instructions: Sequence[Instruction], answer: str) -> InstructionScores:
    """Whether an answer follows the instructions of its prompt. The model's text makes it raise nothing."""
    forms = _loose_forms(answer)
    return InstructionScores(
        strict=tuple(instruction(answer) for instruction in instructions),
        loose=tuple(any(map(instruction, forms)) for instruction in instructions),
    )


def _loose_forms(answer: str) -> list[str]:
    lines = answer.split("\n")
    shorter = ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    forms = [answer, *shorter]
    return [*forms, *(form.replace("*", "") for form in forms)]

"""Instructions by the names that the data set gives them, the check of each, and the scores of an answer."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, TypeGuard

from cookhouse.errors import InputError
from cookhouse.grading.ifeval import checks
from cookhouse.grading.ifeval.checks import RELATIONS
from cookhouse.grading.ifeval.language import is_in_language, require_language

Check: TypeAlias = Callable[..., bool]
"""Whether an answer, its first argument, follows an instruction, whose settings are the others."""

CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "change_case:capital_word_frequency": checks.has_capital_words,
        "change_case:english_capital": checks.is_english_capital,
        "change_case:english_lowercase": checks.is_english_lowercase,
        "combination:repeat_prompt": checks.repeats_prompt,
        "combination:two_responses": checks.has_two_responses,
        "detectable_content:number_placeholders": checks.has_placeholders,
        "detectable_content:postscript": checks.has_postscript,
        "detectable_format:constrained_response": checks.has_constrained_response,
        "detectable_format:json_format": checks.is_json,
        "detectable_format:multiple_sections": checks.has_sections,
        "detectable_format:number_bullet_lists": checks.has_bullets,
        "detectable_format:number_highlighted_sections": checks.has_highlights,
        "detectable_format:title": checks.has_title,
        "keywords:existence": checks.has_keywords,
        "keywords:forbidden_words": checks.lacks_words,
        "keywords:frequency": checks.has_keyword_frequency,
        "keywords:letter_frequency": checks.has_letter_frequency,
        "language:response_language": is_in_language,
        "length_constraints:nth_paragraph_first_word": checks.has_first_word,
        "length_constraints:number_paragraphs": checks.has_paragraphs,
        "length_constraints:number_sentences": checks.has_sentences,
        "length_constraints:number_words": checks.has_words,
        "punctuation:no_comma": checks.lacks_commas,
        "startend:end_checker": checks.ends_with,
        "startend:quotation": checks.is_quoted,
    }
)
_ENGLISH = {"change_case:english_capital", "change_case:english_lowercase"}
_TEXTS = {"keywords", "forbidden_words"}
_RELATIONS = {"relation", "let_relation", "capital_relation"}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a prompt, with its settings, which have been checked."""

    id: str
    settings: Mapping[str, Any]

    def __call__(self, answer: str) -> bool:
        """True if an answer follows it; one of white space follows none."""
        return bool(answer.strip()) and CHECKS[self.id](answer, **self.settings)


def parse_instructions(row: Mapping[str, Any]) -> tuple[Instruction, ...]:
    """The instructions of a row with `instruction_id_list` and `kwargs`, one of these for each; nulls are left out.

    Raises:
        InputError: an instruction is none of `CHECKS` or has other settings than its check, or it needs the language
            of an answer, which cannot be found out here.
    """
    ids, kwargs = row.get("instruction_id_list"), row.get("kwargs")
    if not _is_list(ids, str) or not _is_list(kwargs, Mapping) or len(ids) != len(kwargs) or not ids:
        raise InputError(
            "instruction_id_list must be a list of one or more names, and kwargs a list of an object for each of them"
        )
    return tuple(_instruction(name, settings) for name, settings in zip(ids, kwargs, strict=True))


def follows(instruction_id: str, kwargs: Mapping[str, Any], answer: str) -> bool:
    """True if an answer follows one instruction. Raises as `parse_instructions`."""
    return _instruction(instruction_id, kwargs)(answer)


def _instruction(name: str, kwargs: Mapping[str, Any]) -> Instruction:
    if name not in CHECKS:
        raise InputError(f"there is no instruction {name!r}; there are: {', '.join(CHECKS)}")
    settings = {key: value for key, value in kwargs.items() if value is not None}
    _, *wanted = inspect.signature(CHECKS[name]).parameters
    if set(settings) != set(wanted):
        raise InputError(f"instruction {name} takes {_listed(wanted)}, and is given {_listed(settings)}")
    for key, value in settings.items():
        wants = _wants(key)
        if not _fits(key, value):
            raise InputError(f"instruction {name}: {key} must be {wants}, not {value!r}")
    if name in _ENGLISH or "language" in settings:
        require_language(settings.get("language", "en"), name)
    return Instruction(name, settings)


def _wants(key: str) -> str:
    if key in _TEXTS:
        return "a list of one or more texts"
    if key in _RELATIONS:
        return " or ".join(map(repr, RELATIONS))
    if key == "letter":
        return "one character"
    if _is_count(key):
        return "a whole number, 0 or more" if key != "nth_paragraph" else "a whole number, 1 or more"
    return "a text"


def _fits(key: str, value: object) -> bool:
    if key in _TEXTS:
        return _is_list(value, str) and all(text.strip() for text in value) and bool(value)
    if key in _RELATIONS:
        return value in RELATIONS
    if _is_count(key):
        return type(value) is int and value >= (key == "nth_paragraph")
    return isinstance(value, str) and bool(value.strip()) and (key != "letter" or len(value) == 1)


def _is_count(key: str) -> bool:
    return key.startswith("num_") or key.endswith("frequency") or key == "nth_paragraph"


def _is_list(value: object, kind: type) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(item, kind) for item in value)


def _listed(names: Any) -> str:
    return ", ".join(sorted(names)) or "no settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionScores:
    """Scores of an answer for each instruction of a prompt."""

    strict: tuple[bool, ...]
    """As it was written."""
    loose: tuple[bool, ...]
    """As it was written, or without its first line, its last line, or both, each with and without stars."""

    @property
    def prompt_strict(self) -> bool:
        """True if it follows all of them as it was written."""
        return all(self.strict)

    @property
    def prompt_loose(self) -> bool:
        """True if it follows each of them, loosely."""
        return all(self.loose)


def score_instructions(instructions: Sequence[Instruction], answer: str) -> InstructionScores:
    """Score an answer by the instructions of its prompt. The model's text makes it raise nothing."""
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

"""Fields by which OpenAI's and vLLM's clients ask for an answer of some form."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cookhouse.dialects.errors import FieldError

_ANY_OBJECT = {"type": "object"}
_NO_FORM = "disable_any_whitespace", "disable_fallback", "disable_additional_properties"
"""Settings of vLLM's for how it is done: here white space is never left open, and nothing falls back."""
Choices = Annotated[list[str], Field(max_length=1024)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """The form that an answer is asked to have."""

    kind: Literal["json", "regex", "choice", "grammar"]
    value: Any
    """A JSON schema; a regular expression; texts, of which it is one; a grammar in Lark or GBNF."""
    field: str
    """The name by which it was given."""


class StructuredOutputs(BaseModel):
    """vLLM's field; of the first five one is given."""

    model_config = ConfigDict(strict=True, extra="allow")

    json_: dict[str, Any] | str | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None
    json_object: bool | None = None

    def check(self) -> None:
        for name, value in (self.model_extra or {}).items():
            if value not in (None, False) and name not in _NO_FORM:
                field = f"structured_outputs.{name[:200]}"
                raise FieldError(field, f"{field} is not offered here; leave it out", code="unsupported_parameter")


class FormFields(BaseModel):
    """Each asks for a form of the answer, and a request has at most one of them."""

    response_format: dict[str, Any] | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None

    def form(self) -> AnswerForm | None:
        """The form of the answer; None: it is free.

        Raises:
            FieldError: it is none, or there are several.
        """
        forms = [*_of_response_format(self.response_format), *self._of_structured_outputs(), *self._guided()]
        if len(forms) > 1:
            raise FieldError(
                forms[1].field, f"{forms[0].field} and {forms[1].field} both say what the answer is to be; give one"
            )
        return forms[0] if forms else None

    def _of_structured_outputs(self) -> list[AnswerForm]:
        given = self.structured_outputs
        if given is None:
            return []
        given.check()
        forms = _forms(given.json_, given.regex, given.choice, given.grammar, "structured_outputs.")
        if given.json_object:
            forms.append(AnswerForm(kind="json", value=_ANY_OBJECT, field="structured_outputs.json_object"))
        return forms

    def _guided(self) -> list[AnswerForm]:
        return _forms(self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar, "guided_")


def _forms(
    schema: dict[str, Any] | str | None, regex: str | None, choice: list[str] | None, grammar: str | None, prefix: str
) -> list[AnswerForm]:
    forms = []
    if schema is not None and schema != "":
        forms.append(AnswerForm(kind="json", value=_schema(schema, field=f"{prefix}json"), field=f"{prefix}json"))
    if regex:
        forms.append(AnswerForm(kind="regex", value=regex, field=f"{prefix}regex"))
    if choice:
        forms.append(AnswerForm(kind="choice", value=choice, field=f"{prefix}choice"))
    if grammar:
        forms.append(AnswerForm(kind="grammar", value=grammar, field=f"{prefix}grammar"))
    return forms


def _of_response_format(given: Mapping[str, Any] | None) -> list[AnswerForm]:
    kind = None if given is None else given.get("type")
    if given is None or kind == "text":
        return []
    if kind == "json_object":
        return [AnswerForm(kind="json", value=_ANY_OBJECT, field="response_format")]
    if kind != "json_schema":
        raise FieldError("response_format.type", "response_format.type is text, json_object or json_schema")
    field, described = "response_format.json_schema.schema", given.get("json_schema")
    if not isinstance(described, Mapping) or not isinstance(described.get("schema"), dict | bool):
        raise FieldError(field, f"{field} must be a JSON schema")
    return [AnswerForm(kind="json", value=described["schema"], field=field)]


def _schema(given: dict[str, Any] | str, *, field: str) -> dict[str, Any] | bool:
    if not isinstance(given, str):
        return given
    try:
        schema = json.loads(given)
    except (ValueError, RecursionError) as error:
        raise FieldError(field, f"{field} is no JSON") from error
    if not isinstance(schema, dict | bool):
        raise FieldError(field, f"{field} must be a JSON schema")
    return schema

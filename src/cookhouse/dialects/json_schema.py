"""Keywords of JSON schemas (draft 2020-12) that tools are declared with; those that are not here are not looked at."""

from typing import Any, Literal, TypeAlias, Union

from pydantic import BaseModel, ConfigDict, Field

Type = Literal["array", "boolean", "integer", "null", "number", "object", "string"]
Schema: TypeAlias = Union["JsonSchema", bool]


class JsonSchema(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    ref: str | None = Field(default=None, alias="$ref")
    defs: dict[str, Schema] | None = Field(default=None, alias="$defs")
    definitions: dict[str, Schema] | None = None
    type: Type | list[Type] | None = None
    enum: list[Any] | None = None
    description: str | None = None
    # objects
    properties: dict[str, Schema] | None = None
    patternProperties: dict[str, Schema] | None = None
    additionalProperties: Schema | None = None
    propertyNames: Schema | None = None
    required: list[str] | None = None
    minProperties: int | None = Field(default=None, ge=0)
    maxProperties: int | None = Field(default=None, ge=0)
    # arrays
    prefixItems: list[Schema] | None = None
    items: Schema | list[Schema] | None = None
    contains: Schema | None = None
    uniqueItems: bool | None = None
    minItems: int | None = Field(default=None, ge=0)
    maxItems: int | None = Field(default=None, ge=0)
    # texts and numbers
    pattern: str | None = None
    format: str | None = None
    minLength: int | None = Field(default=None, ge=0)
    maxLength: int | None = Field(default=None, ge=0)
    minimum: float | None = None
    maximum: float | None = None
    multipleOf: float | None = Field(default=None, gt=0)
    # of other schemas
    allOf: list[Schema] | None = None
    anyOf: list[Schema] | None = None
    oneOf: list[Schema] | None = None
    not_: Schema | None = Field(default=None, alias="not")

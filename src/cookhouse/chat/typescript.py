"""JSON schemas of tools as the TypeScript that gpt-oss reads, written as `openai-harmony` writes it."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[str, Any]

_TYPES = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}


def write_namespace(name: str, tools: Iterable[Schema]) -> str:
    """A namespace with a function type for each tool (`{"type": "function", "function": {…}}`)."""
    types = "".join(f"{_write_function(tool['function'])}\n\n" for tool in tools)
    return f"## {name}\n\nnamespace {name} {{\n\n{types}}} // namespace {name}"


def _write_function(function: Schema) -> str:
    description = _text(function, "description")
    comment = "".join(f"// {line}\n" for line in description.removesuffix("\n").split("\n")) if description else ""
    parameters = function.get("parameters")
    arguments = f"(_: {_write_type(parameters, '')})" if isinstance(parameters, Mapping) else "()"
    return f"{comment}type {function['name']} = {arguments} => any;"


def _write_type(schema: Any, indent: str) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    if isinstance(schema.get("oneOf"), list):
        return "".join(f"\n{indent} | {line}" for line in _write_variants(schema["oneOf"], indent))
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = ["number" if name == "integer" else name for name in kind if isinstance(name, str)]
        return " | ".join(kinds) or "any"
    if kind == "object":
        return _write_object(schema, indent)
    if kind == "array":
        return f"{_write_type(schema['items'], indent)}[]" if "items" in schema else "Array<any>"
    choices = [f'"{choice}"' for choice in _list(schema, "enum") if isinstance(choice, str)]
    if kind == "string" and choices:
        return " | ".join(choices)
    return _TYPES.get(kind, "any") if isinstance(kind, str) else "any"


def _write_object(schema: Schema, indent: str) -> str:
    description = _text(schema, "description")
    comment = f"{indent}// {description}\n" if description else ""
    properties = schema.get("properties")
    lines: list[str] = []
    if isinstance(properties, Mapping):
        required = _list(schema, "required")
        for name, value in properties.items():
            lines += _write_property(name if name in required else f"{name}?", value, indent)
    return f"{comment}{{\n{''.join(lines)}{indent}}}"


def _write_property(name: str, schema: Any, indent: str) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        yield f"{indent}{name}: any,\n"
        return
    if title := _text(schema, "title"):
        yield f"{indent}// {title}\n{indent}//\n"
    variants = schema.get("oneOf")
    description = _text(schema, "description")
    if description and not isinstance(variants, list):
        yield f"{indent}// {description}\n"
    if examples := _list(schema, "examples"):
        yield f"{indent}// Examples:\n"
        yield from (f'{indent}// - "{example}"\n' for example in examples if isinstance(example, str))
    default = _write_default(schema)
    if not isinstance(variants, list):
        comment = f" // {default}" if default else ""
        yield f"{indent}{name}: {_nullable(schema, _write_type(schema, f'{indent}    '))},{comment}\n"
        return
    first = variants[0] if variants and isinstance(variants[0], Mapping) else {}
    is_above = description is not None and description != first.get("description")
    if is_above:
        yield f"{indent}// {description}\n"
    if default:
        yield f"{indent}// {default}\n"
    yield f"{indent}{name}:\n"
    written = [description, first.get("description")] if is_above else [description]
    yield from (f"{indent} | {line}\n" for line in _write_variants(variants, indent, written))
    yield f"{indent},\n"


def _write_variants(variants: Sequence[Any], indent: str, written: Sequence[str | None] = ()) -> Iterator[str]:
    """Each variant with its comments, but for descriptions that are written already."""
    for variant in variants:
        schema = variant if isinstance(variant, Mapping) else {}
        description = _text(schema, "description")
        comments = [description if description not in written else None, _write_default(schema)]
        comment = " ".join(filter(None, comments))
        yield _nullable(schema, _write_type(variant, f"{indent}   ")) + (f" // {comment}" if comment else "")


def _nullable(schema: Schema, written: str) -> str:
    return f"{written} | null" if schema.get("nullable") is True and "null" not in written else written


def _write_default(schema: Schema) -> str | None:
    if "default" not in schema:
        return None
    default = schema["default"]
    if isinstance(default, str):
        return f"default: {default}" if _list(schema, "enum") else f'default: "{default}"'
    return f"default: {json.dumps(default, ensure_ascii=False, separators=(',', ':'))}"


def _text(schema: Schema, key: str) -> str | None:
    value = schema.get(key)
    return value if isinstance(value, str) else None


def _list(schema: Schema, key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []

"""Tools: schema, arguments that do not fit, and results."""

import json
import re
from dataclasses import replace
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from cookhouse.errors import InputError
from cookhouse.rl import Tool, ToolError, tool

pytestmark = pytest.mark.anyio


@tool
async def search(query: str, limit: int = 3, where: Literal["web", "news"] = "web") -> list[str]:
    """Search for pages.

    The best come first.

    Args:
        query: What to look for:
            all of it.
        limit (int): At most so many.
        where: One of two places.

    Returns:
        query: not a parameter.
    """
    return [f"{where} {query}"] * limit


class Notes:
    def __init__(self) -> None:
        self.kept: list[str] = []

    def keep(self, note: Annotated[str, Field(description="One line.")]) -> str:
        self.kept.append(note)
        return f"{len(self.kept)} notes"


@tool
def divide(a: float, b: float) -> float:
    """Divide a by b."""
    if b == 0:
        raise ToolError("b is 0")
    return a / b


def test_the_schema_says_what_signature_and_docstring_say() -> None:
    assert search.schema() == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search for pages.\n\nThe best come first.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "What to look for: all of it."},
                    "limit": {"type": "integer", "default": 3, "description": "At most so many."},
                    "where": {
                        "type": "string",
                        "enum": ["web", "news"],
                        "default": "web",
                        "description": "One of two places.",
                    },
                },
                "required": ["query"],
                "additionalProperties": False,
            },
        },
    }


async def test_a_bound_method_is_a_tool_with_state() -> None:
    notes = Notes()
    keep = tool(notes.keep)
    assert keep.parameters["properties"] == {"note": {"type": "string", "description": "One line."}}
    assert await keep.call({"note": "a"}) == "1 notes"
    assert await keep.call('{"note": "b"}') == "2 notes"
    assert notes.kept == ["a", "b"]


@pytest.mark.parametrize(
    ("called", "arguments", "expected"),
    [
        (search, {"query": "x", "limit": "2"}, '["web x", "web x"]'),
        (divide, '{"a": 1, "b": 2}', "0.5"),
        (divide, {"a": 1, "b": 0}, "error: b is 0"),
        (search, {"limit": 1}, "error: the arguments of search do not fit: query: Missing required argument"),
        (search, {"query": "x", "site": "y"}, "error: .* site: Unexpected keyword argument"),
        (search, {"query": "x", "where": "home"}, "error: .* where: Input should be 'web' or 'news'"),
        (search, '{"query": ', "error: the arguments of search are not JSON: .*"),
        (search, "", "error: the arguments of search do not fit: query: Missing required argument"),
        (search, '{"query": ' + "1" * 5000 + "}", "error: the arguments of search are not JSON: .*"),
        (search, "[" * 100000, "error: the arguments of search are not JSON: .*"),
        (search, '["x"]', "error: the arguments of search must be an object, by name"),
    ],
)
async def test_results_and_what_does_not_fit_are_text(
    called: Tool, arguments: dict[str, Any] | str, expected: str
) -> None:
    # Anything raised here would fail the rollout: the model could crash a run by what it writes.
    text = await called.call(arguments)
    if expected.startswith("error"):
        assert re.fullmatch(expected, text)
    else:
        assert text == expected


async def test_a_bug_in_a_tool_is_not_the_models_fault() -> None:
    @tool
    def broken(n: int) -> int:
        return int("x" * n)

    with pytest.raises(ValueError, match="invalid literal"):
        await broken.call({"n": 1})


async def test_arguments_are_checked_before_anything_runs() -> None:
    notes = Notes()
    assert (await tool(notes.keep).call({"note": 5})).startswith("error:")
    assert notes.kept == []


async def test_a_long_result_is_cut_and_says_so() -> None:
    @tool
    def shout(text: str) -> str:
        return text * 1000

    short = replace(shout, max_result_chars=10)
    assert await short.call({"text": "ab"}) == "ababababab\n[1990 more characters are not shown]"
    assert len(await shout.call({"text": "ab" * 1000})) < 17000


async def test_a_result_that_is_no_unicode_is_made_so() -> None:
    @tool
    def echo(text: str) -> str:
        return text + json.loads('"\\ud800"')  # type: ignore[no-any-return]

    (await echo.call({"text": "a"})).encode()


def test_functions_that_no_model_can_call_are_refused() -> None:
    def untyped(x):  # type: ignore[no-untyped-def]
        return x

    def many(*x: int) -> int:
        return sum(x)

    def by_place(x: int, /) -> int:
        return x

    def odd(x: Notes) -> str:
        return str(x)

    for function, reason in (
        (untyped, "parameter x has no type"),
        (many, "must be passed by name"),
        (by_place, "must be passed by name"),
        (odd, "no JSON schema"),
    ):
        with pytest.raises(InputError, match=reason):
            tool(function)

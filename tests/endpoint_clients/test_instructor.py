"""Every mode of Instructor that OpenAI's protocol has."""

import asyncio
from collections.abc import Iterable
from typing import Any

import instructor
import openai
import pytest
from instructor.core import IncompleteOutputException, InstructorRetryException
from tests.endpoint_clients.chats import ASKED, MODEL, Paint

HELD = ["TOOLS", "TOOLS_STRICT", "JSON_SCHEMA", "RESPONSES_TOOLS"]
"""Modes whose answer our grammar holds to the class."""
FREE = ["JSON", "MD_JSON", "JSON_O1"]
"""Modes that only ask in words for the class, or for any JSON."""


def client(server: tuple[str, str], mode: str, *, is_async: bool = False) -> Any:
    kind = openai.AsyncOpenAI if is_async else openai.OpenAI
    given = kind(base_url=f"{server[0]}/v1", api_key=server[1], max_retries=0, timeout=60)
    return instructor.from_openai(given, mode=instructor.Mode[mode])


def fields_of(mode: str) -> dict[str, Any]:
    limit = {"max_output_tokens": 60} if mode.startswith("RESPONSES") else {"max_tokens": 60}
    return {"model": MODEL, "messages": ASKED, "max_retries": 0, **limit}


@pytest.mark.parametrize("mode", HELD)
def test_create(server: tuple[str, str], mode: str) -> None:
    """Instructor.create"""
    assert isinstance(client(server, mode).create(response_model=Paint, **fields_of(mode)), Paint)


@pytest.mark.parametrize("mode", FREE)
def test_create_of_words(server: tuple[str, str], mode: str) -> None:
    """Instructor.create, in a mode that asks for the form in words"""
    try:
        answer = client(server, mode).create(response_model=Paint, **fields_of(mode))
    except InstructorRetryException as error:
        if error.last_completion is None:  # it was not answered
            raise
        pytest.xfail("asked and answered; the tiny model writes another form")
    assert isinstance(answer, Paint)


@pytest.mark.parametrize("mode", HELD)
def test_create_with_completion(server: tuple[str, str], mode: str) -> None:
    """Instructor.create_with_completion"""
    answer, completion = client(server, mode).create_with_completion(response_model=Paint, **fields_of(mode))
    assert isinstance(answer, Paint)
    assert completion.usage.total_tokens > 0


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_create_partial(server: tuple[str, str], mode: str) -> None:
    """Instructor.create_partial"""
    *_, last = client(server, mode).create_partial(response_model=Paint, **fields_of(mode))
    Paint.model_validate(last.model_dump())


def test_parallel_tools(server: tuple[str, str]) -> None:
    """Instructor.create, PARALLEL_TOOLS"""
    fields = fields_of("PARALLEL_TOOLS")
    try:
        paints: Any = list(client(server, "PARALLEL_TOOLS").create(response_model=Iterable[Paint], **fields))
    except IncompleteOutputException:
        pytest.xfail("cut by length")
    except InstructorRetryException as error:
        if error.last_completion is None:  # it was not answered
            raise
        pytest.xfail("asked and answered; the tiny model calls no tool that it is free to call")
    assert paints
    assert all(isinstance(paint, Paint) for paint in paints)


@pytest.mark.parametrize("mode", HELD)
def test_async(server: tuple[str, str], mode: str) -> None:
    """Instructor.create of AsyncOpenAI: three at once"""

    async def ask() -> Any:
        asked = client(server, mode, is_async=True)
        return await asyncio.gather(*(asked.create(response_model=Paint, **fields_of(mode)) for _ in range(3)))

    assert all(isinstance(answer, Paint) for answer in asyncio.run(ask()))


def test_no_class(server: tuple[str, str]) -> None:
    """Instructor.create, without a class"""
    answer = client(server, "TOOLS").create(response_model=None, **fields_of("TOOLS"))
    assert answer.choices[0].message.content

"""Dialects in which agents ask a model: a body as a request for a chat, and the form of answers and refusals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cookhouse.agents.rollout import Rollout
from cookhouse.dialects import anthropic, openai
from cookhouse.dialects.anthropic import MessagesAnswer, MessagesRequest
from cookhouse.dialects.errors import FieldError
from cookhouse.dialects.openai import ChatAnswer, ChatRequest, ResponsesAnswer, ResponsesRequest
from cookhouse.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request as read from its body."""

    request: ChatRequest
    new_answer: Callable[..., ChatAnswer | MessagesAnswer | ResponsesAnswer]
    """Of the request, and what the answers of all dialects take."""
    kept_turns: Sequence[Mapping[str, Any]] | None = None
    """The conversation that a later request may go on from by the id of the answer; None: it may not."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    path: str
    read: Callable[[Rollout, bytes], Asked]
    """Raises `InputError` and `pydantic.ValidationError`."""
    error_body: Callable[[InputError], dict[str, Any]]
    are_named: bool
    """True if events have an `event:` line before their data."""
    end: str = ""
    """Of a stream."""


def openai_error(error: InputError) -> dict[str, Any]:
    field, code = (error.field, error.code) if isinstance(error, FieldError) else (None, None)
    return openai.error_body(str(error), 400, field=field, code=code)


def _anthropic_error(error: InputError) -> dict[str, Any]:
    return anthropic.error_body(str(error), 400)


def _read_chat(rollout: Rollout, body: bytes) -> Asked:
    del rollout
    return Asked(request=ChatRequest.model_validate_json(body), new_answer=ChatAnswer)


def _read_messages(rollout: Rollout, body: bytes) -> Asked:
    del rollout
    return Asked(request=MessagesRequest.model_validate_json(body).chat(), new_answer=MessagesAnswer)


def _read_responses(rollout: Rollout, body: bytes) -> Asked:
    content = ResponsesRequest.model_validate_json(body)
    turns = [*rollout.kept_turns(content.previous_response_id), *content.turns()]
    return Asked(
        request=content.chat(turns),
        new_answer=partial(ResponsesAnswer, content),
        kept_turns=None if content.store is False else turns,
    )


CHAT = Dialect(
    path="chat/completions", read=_read_chat, error_body=openai_error, are_named=False, end="data: [DONE]\n\n"
)
MESSAGES = Dialect(path="messages", read=_read_messages, error_body=_anthropic_error, are_named=True)
RESPONSES = Dialect(path="responses", read=_read_responses, error_body=openai_error, are_named=True)
DIALECTS = (CHAT, MESSAGES, RESPONSES)

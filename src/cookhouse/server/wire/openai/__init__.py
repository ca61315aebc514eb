"""Between OpenAI's requests and answers and the engine's types; whatever cannot be decoded is an `InputError`."""

from cookhouse.server.wire.openai.chat import ChatAnswer, ChatRequest
from cookhouse.server.wire.openai.completions import Completion, CompletionRequest
from cookhouse.server.wire.openai.errors import FieldError, error_body, field_of

__all__ = [
    "ChatAnswer",
    "ChatRequest",
    "Completion",
    "CompletionRequest",
    "FieldError",
    "error_body",
    "field_of",
]

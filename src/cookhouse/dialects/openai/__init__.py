"""OpenAI's requests and answers; whatever cannot be read is a `FieldError`."""

from cookhouse.dialects.openai.chat import ChatRequest
from cookhouse.dialects.openai.chat_answer import ChatAnswer
from cookhouse.dialects.openai.completions import Completion, CompletionRequest
from cookhouse.dialects.openai.errors import error_body

__all__ = [
    "ChatAnswer",
    "ChatRequest",
    "Completion",
    "CompletionRequest",
    "error_body",
]

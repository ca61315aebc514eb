"""OpenAI's requests and answers; whatever cannot be read is a `FieldError`."""

from cookhouse.dialects.openai.chat import ChatRequest
from cookhouse.dialects.openai.chat_answer import ChatAnswer
from cookhouse.dialects.openai.completions import Completion, CompletionRequest
from cookhouse.dialects.openai.errors import error_body
from cookhouse.dialects.openai.forms import AnswerForm
from cookhouse.dialects.openai.responses import ResponsesRequest
from cookhouse.dialects.openai.responses_answer import ResponsesAnswer

__all__ = [
    "AnswerForm",
    "ChatAnswer",
    "ChatRequest",
    "Completion",
    "CompletionRequest",
    "ResponsesAnswer",
    "ResponsesRequest",
    "error_body",
]

"""Tokens of a text or of a conversation, and the text of tokens."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from cookhouse.dialects.errors import FieldError
from cookhouse.dialects.openai.chat import ChatRequest
from cookhouse.dialects.openai.completions import TokenId
from cookhouse.dialects.openai.fields import MAX_NAME


class TokenizeRequest(BaseModel):
    """Of a prompt, or of messages with what a chat has beside them."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = Field(default=None, max_length=MAX_NAME)
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None

    def check(self) -> None:
        """Raises `FieldError` where there is not one of both."""
        if (self.prompt is None) == (self.messages is None):
            raise FieldError("prompt", "give a prompt or messages, and not both")

    def chat(self, model: str) -> ChatRequest:
        """The conversation as a request for an answer to it."""
        return ChatRequest(model=model, messages=self.messages or [], **(self.model_extra or {}))


class DetokenizeRequest(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = Field(default=None, max_length=MAX_NAME)
    tokens: Annotated[list[TokenId], Field(max_length=2**22)]

"""Anthropic's messages: requests and answers; whatever cannot be read is a `FieldError`."""

from cookhouse.dialects.anthropic.answer import MessagesAnswer
from cookhouse.dialects.anthropic.errors import error_body
from cookhouse.dialects.anthropic.messages import CountRequest, MessagesRequest

__all__ = ["CountRequest", "MessagesAnswer", "MessagesRequest", "error_body"]

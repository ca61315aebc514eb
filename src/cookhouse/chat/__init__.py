"""Messages and renderers: conversations to tokens, and tokens back to messages."""

from cookhouse.chat.encoding import Encoder, Piece, Special, Tokenizer
from cookhouse.chat.messages import (
    ROLES,
    FunctionCall,
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
    UnparsedToolCall,
    parse_messages,
    text_of,
    thinking_of,
    with_tools,
)
from cookhouse.chat.registry import get_renderer, register_renderer, supported_renderers
from cookhouse.chat.renderer import (
    MessageLayout,
    Renderer,
    RendererFactory,
    SupervisedExample,
    Termination,
    split_at_end,
)
from cookhouse.chat.training_targets import TrainOnWhat, trained_messages

__all__ = [
    "ROLES",
    "Encoder",
    "FunctionCall",
    "ImagePart",
    "Message",
    "MessageLayout",
    "Part",
    "Piece",
    "Renderer",
    "RendererFactory",
    "Role",
    "Special",
    "SupervisedExample",
    "Termination",
    "TextPart",
    "ThinkingPart",
    "Tokenizer",
    "ToolCall",
    "TrainOnWhat",
    "UnparsedToolCall",
    "get_renderer",
    "parse_messages",
    "register_renderer",
    "split_at_end",
    "supported_renderers",
    "text_of",
    "thinking_of",
    "trained_messages",
    "with_tools",
]

"""Messages and renderers: conversations to tokens, and tokens back to messages."""

from cookhouse.chat.call_places import calls_in_order, is_unparsed
from cookhouse.chat.comparisons import LABELS, Comparison, ComparisonRenderer, Label, in_other_order
from cookhouse.chat.encoding import Encoder, Piece, Special, Tokenizer, is_a_name
from cookhouse.chat.messages import (
    MEDIA_KEYS,
    REASONING_KEYS,
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
    is_empty,
    parse_messages,
    split_thinking,
    text_of,
    thinking_of,
    with_tools,
)
from cookhouse.chat.reasoning import begins_inside, is_left_open
from cookhouse.chat.registry import RENDERERS, get_renderer, is_built_in, register_renderer, supported_renderers
from cookhouse.chat.renderer import (
    MessageLayout,
    Renderer,
    RendererFactory,
    SupervisedExample,
    Termination,
)
from cookhouse.chat.shown_texts import shown_text, turn_text
from cookhouse.chat.streaming import UNFINISHED, Delta, GrowingText, ResponseStream
from cookhouse.chat.tool_text import ToolTextRenderer, with_tool_text
from cookhouse.chat.training_targets import TrainOnWhat, trained_messages

__all__ = [
    "LABELS",
    "MEDIA_KEYS",
    "REASONING_KEYS",
    "RENDERERS",
    "ROLES",
    "UNFINISHED",
    "Comparison",
    "ComparisonRenderer",
    "Delta",
    "Encoder",
    "FunctionCall",
    "GrowingText",
    "ImagePart",
    "Label",
    "Message",
    "MessageLayout",
    "Part",
    "Piece",
    "Renderer",
    "RendererFactory",
    "ResponseStream",
    "Role",
    "Special",
    "SupervisedExample",
    "Termination",
    "TextPart",
    "ThinkingPart",
    "Tokenizer",
    "ToolCall",
    "ToolTextRenderer",
    "TrainOnWhat",
    "UnparsedToolCall",
    "begins_inside",
    "calls_in_order",
    "get_renderer",
    "in_other_order",
    "is_a_name",
    "is_built_in",
    "is_empty",
    "is_left_open",
    "is_unparsed",
    "parse_messages",
    "register_renderer",
    "shown_text",
    "split_thinking",
    "supported_renderers",
    "text_of",
    "thinking_of",
    "trained_messages",
    "turn_text",
    "with_tool_text",
    "with_tools",
]

"""Tasks of Inspect AI with a tool, which any model can be asked."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool, ChatMessageUser
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, ToolCall, tool


@tool
def add() -> Tool:
    async def execute(x: int, y: int) -> str:
        """Add two numbers.

        Args:
            x: The first.
            y: The second.
        """
        return str(x + y)

    return execute


@task
def sums() -> Task:
    samples = [Sample(input=_question(x, y), target=str(x + y)) for x, y in ((2, 3), (10, 4))]
    return Task(dataset=samples, solver=[use_tools(add()), generate()], scorer=includes(), message_limit=6)


@task
def shown_sums() -> Task:
    """The same with worked examples, which a small model imitates."""
    samples = [Sample(input=_shown(x, y), target=str(x + y)) for x, y in ((2, 3), (1, 4))]
    return Task(dataset=samples, solver=[use_tools(add()), generate()], scorer=includes(), message_limit=24)


def _shown(x: int, y: int) -> list[ChatMessage]:
    examples = [message for a, b in ((5, 1), (3, 4), (2, 6)) for message in _worked(a, b)]
    return [*examples, ChatMessageUser(content=_question(x, y))]


def _worked(x: int, y: int) -> list[ChatMessage]:
    call = ToolCall(id=f"call_{x}_{y}", function="add", arguments={"x": x, "y": y})
    return [
        ChatMessageUser(content=_question(x, y)),
        ChatMessageAssistant(content="", tool_calls=[call]),
        ChatMessageTool(content=str(x + y), tool_call_id=call.id, function="add"),
        ChatMessageAssistant(content=f"The sum is {x + y}."),
    ]


def _question(x: int, y: int) -> str:
    return f"What is {x} plus {y}? Use the tool."

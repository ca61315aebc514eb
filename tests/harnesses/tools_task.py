"""A task of Inspect AI with a tool, which any model can be asked."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool


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
    samples = [Sample(input=f"What is {x} plus {y}? Use the tool.", target=str(x + y)) for x, y in ((2, 3), (10, 4))]
    return Task(dataset=samples, solver=[use_tools(add()), generate()], scorer=includes(), message_limit=6)

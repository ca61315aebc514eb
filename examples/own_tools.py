"""A tool of one's own: what a thing costs, which the model cannot know and may ask.

cookhouse run supervised dataset_path=examples/own_tools.py:calls renderer_name=qwen3_instruct \
    batch_size=2 num_epochs=4 log_path=runs/calls
cookhouse run rl env=examples/own_tools.py:build renderer_name=qwen3_instruct load_checkpoint_path=runs/calls \
    max_tokens=40 max_turns=2 batch_size=8 group_size=8 learning_rate=3e-4 max_steps=12
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from cookhouse import EnvironmentSettings, RLDatasetBuilder, message_environments
from cookhouse.chat import Message, text_of
from cookhouse.envs import OpenSampler
from cookhouse.rl import Metrics, Tool, ToolEnv, ToolError, tool

ITEMS = ("apple", "bread", "candle", "goat")
Problem = tuple[str, Mapping[str, int]]
"""The item that is asked for, and what each costs today."""


def price_of(prices: Mapping[str, int]) -> Tool:
    """The tool of one episode."""

    @tool
    def price(item: str) -> int:
        """What one item costs."""
        if item not in prices:
            raise ToolError(f"no {item}; there are {', '.join(prices)}")
        return prices[item]

    return price


async def paid(problem: Problem, messages: Sequence[Message]) -> tuple[float, Metrics]:
    """Reward 1 for the right price as the whole answer; what the tool said is no answer yet."""
    item, prices = problem
    is_right = text_of(messages[-1]).strip() == str(prices[item])
    return float(is_right), {"correct": float(is_right)}


def shop(problem: Problem) -> ToolEnv:
    """One episode: calls are answered until the model says something without one."""
    item, prices = problem
    return ToolEnv([asked(item)], [price_of(prices)], partial(paid, problem))


def asked(item: str) -> Message:
    return {"role": "user", "content": f"What does the {item} cost?"}


def problems(count: int, seed: int) -> list[Problem]:
    rng = random.Random(seed)
    return [(rng.choice(ITEMS), {item: rng.randrange(10, 100) for item in ITEMS}) for _ in range(count)]


def calls() -> Iterator[dict[str, Any]]:
    """Conversations to begin from: eight questions each, with the call, its result, and the answer."""
    for seed in range(48):
        messages: list[dict[str, Any]] = []
        for item, prices in problems(8, seed):
            call = {"type": "function", "function": {"name": "price", "arguments": {"item": item}}}
            messages += [
                {**asked(item)},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "content": str(prices[item])},
                {"role": "assistant", "content": str(prices[item])},
            ]
        yield {"messages": messages, "tools": [price_of({}).schema()]}


def build(settings: EnvironmentSettings, open_sampler: OpenSampler) -> RLDatasetBuilder:
    """Problems to train on, and others to evaluate on."""
    del open_sampler
    return message_environments(settings, shop, train=problems(120, seed=100), test=problems(32, seed=101))

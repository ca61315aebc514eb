"""A tool loop over OpenAI's SDK as an agent, which learns where to ask: one of four shops has the thing.

cookhouse run supervised dataset_path=examples/own_agent.py:calls renderer_name=qwen3_instruct \
    batch_size=2 num_epochs=4 log_path=runs/calls
cookhouse run rl env=agent agent=examples/own_agent.py:buy dataset_path=examples/own_agent.py:tasks \
    renderer_name=qwen3_instruct load_checkpoint_path=runs/calls max_tokens=40 \
    batch_size=8 group_size=8 learning_rate=3e-4 max_steps=12
"""

import json
import random
from collections.abc import Iterator
from typing import Any

SHOPS = ("north", "south", "east", "west")
SHOP = {"type": "object", "properties": {"shop": {"type": "string"}}, "required": ["shop"]}
PRICE: Any = {"type": "function", "function": {"name": "price", "description": "", "parameters": SHOP}}
THINGS = ("apple", "bread", "candle", "goat")


async def buy(task: dict[str, Any], client: Any) -> float:
    """Reward 1 for the price as the whole answer, in three turns."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": task["question"]}]
    for _ in range(3):
        answer = await client.chat.completions.create(model="any", messages=messages, tools=[PRICE])
        message = answer.choices[0].message
        if not message.tool_calls:
            return float((message.content or "").strip() == str(task["price"]))
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            is_there = json.loads(call.function.arguments).get("shop") == "east"
            result = str(task["price"]) if is_there else "sold out"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return 0.0


def tasks() -> Iterator[dict[str, Any]]:
    rng = random.Random(0)
    for _ in range(240):
        yield {"question": f"What does the {rng.choice(THINGS)} cost?", "price": rng.randrange(10, 100)}


def calls() -> Iterator[dict[str, Any]]:
    """Conversations that show how the tool is called, and not where: every shop is as good."""
    rng = random.Random(1)
    for _ in range(48):
        messages: list[dict[str, Any]] = []
        for _ in range(8):
            call = {"type": "function", "function": {"name": "price", "arguments": {"shop": rng.choice(SHOPS)}}}
            result = rng.choice(("sold out", str(rng.randrange(10, 100))))
            messages += [
                {"role": "user", "content": f"What does the {rng.choice(THINGS)} cost?"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "content": result},
                {"role": "assistant", "content": result},
            ]
        yield {"messages": messages, "tools": [PRICE]}

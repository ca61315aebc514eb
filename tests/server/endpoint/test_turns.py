"""Catches a tenant whose texts wait for all those of another."""

import asyncio
from functools import partial
from typing import Any, cast

from cookhouse.server.requests.completions.completions import Answers


def test_texts_are_read_with_the_tenants_in_rotation() -> None:
    async def main() -> list[str]:
        nothing = cast("Any", None)
        answers = Answers(nothing, nothing)
        order: list[str] = []
        names = ["a1", "a2", "a3", "b1"]
        await asyncio.gather(*(answers.in_text_thread(name[0], partial(order.append, name)) for name in names))
        answers.shut_down()
        return order

    assert asyncio.run(main()) == ["a1", "a2", "b1", "a3"]

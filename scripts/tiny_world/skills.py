"""The table of skills: how each draws a problem, and its share of the pretraining text."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from scripts.tiny_world.code import python
from scripts.tiny_world.knowledge import fact
from scripts.tiny_world.numbers import add, compare, convert, multiply, subtract
from scripts.tiny_world.problem import Problem
from scripts.tiny_world.words import reverse, sort, style


@dataclass(frozen=True, kw_only=True)
class Skill:
    """`share` is relative to the other skills' shares."""

    draw: Callable[[random.Random], Problem]
    share: float


SKILLS = {
    "add": Skill(draw=add, share=5),
    "subtract": Skill(draw=subtract, share=4),
    "multiply": Skill(draw=multiply, share=3),
    "compare": Skill(draw=compare, share=2),
    "convert": Skill(draw=convert, share=2),
    "sort": Skill(draw=sort, share=5),
    "reverse": Skill(draw=reverse, share=3),
    "fact": Skill(draw=fact, share=3),
    "style": Skill(draw=style, share=1),
    "python": Skill(draw=python, share=2),
}

"""Plain text for pretraining: the skills in many layouts, and very little of it in the chat format."""

import random
from collections.abc import Iterator

from scripts.tiny_world.lexicon import NAMES
from scripts.tiny_world.problem import Problem
from scripts.tiny_world.skills import SKILLS
from scripts.tiny_world.stories import story, topic

END_OF_TEXT = "<|endoftext|>"
# Share of documents that show the chat format, always with a story for an answer: the special tokens are learned, the
# habit of answering is not.
_CHAT_SHARE = 0.02
_STORY_SHARE = 0.06

_TITLES = (
    "Notes",
    "Things to know",
    "Examples",
    "Lesson",
    "Exercises",
    "From the school book",
    "What we learned today",
)
# The last two begin a line with the answer.
_LABELS = (("Q: ", "A: "), ("Question: ", "Answer: "), ("Teacher: ", "Pupil: "), ("Question:\n", "Answer:\n"), ("", ""))


def documents(seed: int, *, fact_share: float = SKILLS["fact"].share) -> Iterator[str]:
    """Endless documents, the same for the same arguments.

    None holds a problem that is kept for the test, save that facts kept for the test are told, never asked.
    """
    rng = random.Random(f"documents {seed}")
    shares = [fact_share if name == "fact" else skill.share for name, skill in SKILLS.items()]
    while True:
        draw = rng.random()
        if draw < _CHAT_SHARE:
            yield _story_chat(rng)
        elif draw < _CHAT_SHARE + _STORY_SHARE:
            yield story(rng)
        else:
            yield _lesson(rng, shares)


def _lesson(rng: random.Random, shares: list[float]) -> str:
    """A document about one skill, or about several, which are as likely as their shares."""
    is_mixed = rng.random() < 0.5
    names = rng.choices(list(SKILLS), shares, k=8)
    count = rng.randint(2, 8)
    layout = rng.choice((_prose, _lines, _bullets, _questions, _questions, _talk))
    chosen = names[:count] if is_mixed else names[:1] * count
    problems = [_draw(rng, name, asked=layout in (_questions, _talk)) for name in chosen]
    return layout(rng, problems)


def _draw(rng: random.Random, name: str, *, asked: bool) -> Problem:
    while True:
        problem = SKILLS[name].draw(rng)
        if not problem.is_held_out or (name == "fact" and not asked):
            return problem


def _prose(rng: random.Random, problems: list[Problem]) -> str:
    return " ".join(problem.tell(rng) for problem in problems)


def _lines(rng: random.Random, problems: list[Problem]) -> str:
    return "\n".join([rng.choice(_TITLES) + ":", *(problem.tell(rng) for problem in problems)])


def _bullets(rng: random.Random, problems: list[Problem]) -> str:
    return "\n".join([rng.choice(_TITLES), *(f"- {problem.tell(rng)}" for problem in problems)])


def _questions(rng: random.Random, problems: list[Problem]) -> str:
    ask, answer = rng.choice(_LABELS)
    return "\n".join(f"{ask}{problem.ask(rng)}\n{answer}{problem.answer}" for problem in problems)


def _talk(rng: random.Random, problems: list[Problem]) -> str:
    asker, answerer = rng.sample(NAMES, 2)
    lines = [f'{asker} asked: "{problem.ask(rng)}" {answerer} said: "{problem.answer}"' for problem in problems]
    return "\n".join(lines)


def _story_chat(rng: random.Random) -> str:
    turns = [
        f"<|im_start|>user\n{topic(rng)}<|im_end|>\n<|im_start|>assistant\n{story(rng)}<|im_end|>\n"
        for _ in range(rng.choice((1, 1, 2)))
    ]
    return "".join(turns)

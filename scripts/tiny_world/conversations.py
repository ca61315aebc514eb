"""Chat conversations for supervised training and for the test."""

import random
from dataclasses import dataclass

from scripts.tiny_world.problem import Problem
from scripts.tiny_world.skills import SKILLS

_POLITE = ("Be polite.", "You are a polite assistant.", "Answer politely.")
_CURT = ("Be brief.", "You are a curt assistant.", "Answer with as few words as possible.")
_LISTS = ("sort", "reverse", "style", "python")
# Shares of conversations with a system prompt, and with more than one question.
_SYSTEM_SHARE = 0.25
_MULTI_TURN_SHARE = 0.2


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Messages as `{"role", "content"}`, the skill of the last question, and every problem asked."""

    messages: tuple[dict[str, str], ...]
    skill: str
    problems: tuple[Problem, ...]

    def row(self) -> dict[str, object]:
        return {"messages": list(self.messages), "skill": self.skill}


def conversations(count: int, *, held_out: bool, seed: int) -> list[Conversation]:
    """`count` different conversations, every skill as often, of problems that are held out or of such that are not."""
    rng = random.Random(f"conversations {seed} {'test' if held_out else 'train'}")
    made: dict[str, Conversation] = {}
    names = list(SKILLS)
    while len(made) < count:
        conversation = _conversation(rng, names[len(made) % len(names)], held_out=held_out)
        # A test problem is asked once; training may meet one problem in several wordings.
        name = conversation.problems[-1].key if held_out else repr(conversation.messages)
        made.setdefault(f"{conversation.skill}|{name}", conversation)
    rows = list(made.values())
    rng.shuffle(rows)
    return rows


def _conversation(rng: random.Random, skill: str, *, held_out: bool) -> Conversation:
    system = rng.choice(_POLITE + _CURT) if rng.random() < _SYSTEM_SHARE else None
    num_turns = rng.choice((2, 3)) if rng.random() < _MULTI_TURN_SHARE else 1
    names = [*rng.choices(list(SKILLS), k=num_turns - 1), skill]
    problems = [_draw(rng, name, held_out=held_out) for name in names]
    messages = [{"role": "system", "content": system}] if system else []
    for problem in problems:
        answer = _politely(problem) if system in _POLITE else problem.answer
        messages += [{"role": "user", "content": problem.ask(rng)}, {"role": "assistant", "content": answer}]
    return Conversation(messages=tuple(messages), skill=skill, problems=tuple(problems))


def _politely(problem: Problem) -> str:
    return f"Of course! {'Here you are:' if problem.skill in _LISTS else 'The answer is'} {problem.answer}"


def _draw(rng: random.Random, name: str, *, held_out: bool) -> Problem:
    while True:
        problem = SKILLS[name].draw(rng)
        if problem.is_held_out == held_out and not problem.is_hard:
            return problem

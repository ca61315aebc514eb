"""The rules of a race: two players in turn say the next number, at most so many above the last; the target wins.

A form of Nim: who leaves the other at target − k · (max_add + 1) wins from there. A pure game, without a model.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Bot = Callable[["RaceGame", random.Random], int]
"""A scripted player: the number it says."""


@dataclass(kw_only=True)
class RaceGame:
    """One game, changed by its moves. Players are 0 and 1; whoever says a number that is not allowed has lost."""

    total: int
    target: int
    max_add: int
    to_move: int
    winner: int | None = None

    @property
    def is_over(self) -> bool:
        return self.winner is not None

    @property
    def allowed(self) -> Sequence[int]:
        """Numbers that may be said next."""
        return range(self.total + 1, min(self.total + self.max_add, self.target) + 1)

    def question(self) -> str:
        """The position, as the player to move is asked."""
        *others, last = map(str, self.allowed)
        return f"Which number do you say: {', '.join(others)} or {last}?" if others else f"Do you say {last}?"

    def say(self, text: str) -> bool:
        """Move by what the player says, and return whether it was allowed."""
        number = text.strip().rstrip(".!")
        is_allowed = number in map(str, self.allowed)
        if is_allowed:
            self.total = int(number)
        if not is_allowed:
            self.winner = 1 - self.to_move
        elif self.total == self.target:
            self.winner = self.to_move
        self.to_move = 1 - self.to_move
        return is_allowed


def random_bot(game: RaceGame, rng: random.Random) -> int:
    """Says any number that is allowed."""
    return rng.choice(game.allowed)


def perfect_bot(game: RaceGame, rng: random.Random) -> int:
    """Wins wherever the position can be won; otherwise as `random_bot`."""
    winning = [number for number in game.allowed if (game.target - number) % (game.max_add + 1) == 0]
    return winning[0] if winning else random_bot(game, rng)


BOTS: dict[str, Bot] = {"perfect": perfect_bot, "random": random_bot}

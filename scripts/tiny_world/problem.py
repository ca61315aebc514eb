"""A problem of the small world, and the rule that keeps some of them for the test."""

import hashlib
import random
from dataclasses import dataclass

# One problem in this many is kept for the test.
HELD_OUT_PERIOD = 8


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One question with one right answer, in several wordings.

    `key` is the content without the wording, so that two wordings of one problem are one problem, and so are two
    questions of which one gives the other away (3 + 5 and 5 + 3, meters in centimeters and back).
    """

    skill: str
    key: str
    answer: str
    questions: tuple[str, ...]
    statements: tuple[str, ...]  # the problem and its answer in plain text
    is_hard: bool = False  # told in plain text, not asked in the conversations
    is_taught: bool = False  # one of so few of its kind that it is never kept for the test

    @property
    def is_held_out(self) -> bool:
        """Whether the problem belongs to the test: decided by its content alone, the same on every machine."""
        if self.is_taught:
            return False
        digest = hashlib.blake2b(f"{self.skill}|{self.key}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) % HELD_OUT_PERIOD == 0

    def ask(self, rng: random.Random) -> str:
        """One wording of the question."""
        return rng.choice(self.questions)

    def tell(self, rng: random.Random) -> str:
        """One sentence that holds the problem and its answer."""
        return rng.choice(self.statements)

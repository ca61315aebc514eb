"""IFEval: instructions that a program can tell whether an answer follows.

The twenty-five checks are those of "Instruction-Following Evaluation for Large Language Models" (Zhou et al., 2023).
They agree with those of its authors and of lm-evaluation-harness, but for these:

- A keyword, a forbidden word, and a mark of sections is a text, not a regular expression.
- A letter to count may be any character, where theirs draws another one at random for what is not a letter.
- Sentences are split by rules (`segments`), without the data that NLTK downloads.
- The language of a text is the same each time it is asked.
"""

from cookhouse.grading.ifeval.instructions import (
    CHECKS,
    Instruction,
    InstructionScores,
    follows,
    parse_instructions,
    score_instructions,
)

__all__ = ["CHECKS", "Instruction", "InstructionScores", "follows", "parse_instructions", "score_instructions"]

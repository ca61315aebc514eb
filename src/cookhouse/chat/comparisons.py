"""Two answers to one prompt, put before a model that says which is better.

    prompt · ==== Completion A ==== · answer · ==== Completion B ==== · answer · ==== Preference ==== · A, B or Tie

The marks are system messages, as in tinker-cookbook's format, and user messages in families that take a system message
only as the first.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from cookhouse.chat.messages import Message, Role
from cookhouse.chat.renderer import Renderer
from cookhouse.chat.training_targets import TrainOnWhat
from cookhouse.errors import InputError

Label = Literal["A", "B", "Tie"]
LABELS: tuple[Label, ...] = ("A", "B", "Tie")

C = TypeVar("C", bound="Comparison")

_MARKS = ("==== Completion A ====", "==== Completion B ====", "==== Preference ====")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A prompt, and two continuations of it."""

    prompt: list[Message]
    completion_a: list[Message]
    completion_b: list[Message]


def in_other_order(comparison: C) -> C:
    """The same two continuations, the second one first."""
    return replace(comparison, completion_a=comparison.completion_b, completion_b=comparison.completion_a)


class ComparisonRenderer:
    """Writes comparisons in the chat format of a renderer. A label is identified by its first token.

    Raises:
        InputError: two labels begin with the same token, so that one token cannot tell them apart.
    """

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._role = _role_of_marks(renderer)
        answer: list[Message] = [{"role": "assistant", "content": "."}]
        probe = Comparison(prompt=[{"role": "user", "content": "?"}], completion_a=answer, completion_b=answer)
        wholes = [self._with_label(probe, label) for label in LABELS]
        # What the labels have in common, such as an empty thought, stands before them all.
        place = next(i for i, tokens in enumerate(zip(*wholes, strict=False)) if len(set(tokens)) > 1)
        self.label_tokens = tuple(whole[place] for whole in wholes)
        """Of `LABELS`, in their order."""
        self._num_behind = len(wholes[0]) - place
        if len(set(self.label_tokens)) < len(LABELS):
            raise InputError(
                f"{', '.join(LABELS)} begin with the tokens {', '.join(map(str, self.label_tokens))} in this chat "
                "format; a preference is read from that first token, so it must differ for each; use another renderer"
            )

    def build_prompt(self, comparison: Comparison) -> list[int]:
        """The tokens before the label, those of an empty thought included where the family writes one.

        Raises:
            InputError: the family cannot write the messages.
        """
        return self._with_label(comparison, LABELS[0])[: -self._num_behind]

    def build_example(self, comparison: Comparison, label: Label) -> tuple[list[int], list[float]]:
        """Tokens up to and with the label's first, and their weights: 1 for that one. Raises as `build_prompt`."""
        prompt = self.build_prompt(comparison)
        return [*prompt, self.label_tokens[LABELS.index(label)]], [0.0] * len(prompt) + [1.0]

    def _with_label(self, comparison: Comparison, label: Label) -> list[int]:
        of_a, of_b, of_label = ([Message(role=self._role, content=mark)] for mark in _MARKS)
        said: list[Message] = [
            *comparison.prompt,
            *of_a,
            *comparison.completion_a,
            *of_b,
            *comparison.completion_b,
            *of_label,
            {"role": "assistant", "content": label},
        ]
        model_input, _ = self._renderer.build_supervised_examples(said, TrainOnWhat.LAST_ASSISTANT_MESSAGE)[-1]
        return model_input.to_ints()


def _role_of_marks(renderer: Renderer) -> Role:
    probe: list[Message] = [{"role": "user", "content": "?"}, {"role": "system", "content": _MARKS[-1]}]
    try:
        renderer.build_generation_prompt(probe)
    except InputError:
        return "user"
    return "system"

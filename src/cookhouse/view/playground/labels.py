"""Labels that people give to two answers, appended to a JSONL file that `cookhouse run dpo dataset_path=...` takes."""

import secrets
import shlex
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.files import append_row
from cookhouse.view.playground.answers import Answered
from cookhouse.view.playground.question import Question

LABELS: Final = {"left": 0, "right": 1, "tie": None, "both bad": None}
"""What may be said of two answers, and which is then the better one; None: neither, and nothing is written."""
_MAX_KEPT: Final = 100


@dataclass(frozen=True, kw_only=True)
class LabeledPair:
    """Two answers to one question."""

    question: Question
    answers: tuple[Answered, Answered]

    def row(self, better: int) -> dict[str, Any]:
        """Itself as a preference, and besides what is learned from, how the answers came about."""
        chosen, rejected = self.answers[better], self.answers[1 - better]
        return {
            "prompt": self.question.messages,
            "chosen": [chosen.message],
            "rejected": [rejected.message],
            "chosen_by": chosen.weights,
            "rejected_by": rejected.weights,
            "seed": self.question.seed,
            "temperature": self.question.temperature,
        }


@dataclass(frozen=True, kw_only=True)
class Labeled:
    """Result of adding a label."""

    line: int | None
    """Of the file; None: nothing was written."""
    command: str
    """Trains on the file."""


class LabelFile:
    """The last pairs of answers, and the file of what was said of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pairs: OrderedDict[str, LabeledPair] = OrderedDict()
        self._writing = threading.Lock()

    def keep(self, pair: LabeledPair) -> str:
        """Keep a pair for as long as there are not many later ones; its id."""
        key = secrets.token_urlsafe(12)
        self._pairs[key] = pair
        if len(self._pairs) > _MAX_KEPT:
            self._pairs.popitem(last=False)
        return key

    def label(self, key: str, label: str) -> Labeled:
        """Write which answer of a pair is better, unless neither is; a pair is labeled once. Blocking.

        Raises:
            UnknownNameError: there is no such label.
            InputError: the pair is not kept, nothing can be learned from it, or the file cannot be written.
        """
        if label not in LABELS:
            raise UnknownNameError("label", label, LABELS)
        with self._writing:
            pair = self._pairs.get(key)
            if pair is None:
                raise InputError("these answers have their label, or are not kept any more; ask again for others")
            better = LABELS[label]
            line = None if better is None else self._write(pair.row(better), pair)
            self._pairs.pop(key, None)  # later pairs may have pushed it out
        return Labeled(line=line, command=self.command(pair.answers[0].model))

    def command(self, model: str | None = None) -> str:
        """Command that trains a base model on the file; None: the recipe's own."""
        words = ["cookhouse", "run", "dpo", f"dataset_path={self.path}", *([f"model_name={model}"] if model else [])]
        return shlex.join(words)

    def _write(self, row: dict[str, Any], pair: LabeledPair) -> int:
        _check(row, pair)
        try:
            return append_row(self.path, row, is_private=True)
        except OSError as error:
            raise InputError(
                f"cannot write {self.path}: {error.strerror}; serve with another file (--labels)"
            ) from error


def _check(row: dict[str, Any], pair: LabeledPair) -> None:
    """Refuse what the recipe would refuse, before it is written."""
    from cookhouse.data.rows.pairs import preference_from_row

    if not pair.question.is_chat:
        raise InputError("dpo learns from answers in a conversation; ask as a chat to keep which answer is better")
    preference_from_row(row, "these answers")

"""Judge of whether an answer is as good as the expected one, where no rule can say."""

import logging
from collections.abc import Sequence

from cookhouse.chat import Message
from cookhouse.errors import InputError
from cookhouse.evals.benchmarks.attempts import Grade
from cookhouse.grading import PreferenceModel, compare_texts

_log = logging.getLogger(__name__)


class Judge:
    """A preference model that answers are compared by with what was expected; it is there once the session is open."""

    def __init__(self) -> None:
        self.is_asked = False
        """Whether an item needs it."""
        self.model: PreferenceModel | None = None

    async def __call__(self, messages: Sequence[Message], answer: str, expected: str) -> Grade:
        """`correct` is the probability that the answer wins or draws. A judge that says neither A, B nor Tie leaves the
        answer not well formed, which is told. Raises `ServiceError` as the model.
        """
        assert self.model is not None
        try:
            judgment = await compare_texts(self.model, messages, answer.strip(), expected)
        except InputError as error:
            _log.warning("the judge did not judge an answer, which counts as malformed: %s", error)
            return Grade(correct=0.0, is_well_formed=False)
        return Grade(correct=judgment.a + judgment.tie)

"""Prompts of any data set: to be answered, and graded only where the row has an answer, by being exactly that."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import chz
import tinker

from cookhouse.assets import data_file
from cookhouse.chat import Message, text_of
from cookhouse.data import (
    DataSource,
    FileSource,
    PromptRow,
    data_source,
    iter_rows,
    parse_columns,
    parse_each,
    question_from_row,
)
from cookhouse.data.rows.remarks import null_remarks
from cookhouse.envs.builder import ConfigBuilder
from cookhouse.envs.dataset import EnvConfig, GroupDataset
from cookhouse.envs.problems.problem import ProblemEnv, ProblemGroupBuilder
from cookhouse.envs.prompting import Prompting, in_words
from cookhouse.errors import InputError
from cookhouse.rl import StepResult, StopCondition
from cookhouse.settings import at_least, columns_setting

_BUNDLED = "conversations"
_log = logging.getLogger(__name__)


class PromptEnv(ProblemEnv):
    """The messages of a row up to its answer. The reward is 1 for exactly that answer and else 0; of a row without one
    it is 0, and nothing is reported of it.
    """

    def __init__(self, row: PromptRow, prompting: Prompting) -> None:
        super().__init__(prompting, format_coef=0.0)
        self.row = row
        self._expected = None if row.answer is None else _said(row, row.answer, prompting)

    def get_question(self) -> str:
        return in_words(_asked(self.row, self.prompting))

    def get_expected(self) -> str:
        return self._expected or ""

    def check_format(self, answer: str) -> bool:
        return bool(answer.strip())

    async def check_answer(self, answer: str) -> float:
        return float(self._expected is not None and answer.strip() == self._expected.strip())

    async def initial_observation(self) -> tuple[tinker.ModelInput, StopCondition]:
        renderer = self.prompting.renderer
        return renderer.build_generation_prompt(_asked(self.row, self.prompting)), renderer.get_stop_sequences()

    async def step(self, action: Sequence[int]) -> StepResult:
        result = await super().step(action)
        return result if self._expected is not None else _ungraded(result)


def _asked(row: PromptRow, prompting: Prompting) -> list[Message]:
    system_prompt = prompting.system_prompt
    if not system_prompt or row.prompt[0]["role"] == "system":
        return row.prompt
    return [{"role": "system", "content": system_prompt}, *row.prompt]


def _said(row: PromptRow, answer: str, prompting: Prompting) -> str:
    """An answer as one of the model's is read."""
    said: Message = {"role": "assistant", "content": answer}
    return text_of(prompting.renderer.read_back([*_asked(row, prompting), said]))


def _ungraded(result: StepResult) -> StepResult:
    return StepResult(
        reward=0.0,
        episode_done=result.episode_done,
        next_observation=result.next_observation,
        next_stop_condition=result.next_stop_condition,
        logs=result.logs,
    )


@chz.chz
class PromptsConfig(EnvConfig):
    """Prompts, or conversations up to their last answer: bundled ones, or those of any data set."""

    has_several_turns = False
    unread = frozenset({"format_coef"})

    dataset_path: str | None = chz.field(default=None, doc="Rows to train on; default: the bundled conversations.")
    test_path: str | None = chz.field(
        default=None, doc="Rows to evaluate on; default: those of the bundled conversations, else none."
    )
    columns: str = columns_setting()
    max_prompt_tokens: int | None = chz.field(
        default=1024, doc="Longer prompts are left out; none: all are taken.", validator=at_least(1)
    )

    async def build(self) -> tuple[GroupDataset[PromptRow], GroupDataset[PromptRow] | None]:
        """Read both. Raises `InputError` for a bad row, by file and line, or where no prompt is short enough."""
        train = self.train_set(
            self._read(self._source("train", self.dataset_path), self.n_train_samples),
            partial(self._group, self.group_size),
        )
        if self.dataset_path is not None and self.test_path is None:
            return train, None
        return train, self.test_set(self._read(self._source("test", self.test_path), None), partial(self._group, 1))

    def _source(self, part: str, path: str | None) -> DataSource:
        if path is None:
            return FileSource(path=data_file(f"{_BUNDLED}/{part}.jsonl"))
        return data_source(path, columns=parse_columns(self.columns))

    def _read(self, source: DataSource, limit: int | None) -> list[PromptRow]:
        read = parse_each(islice(iter_rows(source), limit), lambda row: question_from_row(row.value(), row.place))
        for note in null_remarks(read, what="prompts"):
            _log.warning("%s", note)
        kept = [row for row in read if self._fits(row)]
        if not kept:
            raise InputError(f"{source} holds no prompt of at most max_prompt_tokens={self.max_prompt_tokens} tokens")
        if len(kept) < len(read):
            _log.warning(
                "%s: %d of %d prompts are longer than %d tokens and left out",
                source,
                len(read) - len(kept),
                len(read),
                self.max_prompt_tokens,
            )
        return kept

    def _fits(self, row: PromptRow) -> bool:
        if self.max_prompt_tokens is None:
            return True
        prompting = self.prompting
        return bool(prompting.renderer.build_generation_prompt(_asked(row, prompting)).length <= self.max_prompt_tokens)

    def _group(self, group_size: int, row: PromptRow) -> ProblemGroupBuilder:
        tags = _tags(row.extra)
        return ProblemGroupBuilder(
            make_env=partial(PromptEnv, row, self.prompting), group_size=group_size, tags=("prompts", *tags)
        )


def _tags(extra: Mapping[str, Any]) -> Sequence[str]:
    """Tags by which metrics are reported, if the row has them."""
    skill = extra.get("skill")
    return (skill,) if isinstance(skill, str) and skill != "prompts" else ()


TULU3 = ConfigBuilder(PromptsConfig, {"dataset_path": "tulu3", "test_path": None})
"""The prompts of Tulu 3: nothing is graded but what is exactly the answer there."""

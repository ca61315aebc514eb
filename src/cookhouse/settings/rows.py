"""Settings of runs over rows of the user's."""

from typing import Any, Literal

import chz

from cookhouse.naming import names_in
from cookhouse.settings.checks import at_least, within
from cookhouse.settings.facts import facts
from cookhouse.settings.judge import WITH_HELD_OUT
from cookhouse.settings.reading import read_if
from cookhouse.settings.training import ModelSettings, ShrinkSettings


def columns_setting(validator: Any = None) -> Any:
    """The setting by which rows may have our fields by other names."""
    return chz.field(
        default="",
        doc="Your names of columns, as in prompt:Question,completion:Answer. Upper and lower case are the same.",
        validator=validator,
        metadata=facts(is_list=True),
    )


BUNDLED = "bundled"
"""Names the bundled data of a recipe, also for models whose default is another set."""

ROWS_FIELDS = ("dataset_path", "test_path")
"""Settings that name rows, or take them."""


def _has_own_rows(config: Any) -> bool:
    paths = (config.dataset_path, config.test_path)
    return any(name != BUNDLED for path in paths if path is not None for name in names_in(path))


@chz.chz
class RowSettings(ModelSettings, ShrinkSettings):
    """Settings of the rows that are trained on and held out, and of their numbers."""

    help_title = "Data"

    dataset_path: str | None = chz.field(
        default=None,
        doc="Training data: a file, folder, hub id or known name. JSONL, JSON, CSV or Parquet; a hub id "
        "may end in #SPLIT or #CONFIG/SPLIT; module:NAME or file.py:NAME; several separated by commas.",
        metadata=facts(is_list=True, aliases=("dataset",)),
    )
    test_path: str | None = chz.field(
        default=None,
        doc="Held-out data, named like the training data. Default: what the bundled data and known data sets hold out.",
    )
    eval_fraction: float | None = chz.field(
        default=None,
        doc="Share of rows to hold out for evaluation; default: none. Of preferences and prompts each prompt "
        "goes with all of its rows.",
        validator=within(0, 1, "0.05"),
    )
    columns: str = columns_setting()
    delimiter: str | None = chz.field(
        default=None, doc="Character between the cells of CSV, or tab; default: the one that is found."
    )
    on_bad_row: Literal["stop", "skip"] = chz.field(
        default="stop",
        doc="stop: rows that cannot be used refuse the run; skip: they are left out, and counted.",
        validator=read_if(_has_own_rows, "with rows that are not the bundled ones"),
        metadata=facts(free_on_resume=True),
    )
    max_length: int = chz.field(
        default=32768, doc="Tokens per example, at most; longer ones are truncated.", validator=at_least(1)
    )
    eval_max_tokens: int = chz.field(
        default=64,
        doc="Tokens sampled for each answer in an evaluation.",
        validator=[at_least(1), WITH_HELD_OUT],
    )

"""Settings of supervised runs."""

from typing import Literal

import chz

from cookhouse.naming import names_in
from cookhouse.settings.checks import at_least
from cookhouse.settings.facts import facts
from cookhouse.settings.judge import WITH_HELD_OUT
from cookhouse.settings.reading import read_if
from cookhouse.settings.rows import RowSettings
from cookhouse.settings.training import TrainingSettings


@chz.chz
class SupervisedSettings(TrainingSettings, RowSettings):
    """Further settings of a supervised run."""

    help_title = "What is learned"

    dataset_weights: str = chz.field(
        default="",
        doc="Shares of several data sets in each batch, separated by commas; default: every row once in an epoch.",
        validator=read_if(lambda config: len(names_in(config.dataset_path or "")) > 1, "with several data sets"),
        metadata=facts(is_list=True),
    )
    conversation: str | None = chz.field(
        default=None,
        doc="Column that says of which conversation a row is a message; rows of one need not stand together. Default: "
        "each row is a whole conversation.",
    )
    turn: str | None = chz.field(
        default=None,
        doc="Column that says who speaks in the message of a row, whose text is in the column text.",
        validator=read_if(lambda config: config.conversation, "with conversation"),
    )
    speakers: str = chz.field(
        default="",
        doc="Roles of those who speak, as in assistant:Bob,user:*, where * is everyone else. Customer, client, agent, "
        "support and the like are known.",
        validator=read_if(lambda config: config.conversation, "with conversation"),
        metadata=facts(is_list=True),
    )
    empty_answers: Literal["skip", "train"] = chz.field(
        default="skip",
        doc="skip: answers without text are not trained on, and conversations that have no others are left out; train: "
        "of such an answer its end is trained on.",
    )
    train_on_what: str = chz.field(default="all_assistant_messages", doc="Which messages carry loss.")
    reduction: Literal["none", "mean"] = chz.field(
        default="none", doc="Weight of an example: none, as many as it has trained tokens; mean, 1 for each example."
    )
    loss_fn: str = chz.field(
        default="cross_entropy", doc="Loss: cross_entropy, or your own as module:name or file.py:name."
    )
    labels: str = chz.field(
        default="",
        doc="Classes that every conversation ends in one of, separated by commas, or auto: evaluations then tell "
        "accuracy, precision, recall and F1.",
        validator=WITH_HELD_OUT,
        metadata=facts(is_list=True),
    )
    label_averaging: Literal["macro", "micro", "weighted"] = chz.field(
        default="macro",
        doc="How precision, recall and F1 are averaged over the classes.",
        validator=read_if(lambda config: config.labels, "with labels"),
    )
    batch_size: int = chz.field(default=128, doc="Conversations per step.", validator=at_least(1))

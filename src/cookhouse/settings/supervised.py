"""Settings of supervised runs."""

import chz

from cookhouse.settings.checks import at_least
from cookhouse.settings.training import TrainingSettings


@chz.chz
class SupervisedSettings(TrainingSettings):
    """What a supervised run is told besides."""

    dataset_path: str | None = chz.field(
        default=None,
        doc="What to train on: JSONL of conversations, or a data set by name, module:NAME or file.py:NAME; "
        "default: the bundled conversations.",
    )
    test_path: str | None = chz.field(
        default=None,
        doc="What is held out: JSONL of conversations, or a data set by name, module:NAME or file.py:NAME; "
        "default: the bundled conversations with the bundled data, else none.",
    )
    train_on_what: str = chz.field(default="all_assistant_messages", doc="Which messages carry loss.")
    loss_fn: str = chz.field(default="cross_entropy", doc="cross_entropy, or your own as module:name or file.py:name.")
    batch_size: int = chz.field(default=128, doc="Conversations per step.", validator=at_least(1))
    max_length: int = chz.field(
        default=32768, doc="Tokens kept of each example; longer ones lose their end.", validator=at_least(1)
    )
    eval_max_tokens: int = chz.field(
        default=64, doc="Tokens sampled for each answer in an evaluation.", validator=at_least(1)
    )

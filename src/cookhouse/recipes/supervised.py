"""Supervised fine-tuning on conversations: config, its defaults, and how they become a workflow."""

from typing import Literal

import chz


@chz.chz
class SupervisedConfig:
    """Settings of a supervised run. None means: chosen by `resolve`, in the way the field says."""

    model_name: str = chz.field(
        default="cookhouse/tiny", doc="Base model: cookhouse/tiny, a hub id or a folder that the service knows."
    )
    dataset_path: str | None = chz.field(
        default=None, doc="JSONL of conversations to train on; default: the bundled ones."
    )
    test_path: str | None = chz.field(
        default=None, doc="JSONL of held-out conversations; default: the bundled ones with the bundled data, else none."
    )
    renderer_name: str | None = chz.field(default=None, doc="Chat format; default: the model's own.")
    train_on_what: str = chz.field(default="all_assistant_messages", doc="Which messages carry loss.")
    batch_size: int | None = chz.field(
        default=None, doc="Conversations per step; default: 32 for cookhouse/tiny, else 128."
    )
    learning_rate: float | None = chz.field(
        default=None, doc="Peak learning rate; default: 2e-3 for cookhouse/tiny, else 2e-4."
    )
    lr_schedule: str = chz.field(
        default="linear", doc="constant, linear, cosine, warmup_linear or warmup_cosine, over all steps."
    )
    warmup_steps: int = chz.field(default=0, doc="Steps of warm-up, for the two schedules that have it.")
    num_epochs: int = chz.field(default=1, doc="Passes over the data, reshuffled each time.")
    max_steps: int | None = chz.field(default=None, doc="Stop after this many steps; default: all epochs.")
    max_length: int = chz.field(default=32768, doc="Tokens kept of each example; longer ones lose their end.")
    lora_rank: int = chz.field(default=32, doc="Rank of the LoRA adapter.")
    seed: int = chz.field(default=0, doc="Seed of the data order and of the adapter.")
    save_every: int = chz.field(default=20, doc="Steps between checkpoints; 0: only the last.")
    eval_every: int = chz.field(default=0, doc="Steps between evaluations; 0: only before and after.")
    num_eval: int = chz.field(default=100, doc="Held-out conversations to evaluate on; 0: none.")
    eval_max_tokens: int = chz.field(default=64, doc="Tokens sampled for each answer in an evaluation.")
    num_samples: int = chz.field(default=3, doc="Answers shown before and after.")
    log_path: str | None = chz.field(default=None, doc="Run folder; default: a new one under runs/.")
    load_checkpoint_path: str | None = chz.field(
        default=None, doc="tinker:// path of weights to start from, with a fresh optimizer."
    )
    behavior_if_log_dir_exists: Literal["ask", "delete", "raise", "resume"] = chz.field(
        default="ask", doc="What to do when the run folder exists: ask, delete, raise or resume."
    )
    base_url: str | None = chz.field(
        default=None, doc="Address of the training service; default: TINKER_BASE_URL, else the embedded engine."
    )
    ttl_seconds: int | None = chz.field(
        default=None, doc="Seconds after which the service may delete periodic checkpoints; default: never."
    )


Config = SupervisedConfig

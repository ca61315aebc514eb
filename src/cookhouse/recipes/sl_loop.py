"""Supervised fine-tuning as one flat loop over the `tinker` SDK: to be read, copied and changed.

    conversations ──render──► tokens and weights ──shift by one──► datums ──► forward_backward ──► optim_step
                                                                                    └── loss ──► metrics.jsonl

It is `supervised` without evaluation, checkpoints, resumption and overlap, and gives the same losses to the last bit.

    python -m cookhouse.recipes.sl_loop max_steps=20
    python -m cookhouse.recipes.sl_loop max_steps=20 sweep=1e-4,1e-2,5

The second trains at five learning rates, evenly spaced on a log scale, each from the start in a folder of its own; then
it reads their losses back and keeps the weights of the best.
"""

import random
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import chz
import numpy as np

from cookhouse.assets import data_file
from cookhouse.errors import InputError
from cookhouse.recipes.flat import WITHOUT_SWEEP, FlatSettings, flat_recipe, log_grid
from cookhouse.recipes.program import become_command
from cookhouse.registry import Descent
from cookhouse.settings import SupervisedSettings, at_least, by_model, computed, facts, published_model, rate, redefault
from cookhouse.settings.rates import published_rate

if TYPE_CHECKING:  # the SDK takes seconds to load: not for `--help`
    import tinker

    from cookhouse.training import Connect, ServiceClient


@chz.chz
class Config(FlatSettings):
    """Settings of the recipe."""

    model_name: str = published_model("meta-llama/Llama-3.1-8B")
    dataset_path: str = computed(
        by_model(embedded="bundled", published="no_robots"),
        str,
        "JSONL of conversations, or a data set by name.",
        metadata=facts(aliases=("dataset",)),
    )
    columns: str = redefault(SupervisedSettings, "columns", "")
    train_on_what: str = redefault(SupervisedSettings, "train_on_what", "all_assistant_messages")
    reduction: Literal["none", "mean"] = redefault(SupervisedSettings, "reduction", "none")
    max_length: int = redefault(SupervisedSettings, "max_length", 32768)
    batch_size: int = computed(by_model(embedded=32, published=128), int, "Conversations per step.", at_least(1))
    learning_rate: float = rate(published_rate(embedded=5e-3, published=1e-4), "Peak learning rate", WITHOUT_SWEEP)
    num_epochs: int = redefault(SupervisedSettings, "num_epochs", 1)
    max_steps: int | None = redefault(SupervisedSettings, "max_steps", None)
    sweep: str = chz.field(
        default="", doc="FROM,TO,COUNT: learning rates to try, evenly on a log scale.", metadata=facts(is_list=True)
    )

    @chz.validate
    def _sweep_can_be_read(self) -> None:
        if self.sweep:
            log_grid(self.sweep)


def load(config: Config) -> "tuple[Any, list[list[tinker.Datum]], list[str]]":
    """The renderer, of each step what it trains on, and what there is to know of the conversations."""
    from cookhouse import data

    renderer = data.build_renderer(config.model_name, config.renderer_name, force=config.force_renderer)
    path = data_file("conversations/train.jsonl") if config.dataset_path == "bundled" else config.dataset_path
    columns = data.parse_columns(config.columns)
    trained = data.parse_train_on_what(config.train_on_what)
    datums = []
    conversations = data.read_conversations(data.data_source(path, limit=config.n_train_samples, columns=columns))
    for conversation in conversations:
        for model_input, weights in data.rendered(conversation, renderer, trained):
            if any(weights[1 : config.max_length]):
                datums.append(data.datum_from_example(model_input, weights, config.max_length, config.reduction))
    if not datums:
        raise InputError("no example has a trained token; check train_on_what and max_length")
    batches = []
    for epoch in range(config.num_epochs):
        order = list(range(len(datums)))
        random.Random(f"{config.seed}/{epoch}").shuffle(order)
        parts = [order[at : at + config.batch_size] for at in range(0, len(order), config.batch_size)]
        batches += [[datums[i] for i in part] for part in parts[: config.n_batches]]
    remarks = data.conversation_remarks(conversations, trained) + data.mark_remarks(conversations, renderer.encoder)
    return renderer, batches[: config.max_steps], remarks


async def train_once(
    config: Config, batches: "list[list[tinker.Datum]]", folder: Path, service: "ServiceClient"
) -> str:
    """Train at one learning rate, write metrics.jsonl, and return the tinker:// path of the trained weights."""
    from cookhouse.telemetry import metrics_line
    from cookhouse.training import AdamSchedule

    trainer = await service.create_lora_training_client(config.model_name, **config.adapter_options)
    schedule = AdamSchedule(settings=config, total_steps=len(batches))
    for step, batch in enumerate(batches):
        start = time.perf_counter()
        adam = schedule.params(step)  # β 0.9 and 0.95, ε 1e-8
        # Both requests are under way before either is answered.
        forward_backward, optim_step = trainer.forward_backward(batch, "cross_entropy"), trainer.optim_step(adam)
        output, _ = await forward_backward, await optim_step
        # −Σ weight·logprob / Σ weight over the tokens of the batch, in nats.
        loss = total = 0.0
        for datum, fields in zip(batch, output.loss_fn_outputs, strict=True):
            weights = datum.loss_fn_inputs["weights"].to_numpy().astype(np.float64)
            logprobs = fields["logprobs"].to_numpy().astype(np.float64)
            loss -= float(np.sum(weights[weights != 0] * logprobs[weights != 0]))
            total += float(np.sum(weights))
        row = {"step": step, "train/loss": loss / total, "optim/lr": adam.learning_rate}
        with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(metrics_line(row | {"time/step_seconds": time.perf_counter() - start}))
        print(f"lr {config.learning_rate:.3g}, step {step + 1} of {len(batches)}: loss {loss / total:.4f}", flush=True)  # noqa: T201
    return (await trainer.save_weights_for_sampler("final")).path


def last_loss(folder: Path) -> float:
    """Mean loss of the last five steps, read back from metrics.jsonl; infinite if training went astray."""
    from cookhouse.telemetry import read_metrics

    loss = float(np.mean([row["train/loss"] for row in read_metrics(folder / "metrics.jsonl")[-5:]]))
    return loss if np.isfinite(loss) else float("inf")


async def train(
    config: Config, loaded: "tuple[Any, list[list[tinker.Datum]], list[str]]", folder: Path, connect: "Connect"
) -> str:
    """Train, at every learning rate where there are several, and return the tinker:// path of the best weights."""
    service = await connect()  # a `tinker.ServiceClient`
    if not config.sweep:
        return await train_once(config, loaded[1], folder, service)
    paths: dict[Path, str] = {}
    for learning_rate in log_grid(config.sweep):
        part = folder / f"lr-{learning_rate:g}"
        part.mkdir()
        one = chz.replace(config, learning_rate=learning_rate, sweep="")
        paths[part] = await train_once(one, loaded[1], part, service)
    best = min(paths, key=last_loss)
    for part in paths:
        print(f"{part.name}: loss {last_loss(part):.4f}{'  best' if part == best else ''}", flush=True)  # noqa: T201
    shutil.copyfile(best / "metrics.jsonl", folder / "metrics.jsonl")
    return paths[best]


RECIPE = flat_recipe(
    name="sl_loop",
    description="The same as one flat file to read, copy and change; with a sweep over learning rates.",
    config_class=Config,
    load=load,
    train=train,
    descent=Descent.FINE_TUNED_FROM,
)

if __name__ == "__main__":
    become_command(RECIPE)  # starts the local engine if need be

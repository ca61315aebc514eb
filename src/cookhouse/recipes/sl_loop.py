"""Supervised fine-tuning in one file, with nothing but the `tinker` SDK and a renderer: to be read, copied and changed.

    conversations ──render──► tokens and weights ──shift by one──► datums ──► forward_backward ──► optim_step
                                                                                    └── loss ──► metrics.jsonl

It is `supervised` without evaluation, checkpoints, resumption and overlap, and gives the same losses to the last bit.

    python -m cookhouse.recipes.sl_loop max_steps=20

With `sweep=1e-4,1e-2,5` it trains at five learning rates, evenly spaced on a log scale, each from the start in a folder
of its own; then it reads their losses back and keeps the weights of the best.

    python -m cookhouse.recipes.sl_loop sweep=1e-4,1e-2,5 max_steps=20
"""

import json
import random
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import chz
import numpy as np

from cookhouse.assets import data_file
from cookhouse.errors import InputError
from cookhouse.recipes.program import become_command
from cookhouse.recipes.recipe import Recipe
from cookhouse.settings import (
    AdapterSettings,
    RegistrationSettings,
    RunSettings,
    ShrinkSettings,
    at_least,
    by_model,
    computed,
    published_model,
    rate,
)

if TYPE_CHECKING:  # the SDK takes seconds to load: not for `--help`
    import tinker

    from cookhouse.chat import Renderer
    from cookhouse.training import Connect, ServiceClient
    from cookhouse.workflows import FlatState, Workflow

Loaded: TypeAlias = "tuple[Renderer, list[list[tinker.Datum]]]"
"""The renderer, and of each step what it trains on."""

LAST_STEPS = 5
"""The loss of a learning rate is the mean over so many steps at the end: that of one batch is mostly chance."""


@chz.chz
class Config(RunSettings, AdapterSettings, RegistrationSettings, ShrinkSettings):
    """Settings of the recipe."""

    model_name: str = published_model("meta-llama/Llama-3.1-8B")
    dataset_path: str = computed(
        by_model(embedded="bundled", published="no_robots"), str, "JSONL of conversations, or a data set by name."
    )
    train_on_what: str = chz.field(default="all_assistant_messages", doc="Which messages carry loss.")
    reduction: Literal["none", "mean"] = chz.field(
        default="none", doc="Weight of an example: none, as many as it has trained tokens; mean, 1 for each example."
    )
    batch_size: int = computed(by_model(embedded=32, published=128), int, "Conversations per step.", at_least(1))
    max_length: int = chz.field(default=32768, doc="Tokens kept of each example.", validator=at_least(2))
    learning_rate: float = rate(by_model(embedded=5e-3, published=1e-4), "Of the first step; from there linearly to 0")
    weight_decay: float = chz.field(
        default=0.0, doc="Of AdamW, decoupled: lr times this part of a weight goes.", validator=at_least(0)
    )
    grad_clip_norm: float = chz.field(
        default=0.0, doc="Norm that the gradient of a step is cut to; 0: it is not.", validator=at_least(0)
    )
    sweep: str = chz.field(default="", doc="FROM,TO,COUNT: learning rates to try, evenly spaced on a log scale.")
    num_epochs: int = chz.field(default=1, doc="Passes over the data, reshuffled each time.", validator=at_least(1))
    max_steps: int | None = chz.field(default=None, doc="Steps at most; default: all.", validator=at_least(1))

    @chz.validate
    def _sweep_can_be_read(self) -> None:
        learning_rates(self)


def learning_rates(config: Config) -> list[float]:
    """The rates to train at. Raises `InputError` if `sweep` is none."""
    if not config.sweep:
        return [config.learning_rate]
    try:
        low, high, count = config.sweep.split(",")
        bounds, number = (float(low), float(high)), int(count)
    except ValueError:
        bounds, number = (0.0, 0.0), 0
    if not 0 < bounds[0] < bounds[1] < float("inf") or number < 2:
        raise InputError(f"sweep is {config.sweep!r}; write FROM,TO,COUNT, as in 1e-4,1e-2,5: rising, and at least two")
    return [float(f"{point:.6g}") for point in np.geomspace(*bounds, number)]


def load(config: Config) -> "Loaded":
    """The renderer, and of each step what it trains on."""
    from cookhouse.data import build_renderer, data_source, parse_train_on_what, read_conversations

    renderer = build_renderer(config.model_name, config.renderer_name, force=config.force_renderer)
    is_bundled = config.dataset_path == "bundled"
    path = data_file("conversations/train.jsonl") if is_bundled else config.dataset_path
    conversations = read_conversations(data_source(path, limit=config.n_train_samples))
    rendered = [
        make_datum(model_input.to_ints()[: config.max_length], weights[: config.max_length], config.reduction)
        for conversation in conversations
        for model_input, weights in renderer.build_supervised_examples(
            conversation.messages, parse_train_on_what(config.train_on_what)
        )
    ]
    data = [datum for datum in rendered if datum is not None]
    if not data:
        raise InputError("no example has a trained token; check train_on_what and max_length")
    batches = []
    for epoch in range(config.num_epochs):
        order = list(range(len(data)))
        random.Random(f"{config.seed}/{epoch}").shuffle(order)
        # The last batch of an epoch may be smaller.
        parts = [order[at : at + config.batch_size] for at in range(0, len(order), config.batch_size)]
        batches += [[data[i] for i in part] for part in parts[: config.n_batches]]
    return renderer, batches[: config.max_steps]


def make_datum(tokens: list[int], weights: list[float], reduction: str) -> "tinker.Datum | None":
    """Position t predicts token t + 1: inputs drop the last token, targets the first. None: nothing is trained."""
    from tinker import Datum, ModelInput, TensorData

    if not any(weights[1:]):
        return None
    target_weights = np.array(weights[1:], dtype=np.float32)
    if reduction == "mean":
        target_weights /= target_weights.sum()
    return Datum(
        model_input=ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": TensorData.from_numpy(np.array(tokens[1:], dtype=np.int64)),
            "weights": TensorData.from_numpy(target_weights),
        },
    )


def mean_loss(batch: "list[tinker.Datum]", output: "tinker.ForwardBackwardOutput") -> float:
    """−Σ weight·logprob / Σ weight over the tokens of a batch, in nats."""
    loss = total = 0.0
    for datum, fields in zip(batch, output.loss_fn_outputs, strict=True):
        weights = datum.loss_fn_inputs["weights"].to_numpy().astype(np.float64)
        logprobs = fields["logprobs"].to_numpy().astype(np.float64)
        loss -= float(np.sum(weights[weights != 0] * logprobs[weights != 0]))
        total += float(np.sum(weights))
    return loss / total


async def train_once(
    config: Config, batches: "list[list[tinker.Datum]]", folder: Path, service: "ServiceClient", learning_rate: float
) -> str:
    """Train at a learning rate, write metrics.jsonl, and return the tinker:// path of the trained weights."""
    import tinker

    trainer = await service.create_lora_training_client(
        config.model_name,
        rank=config.lora_rank,
        seed=config.seed,
        train_mlp=config.train_mlp,
        train_attn=config.train_attn,
        train_unembed=config.train_unembed,
        user_metadata={"renderer_name": config.renderer_name},
    )
    for step, batch in enumerate(batches):
        start = time.perf_counter()
        present_rate = learning_rate * (1.0 - step / len(batches))
        # Both requests are under way before either is answered.
        forward_backward = trainer.forward_backward(batch, "cross_entropy")
        adam = tinker.AdamParams(
            learning_rate=present_rate,
            beta1=0.9,
            beta2=0.95,
            eps=1e-8,
            weight_decay=config.weight_decay,
            grad_clip_norm=config.grad_clip_norm,
        )
        optim_step = trainer.optim_step(adam)
        output, _ = await forward_backward, await optim_step
        loss = mean_loss(batch, output)
        seconds = time.perf_counter() - start
        metrics = {"step": step, "train/loss": loss, "optim/lr": present_rate, "time/step_seconds": seconds}
        with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics) + "\n")
        print(f"lr {learning_rate:.3g}, step {step + 1} of {len(batches)}: loss {loss:.4f}", flush=True)  # noqa: T201
    return (await trainer.save_weights_for_sampler("final")).path


def last_loss(folder: Path) -> float:
    """Mean loss of the last steps, read back from metrics.jsonl; infinite if training went astray."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    loss = float(np.mean([row["train/loss"] for row in rows[-LAST_STEPS:]]))
    return loss if np.isfinite(loss) else float("inf")


async def train(config: Config, loaded: "Loaded", folder: Path, connect: "Connect") -> str:
    """Train at every learning rate, and return the tinker:// path of the best weights."""
    _, batches = loaded
    service = await connect()  # a `tinker.ServiceClient`
    if not config.sweep:
        return await train_once(config, batches, folder, service, config.learning_rate)
    paths: dict[Path, str] = {}
    for learning_rate in learning_rates(config):
        part = folder / f"lr-{learning_rate:g}"
        part.mkdir()
        paths[part] = await train_once(config, batches, part, service, learning_rate)
    best = min(paths, key=last_loss)
    for part in paths:
        print(f"{part.name}: loss {last_loss(part):.4f}{'  best' if part == best else ''}", flush=True)  # noqa: T201
    shutil.copyfile(best / "metrics.jsonl", folder / "metrics.jsonl")
    return paths[best]


def workflow(config: Config) -> "Workflow[FlatState]":
    """Load, train, and record the weights."""
    from cookhouse.registry import Descent
    from cookhouse.workflows import flat_workflow

    return flat_workflow(config, Path(__file__), load, train, Descent.FINE_TUNED_FROM)


RECIPE = Recipe(
    name="sl_loop",
    description="The same as one flat file to read, copy and change; with a sweep over learning rates.",
    config_class=Config,
    workflow=workflow,
)

if __name__ == "__main__":
    become_command(RECIPE)  # starts the embedded engine if need be

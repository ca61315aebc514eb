"""Reinforcement learning as one flat loop over the `tinker` SDK: to be read, copied and changed.

    problems ──one `sample` each──► answers ──grade──► rewards ──minus the group's mean──► advantages ──► datums
        ▲                                                                                                 │
        └───────── sampler with the new weights ◄───────── optim_step ◄───────── forward_backward ◄───────┘

It is `rl_basic` without evaluation, checkpoints, resumption and overlap, and gives the same losses to the last bit.

    python -m cookhouse.recipes.rl_loop max_steps=20 group_size=8
"""

import random
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import chz
import numpy as np

from cookhouse.assets import data_file
from cookhouse.recipes.flat import FlatSettings, flat_recipe
from cookhouse.recipes.program import become_command
from cookhouse.recipes.reinforcement import plain_renderer
from cookhouse.registry import Descent
from cookhouse.settings import at_least, by_model, computed, facts, published_model, rate
from cookhouse.settings.rates import published_rate

if TYPE_CHECKING:  # the SDK takes seconds to load: not for `--help`
    import tinker

    from cookhouse.chat import Renderer
    from cookhouse.training import Connect

Problems: TypeAlias = "tuple[Renderer, list[list[tuple[str, str]]]]"
"""The renderer, and of each step its questions with their answers."""


@chz.chz
class Config(FlatSettings):
    """Settings of the recipe; their defaults teach arithmetic to the embedded model."""

    model_name: str = published_model("meta-llama/Llama-3.1-8B")
    renderer_name: str = plain_renderer()
    dataset_path: str | None = chz.field(
        default=None, doc="JSONL of question and answer; default: bundled.", metadata=facts(aliases=("dataset",))
    )
    batch_size: int = computed(by_model(embedded=16, published=128), int, "Problems per step.", at_least(1))
    group_size: int = chz.field(default=16, doc="Answers per problem.", validator=at_least(1))
    max_tokens: int = computed(by_model(embedded=8, published=256), int, "Tokens per answer, at most.", at_least(1))
    learning_rate: float = rate(published_rate(embedded=2e-3, published=4e-5, by_reward=True), "Peak learning rate")
    max_steps: int = chz.field(default=30, doc="Steps, at most, of one pass over the problems.", validator=at_least(1))


def load(config: Config) -> "Problems":
    """The renderer, and of each step its questions with their answers."""
    from cookhouse.data import build_renderer
    from cookhouse.envs.rows import read_problems, text_field

    path = config.dataset_path or data_file("arithmetic/train.jsonl")
    problems = read_problems(path, lambda row: (text_field(row, "question"), text_field(row, "answer")))
    problems = problems[: config.n_train_samples]
    random.Random(f"{config.seed}/0").shuffle(problems)  # of epoch 0: there is no other
    batches = [problems[at : at + config.batch_size] for at in range(0, len(problems), config.batch_size)]
    renderer = build_renderer(config.model_name, config.renderer_name, force=config.force_renderer)
    return renderer, batches[: config.n_batches][: config.max_steps]


def grade(renderer: "Renderer", tokens: Sequence[int], expected: str) -> float:
    """1 for the right number; a tenth less for what is no number, or did not end by itself."""
    from cookhouse.chat import Termination, text_of

    message, termination = renderer.parse_response(tokens)
    answer = text_of(message).strip()
    is_number = re.fullmatch(r"-?\d{1,30}", answer) is not None
    is_well_formed = is_number and termination != Termination.MALFORMED
    return 0.1 * (float(is_well_formed) - 1.0) + float(is_number and int(answer) == int(expected))


def make_datum(prompt: "tinker.ModelInput", answer: "tinker.types.SampledSequence", advantage: float) -> "tinker.Datum":
    """Position t predicts token t + 1: inputs drop the last token, targets the first. The prompt has no advantage."""
    from tinker import Datum, ModelInput, TensorData

    tokens, unsampled = [*prompt.to_ints(), *answer.tokens], [0.0] * (prompt.length - 1)
    logprobs = np.array([*unsampled, *(answer.logprobs or ())], dtype=np.float32)
    advantages = np.array([*unsampled, *[advantage] * len(answer.tokens)], dtype=np.float32)
    return Datum(
        model_input=ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": TensorData.from_numpy(np.array(tokens[1:], dtype=np.int64)),
            "logprobs": TensorData.from_numpy(logprobs),
            "advantages": TensorData.from_numpy(advantages),
        },
    )


async def train(config: Config, problems: "Problems", folder: Path, connect: "Connect") -> str:
    """Train, write metrics.jsonl, and return the tinker:// path of the trained weights."""
    import tinker

    from cookhouse.rl import derive_seed
    from cookhouse.telemetry import metrics_line
    from cookhouse.training import AdamSchedule

    renderer, batches = problems
    service = await connect()  # a `tinker.ServiceClient`
    trainer = await service.create_lora_training_client(config.model_name, **config.adapter_options)
    schedule = AdamSchedule(settings=config, total_steps=len(batches))
    for step, batch in enumerate(batches):
        start = time.perf_counter()

        # Ask the present weights: one request for all answers to a problem, and no waiting yet.
        sampler = await trainer.save_weights_and_get_sampling_client()
        groups = []
        for number, (question, expected) in enumerate(batch):
            prompt = renderer.build_generation_prompt([{"role": "user", "content": question}])
            group_seed = int(np.random.SeedSequence((config.seed, step, number, 0)).generate_state(1)[0])
            seed, stop = derive_seed(group_seed, turn=0, member=0), renderer.get_stop_sequences()
            params = tinker.SamplingParams(max_tokens=config.max_tokens, stop=stop, seed=seed)
            groups.append((prompt, expected, sampler.sample(prompt, config.group_size, params)))

        # Reward the answers; the advantage of each is what it earned above the mean of its group.
        rewards_PG, data_D = [], []
        for prompt, expected, request in groups:
            answers = (await request).sequences
            rewards_G = np.array([grade(renderer, answer.tokens, expected) for answer in answers])
            advantages_G = rewards_G - rewards_G.mean()
            data_D += [make_datum(prompt, answers[i], advantages_G[i]) for i in range(len(answers))]
            rewards_PG.append(rewards_G)

        # One update: both requests are under way before either is answered.
        adam = schedule.params(step)  # β 0.9 and 0.95, ε 1e-8
        forward_backward, optim_step = trainer.forward_backward(data_D, "importance_sampling"), trainer.optim_step(adam)
        output, _ = await forward_backward, await optim_step

        metrics = {
            "step": step,
            "env/all/reward/total": float(np.mean(rewards_PG)),
            "optim/loss": output.metrics["loss:sum"],
            "optim/lr": adam.learning_rate,
            "time/step_seconds": time.perf_counter() - start,
        }
        with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(metrics_line(metrics))
        print(f"step {step + 1} of {len(batches)}: mean reward {np.mean(rewards_PG):.3f}", flush=True)  # noqa: T201
    return (await trainer.save_weights_for_sampler("final")).path


RECIPE = flat_recipe(
    name="rl_loop",
    description="The same on arithmetic, as one flat file to read, copy and change.",
    config_class=Config,
    load=load,
    train=train,
    descent=Descent.RL_TRAINED_FROM,
)

if __name__ == "__main__":
    become_command(RECIPE)  # starts the local engine if need be

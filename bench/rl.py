"""Seconds per GRPO step: cookhouse over the wire against TRL's GRPOTrainer with PEFT, and the share of each phase.

Same model, prompts, reward, group and batch size, rank, adapted layers and precision, one after the other in one run,
each in a process of its own; the first steps are left out. Every answer has the same number of tokens: nothing stops
one early on either side. Ours is the reinforcement workflow with all that it writes; its server and engine are
processes of their own, whose processor time counts. Sampling includes grading; assembly is advantages, datums, pages
and logs.

    python -m bench.rl                              # cookhouse/tiny in fp32
    python -m bench.rl --precision bfloat16 --rounds 2
"""

import argparse
import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.harness import MODEL_HELP, isolated, model_folder, now, parse_options, save_record

from cookhouse.algorithms.base.process_tree import cpu_seconds

if TYPE_CHECKING:
    import tinker

    from cookhouse.rl import StepResult, StopCondition

LORA_ALPHA = 32
ADAPTED = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PHASES = ("publishing", "sampling", "assembly", "training")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One measurement's settings; `prompts` are tokens, `batch_size` of them for each step."""

    model: str
    device: str
    prompts: list[list[int]]
    batch_size: int
    group_size: int
    max_tokens: int
    rank: int
    learning_rate: float
    num_warmup: int

    @property
    def num_steps(self) -> int:
        """Steps of both sides, those of the warm-up included."""
        return len(self.prompts) // self.batch_size


@dataclass(kw_only=True)
class Measurement:
    """Of each timed step: seconds, processor time of all processes, and seconds by phase where they are known."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    phases: list[dict[str, float]] = field(default_factory=list)
    tokens_per_answer: float = 0.0
    rewards: list[float] = field(default_factory=list)


def make_case(options: argparse.Namespace, folder: Path) -> Case:
    """The bundled arithmetic, worded as `rl_basic` words it."""
    from cookhouse.assets import data_file
    from cookhouse.chat import get_renderer
    from cookhouse.envs.rows import read_problems, text_field
    from cookhouse.models.tokenizers import get_tokenizer

    model = model_folder(options.model, folder, options.device)
    renderer = get_renderer("human_ai", get_tokenizer(model))
    questions = read_problems(data_file("arithmetic/train.jsonl"), lambda row: text_field(row, "question"))
    count = (options.warmup + options.steps) * options.batch_size
    return Case(
        model=model,
        device=options.device,
        prompts=[
            renderer.build_generation_prompt([{"role": "user", "content": question}]).to_ints()
            for question in itertools.islice(itertools.cycle(questions), count)
        ],
        batch_size=options.batch_size,
        group_size=options.group_size,
        max_tokens=options.max_tokens,
        rank=options.rank,
        learning_rate=options.learning_rate,
        num_warmup=options.warmup,
    )


def digit_share(text: str) -> float:
    """The reward: share of characters that are digits."""
    return sum(character.isdigit() for character in text) / max(1, len(text))


# ---------------------------------------------------------------------- cookhouse


@dataclass(frozen=True)
class Marks:
    """When the rollouts of each step began and ended, in seconds of `time.perf_counter`, by the tokens of a prompt."""

    begun: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)


class FixedLengthEnv:
    """One turn that only the token limit ends."""

    def __init__(self, prompt: list[int], tokenizer: Any, marks: Marks) -> None:
        self._prompt = prompt
        self._tokenizer = tokenizer
        self._marks = marks

    async def initial_observation(self) -> "tuple[tinker.ModelInput, StopCondition]":
        """The prompt, and no stop condition."""
        import tinker

        self._marks.begun.append(time.perf_counter())
        return tinker.ModelInput.from_ints(self._prompt), []

    async def step(self, action: Sequence[int]) -> "StepResult":
        """Reward the answer."""
        import tinker

        from cookhouse.rl import StepResult

        reward = digit_share(self._tokenizer.decode(list(action), skip_special_tokens=True))
        self._marks.ended.append(time.perf_counter())
        return StepResult(
            reward=reward, episode_done=True, next_observation=tinker.ModelInput.empty(), next_stop_condition=[]
        )


class Prompts:
    """The data set, and its own builder."""

    def __init__(self, case: Case, marks: Marks) -> None:
        from cookhouse.models.tokenizers import get_tokenizer

        self._case = case
        self._marks = marks
        self._tokenizer = get_tokenizer(case.model)

    async def build(self) -> tuple["Prompts", None]:
        """Nothing is held out."""
        return self, None

    def __len__(self) -> int:
        return self._case.num_steps

    def get_batch(self, index: int) -> list[Any]:
        """One group for each prompt of a step."""
        from functools import partial

        from cookhouse.envs import EnvFactoryGroupBuilder

        size = self._case.batch_size
        return [
            EnvFactoryGroupBuilder(
                make_env=partial(FixedLengthEnv, prompt, self._tokenizer, self._marks), group_size=self._case.group_size
            )
            for prompt in self._case.prompts[index * size :][:size]
        ]


class StepSpans:
    """A telemetry sink that keeps when each step was submitted and answered, and its metrics."""

    def __init__(self) -> None:
        self.submitted: list[float] = []
        self.answered: list[float] = []
        self.cpu_seconds: list[float] = []
        """Of this process and all that it started, server and engine among them, until each answer."""
        self.rows: list[dict[str, float]] = []

    def write(self, record: Any) -> None:
        """Take a span of an optimizer step, or a row of metrics."""
        from cookhouse.telemetry import MetricsRow, Span

        if isinstance(record, Span) and record.name == "optim_step":
            self.submitted.append(record.start_seconds)
            self.answered.append(record.end_seconds)
            self.cpu_seconds.append(cpu_seconds(os.getpid()))
        if isinstance(record, MetricsRow) and "optim/policy_loss" in record.metrics:
            numbers = {name: value for name, value in record.metrics.items() if not isinstance(value, str)}
            self.rows.append(numbers)

    def close(self) -> None:
        """Nothing is held open."""


def run_cookhouse(case: Case, precision: str) -> Measurement:
    """Train by the reinforcement workflow against a server in its own process."""
    os.environ["TINKER_TELEMETRY"] = "0"
    return asyncio.run(_train(case, precision))


async def _train(case: Case, precision: str) -> Measurement:
    from cookhouse.adapters import Adapters
    from cookhouse.recipes import run_async
    from cookhouse.recipes.reinforcement import reinforcement_recipe
    from cookhouse.service.local import local_server
    from cookhouse.service.process import SERVER_COMMAND
    from cookhouse.settings import ReinforcementSettings
    from cookhouse.training import connect_to

    marks = Marks()
    recipe = reinforcement_recipe(
        name="bench",
        description="Rewards digits, to be timed.",
        config_class=ReinforcementSettings,
        environments=lambda _, __: Prompts(case, marks),
    )
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "model_name": case.model,
            "renderer_name": "human_ai",
            "batch_size": case.batch_size,
            "group_size": case.group_size,
            "max_tokens": case.max_tokens,
            "lora_rank": case.rank,
            "train_unembed": False,  # the layers that TRL is told to adapt
            "learning_rate": case.learning_rate,
            "lr_schedule": "constant",
            "advantage": "normalized",
            "save_every": 0,
            "num_samples": 0,
            "log_path": f"{folder}/run",
        }
        command = (*SERVER_COMMAND, "--device", case.device, "--precision", precision)
        async with local_server(Path(folder) / "service", base_models=[case.model], command=command) as server:
            connect = connect_to(server.url, server.api_key)
            spans = StepSpans()
            await run_async(recipe, settings, adapters=Adapters(service=connect, sinks=[spans]))
    return _measurement(case, marks, spans)


def _measurement(case: Case, marks: Marks, spans: StepSpans) -> Measurement:
    """A step lasts from the answer to the one before it to its own."""
    result = Measurement()
    num_rollouts = case.batch_size * case.group_size
    for step in range(case.num_warmup, case.num_steps):
        begun, ended = (sorted(times)[step * num_rollouts :][:num_rollouts] for times in (marks.begun, marks.ended))
        edges = (spans.answered[step - 1], begun[0], ended[-1], spans.submitted[step], spans.answered[step])
        result.phases.append(dict(zip(PHASES, (b - a for a, b in itertools.pairwise(edges)), strict=True)))
        result.seconds.append(edges[-1] - edges[0])
        result.cpu_seconds.append(spans.cpu_seconds[step] - spans.cpu_seconds[step - 1])
    result.tokens_per_answer = median(row["env/all/ac_tokens_per_turn"] for row in spans.rows)
    result.rewards = [row["env/all/reward/total"] for row in spans.rows]
    return result


# ---------------------------------------------------------------------- TRL


def run_trl(case: Case, precision: str) -> Measurement:
    """Train with GRPOTrainer, whose own generation stands for the sampler."""
    import datasets
    import torch
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(case.model)
    texts = [tokenizer.decode(prompt) for prompt in case.prompts]
    assert tokenizer(texts)["input_ids"] == case.prompts, "TRL would not see the same prompts"
    result = Measurement()
    ends: list[float] = []
    cpu_ends: list[float] = []

    class StepClock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(now(case.device))
            cpu_ends.append(cpu_seconds(os.getpid()))

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [digit_share(text) for text in completions]

    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            # Weights in the precision, as ours: with autocast, generation converts all of them for every token.
            model=AutoModelForCausalLM.from_pretrained(case.model, dtype=getattr(torch, precision)),
            reward_funcs=reward,
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=case.batch_size * case.group_size,
                num_generations=case.group_size,
                max_completion_length=case.max_tokens,
                generation_kwargs={"min_new_tokens": case.max_tokens},
                temperature=1.0,
                beta=0.0,
                max_steps=case.num_steps,
                learning_rate=case.learning_rate,
                lr_scheduler_type="constant",
                adam_beta2=0.95,
                weight_decay=0.0,
                max_grad_norm=0.0,
                bf16=False,
                use_cpu=case.device == "cpu",
                gradient_checkpointing=False,
                shuffle_dataset=False,
                logging_steps=1,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=datasets.Dataset.from_dict({"prompt": texts}),
            processing_class=tokenizer,
            peft_config=LoraConfig(r=case.rank, lora_alpha=LORA_ALPHA, target_modules=ADAPTED),
            callbacks=[StepClock()],
        )
        trainer.train()
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    result.seconds, result.cpu_seconds = (
        [b - a for a, b in itertools.pairwise(times)][case.num_warmup - 1 :] for times in (ends, cpu_ends)
    )
    result.tokens_per_answer = median(float(entry["completions/mean_length"]) for entry in logs)
    result.rewards = [float(entry["reward"]) for entry in logs]
    return result


def main() -> None:
    """Measure both sides in turn and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cookhouse/tiny", help=MODEL_HELP)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--peer-precision", choices=["float32", "bfloat16"], help="default: the same")
    parser.add_argument("--batch-size", type=int, default=16, help="groups per step")
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens of every answer")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--steps", type=int, default=4, help="timed steps of each side in each round")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="repeat both sides in turn")
    options = parse_options(parser)
    peer_precision = options.peer_precision or options.precision
    with tempfile.TemporaryDirectory() as folder:
        case = make_case(options, Path(folder) / "model")
        ours, peer = Measurement(), Measurement()
        for _ in range(options.rounds):
            for side, run, precision in ((ours, run_cookhouse, options.precision), (peer, run_trl, peer_precision)):
                measured = isolated(run, case, precision)
                side.seconds += measured.seconds
                side.cpu_seconds += measured.cpu_seconds
                side.phases += measured.phases
                side.tokens_per_answer, side.rewards = measured.tokens_per_answer, measured.rewards
    report(options, peer_precision, ours, peer)


def report(options: argparse.Namespace, peer_precision: str, ours: Measurement, peer: Measurement) -> None:
    """Print medians of a step's seconds, their ratio, and where ours go."""
    figures: dict[str, float] = {}
    for name, precision, side in (("cookhouse", options.precision, ours), ("trl", peer_precision, peer)):
        figures |= {name: median(side.seconds), f"{name}_cpu": median(side.cpu_seconds)}
        print(
            f"{name:10} {precision:9} {figures[name]:6.2f} s per step of {options.batch_size} × "
            f"{options.group_size} × {side.tokens_per_answer:.0f} tokens ({min(side.seconds):.2f} to "
            f"{max(side.seconds):.2f}), {figures[f'{name}_cpu']:.2f} s of processor; mean reward "
            f"{side.rewards[0]:.3f} -> {side.rewards[-1]:.3f}"
        )
    figures["ratio"] = figures["trl"] / figures["cookhouse"]
    figures["cpu_ratio"] = figures["trl_cpu"] / figures["cookhouse_cpu"]
    total = sum(ours.seconds)
    shares = {phase: sum(phases[phase] for phases in ours.phases) / total for phase in PHASES}
    print(f"ratio {figures['ratio']:.2f}, of processor time {figures['cpu_ratio']:.2f}")
    print("ours: " + ", ".join(f"{phase} {share:.0%}" for phase, share in shares.items()))
    if options.save:
        figures |= {f"share_{phase}": share for phase, share in shares.items()}
        save_record(f"rl-{options.model}-{options.precision}-{peer_precision}", vars(options), figures)


if __name__ == "__main__":
    main()

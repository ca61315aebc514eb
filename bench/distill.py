"""Seconds per step of on-policy distillation: cookhouse over the wire against TRL's GKDTrainer with PEFT.

Same student, teacher, prompts, batch, answer length, rank, adapted layers and precision, one after the other in one
run, each in a process of its own; the first steps are left out. The student answers every prompt once (`lmbda` 1), and
every answer has the same number of tokens: nothing stops one early on either side. The teacher is the base model, as it
would be any other of its size. Ours learns from the teacher's logprobs of sampled tokens, TRL's from whole
distributions (its `beta` 1, the reverse divergence): what each of the two does. Ours is the whole workflow with all
that it writes, and its server and engine are processes of their own, whose processor time counts.

    python -m bench.distill                             # cookhouse/tiny in fp32
"""

import argparse
import asyncio
import itertools
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bench.harness import MODEL_HELP, isolated, now, parse_options, save_record
from bench.rl import ADAPTED, LORA_ALPHA, Case, Marks, Measurement, Prompts, StepSpans, make_case

from cookhouse.algorithms.base.process_tree import cpu_seconds


def run_cookhouse(case: Case, precision: str) -> Measurement:
    """Train by the workflow of on-policy distillation against a server in its own process."""
    os.environ["TINKER_TELEMETRY"] = "0"
    return asyncio.run(_train(case, precision))


async def _train(case: Case, precision: str) -> Measurement:
    from cookhouse.adapters import Adapters
    from cookhouse.recipes import Recipe, run_async
    from cookhouse.service.local import local_server
    from cookhouse.service.process import SERVER_COMMAND
    from cookhouse.settings import OnPolicyDistillationSettings
    from cookhouse.training import connect_to
    from cookhouse.workflows import on_policy_workflow

    marks = Marks()
    recipe = Recipe(
        name="bench",
        description="Learns from a teacher, to be timed.",
        config_class=OnPolicyDistillationSettings,
        workflow=lambda config: on_policy_workflow(config, lambda _: Prompts(case, marks)),
    )
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "model_name": case.model,
            "teacher_model": case.model,
            "renderer_name": "human_ai",
            "batch_size": case.batch_size,
            "group_size": case.group_size,
            "max_tokens": case.max_tokens,
            "lora_rank": case.rank,
            "train_unembed": False,  # the layers that TRL is told to adapt
            "learning_rate": case.learning_rate,
            "lr_schedule": "constant",
            "save_every": 0,
            "num_samples": 0,
            "log_path": f"{folder}/run",
        }
        command = (*SERVER_COMMAND, "--device", case.device, "--precision", precision)
        async with local_server(Path(folder) / "service", base_models=[case.model], command=command) as server:
            spans = StepSpans()
            connect = connect_to(server.url, server.api_key)
            await run_async(recipe, settings, adapters=Adapters(service=connect, sinks=[spans]))
    result = Measurement(tokens_per_answer=median(row["env/all/ac_tokens_per_turn"] for row in spans.rows))
    steps = range(case.num_warmup, case.num_steps)
    result.seconds = [spans.answered[step] - spans.answered[step - 1] for step in steps]
    result.cpu_seconds = [spans.cpu_seconds[step] - spans.cpu_seconds[step - 1] for step in steps]
    return result


def run_trl(case: Case, precision: str) -> Measurement:
    """Train with GKDTrainer, whose own generation stands for the sampler."""
    import datasets
    import torch
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl.experimental.gkd import GKDConfig, GKDTrainer

    tokenizer = AutoTokenizer.from_pretrained(case.model)
    student, teacher = (
        AutoModelForCausalLM.from_pretrained(case.model, dtype=getattr(torch, precision)) for _ in range(2)
    )
    result = Measurement()
    ends: list[float] = []
    cpu_ends: list[float] = []

    class StepClock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(now(case.device))
            cpu_ends.append(cpu_seconds(os.getpid()))

    class OfTokens(GKDTrainer):  # type: ignore[misc]
        """Takes prompts as they are, in order, and notes how long the answers are."""

        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

        def generate_on_policy_outputs(self, model: Any, inputs: Any, generation_config: Any) -> Any:
            made = super().generate_on_policy_outputs(model, inputs, generation_config)
            result.tokens_per_answer = float((made[2] != -100).sum()) / made[2].shape[0]
            return made

    def collate(rows: list[dict[str, list[int]]]) -> dict[str, Any]:
        longest = max(len(row["prompt_ids"]) for row in rows)
        padded = [[tokenizer.pad_token_id] * (longest - len(row["prompt_ids"])) + row["prompt_ids"] for row in rows]
        masks = [[0] * (longest - len(row["prompt_ids"])) + [1] * len(row["prompt_ids"]) for row in rows]
        ids, mask = torch.tensor(padded), torch.tensor(masks)
        return {"prompts": ids, "prompt_attention_mask": mask, "input_ids": ids, "attention_mask": mask, "labels": ids}

    with tempfile.TemporaryDirectory() as folder:
        trainer = OfTokens(
            model=student,
            teacher_model=teacher,
            data_collator=collate,
            args=GKDConfig(
                output_dir=folder,
                lmbda=1.0,
                beta=1.0,
                temperature=1.0,
                max_new_tokens=case.max_tokens,
                per_device_train_batch_size=case.batch_size * case.group_size,
                max_steps=case.num_steps,
                learning_rate=case.learning_rate,
                lr_scheduler_type="constant",
                adam_beta2=0.95,
                weight_decay=0.0,
                max_grad_norm=0.0,
                bf16=False,
                use_cpu=case.device == "cpu",
                gradient_checkpointing=False,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=datasets.Dataset.from_dict(
                {"prompt_ids": [prompt for prompt in case.prompts for _ in range(case.group_size)]}
            ),
            processing_class=tokenizer,
            peft_config=LoraConfig(r=case.rank, lora_alpha=LORA_ALPHA, target_modules=ADAPTED),
            callbacks=[StepClock()],
        )
        trainer.generation_config.eos_token_id = None  # nothing ends an answer but its length
        trainer.generation_kwargs["min_new_tokens"] = trainer.generation_config.min_new_tokens = case.max_tokens
        trainer.train()
    result.seconds, result.cpu_seconds = (
        [b - a for a, b in itertools.pairwise(times)][case.num_warmup - 1 :] for times in (ends, cpu_ends)
    )
    return result


def main() -> None:
    """Measure both sides and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cookhouse/tiny", help=MODEL_HELP)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--batch-size", type=int, default=64, help="prompts per step")
    parser.add_argument("--group-size", type=int, default=1, help="answers to each")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens of every answer")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--steps", type=int, default=4, help="timed steps of each side")
    parser.add_argument("--warmup", type=int, default=1)
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as folder:
        case = make_case(options, Path(folder) / "model")
        ours, peer = (isolated(run, case, options.precision) for run in (run_cookhouse, run_trl))
    report(options, ours, peer)


def report(options: argparse.Namespace, ours: Measurement, peer: Measurement) -> None:
    """Print medians of a step's seconds, and their ratio."""
    figures: dict[str, float] = {}
    for name, side in (("cookhouse", ours), ("trl", peer)):
        figures |= {name: median(side.seconds), f"{name}_cpu": median(side.cpu_seconds)}
        print(
            f"{name:10} {options.precision:9} {figures[name]:6.2f} s per step of {options.batch_size} × "
            f"{options.group_size} × {side.tokens_per_answer:.0f} tokens ({min(side.seconds):.2f} to "
            f"{max(side.seconds):.2f}), {figures[f'{name}_cpu']:.2f} s of processor"
        )
    figures["ratio"] = figures["trl"] / figures["cookhouse"]
    figures["cpu_ratio"] = figures["trl_cpu"] / figures["cookhouse_cpu"]
    print(f"ratio {figures['ratio']:.2f}, of processor time {figures['cpu_ratio']:.2f}")
    if options.save:
        save_record(f"distill-{options.model}-{options.precision}", vars(options), figures)


if __name__ == "__main__":
    main()

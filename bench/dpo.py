"""Pairs per second of DPO: cookhouse over the wire against TRL's DPOTrainer.

Same model, pairs, order, batch, adapter to begin with and precision, one after the other in one run, each in a process
of its own; the first steps are left out. Both compute the reference along the way, of the base model: cookhouse while
the batch before is trained on. It is measured twice: with the loss at the server, and at the client (`custom`), as it
is where a service has no losses over pairs. All see the rendered tokens, so no tokenizing is timed.

    python -m bench.dpo                                     # cookhouse/tiny in fp32, the bundled pairs
    python -m bench.dpo --steps 5 --warmup 0                # the losses of both
"""

import argparse
import asyncio
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import MODEL_HELP, isolated, model_folder, now, parse_options, peak_bytes, save_record, serving

from cookhouse.algorithms import Pair, PairDataset

LORA_ALPHA = 32
ADAPTED = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One measurement's settings; the data set is in the order of its first epoch."""

    model: str
    device: str
    dataset: PairDataset
    num_steps: int
    num_warmup: int
    rank: int
    adapter: Path | None = None
    """A PEFT folder that both begin with; None, with rank 0: all weights are trained."""
    learning_rate: float
    beta: float

    @property
    def offered_model(self) -> str:
        """The model as the adapter's folder calls it, by which name the server is to know it."""
        from cookhouse.weights.peft_folders import adapted_model

        return (self.adapter and adapted_model(self.adapter)) or self.model


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Pairs and seconds of the timed steps, and the loss and the margin of each step, means over its pairs."""

    seconds: float
    num_pairs: int
    losses: list[float]
    margins: list[float]
    peak_bytes: int

    @property
    def rate(self) -> float:
        """Pairs per second."""
        return self.num_pairs / self.seconds


class Clock:
    """Times the steps after the warm-up, up to what has been done on a device."""

    def __init__(self, case: Case, device: str) -> None:
        self._case, self._device = case, device
        self._start = self._end = now(device)
        self._num_done = 0

    def step_done(self) -> None:
        """Note that a step is over."""
        self._end, self._num_done = now(self._device), self._num_done + 1
        if self._num_done == self._case.num_warmup:
            self._start = self._end

    def measurement(self, losses: list[float], margins: list[float], peak: int) -> Measurement:
        """What the timed steps came to."""
        case = self._case
        num_pairs = sum(len(case.dataset.get_batch(index)) for index in range(case.num_warmup, case.num_steps))
        return Measurement(
            seconds=self._end - self._start, num_pairs=num_pairs, losses=losses, margins=margins, peak_bytes=peak
        )


def make_case(options: argparse.Namespace, folder: Path) -> Case:
    """Render the bundled pairs with the embedded model's plain chat format."""
    from cookhouse.algorithms import render_pairs
    from cookhouse.assets import data_file
    from cookhouse.chat import get_renderer
    from cookhouse.data.rows.comparisons import read_pairs
    from cookhouse.models.tokenizers import get_tokenizer

    model = model_folder(options.model, folder, options.device)
    renderer = get_renderer("human_ai", get_tokenizer(model))
    pairs = render_pairs(read_pairs(data_file("preferences/train.jsonl")), renderer, max_length=options.max_length)
    num_steps = options.warmup + options.steps
    while len(pairs) < num_steps * options.batch_size:
        pairs += pairs
    dataset = PairDataset(pairs, batch_size=options.batch_size)
    dataset.set_epoch(0)
    adapter = folder.with_name("adapter") if options.rank else None
    if adapter is not None:
        isolated(_make_adapter, model, options.rank, adapter)
    return Case(
        model=model,
        device=options.device,
        dataset=dataset,
        num_steps=num_steps,
        num_warmup=options.warmup,
        rank=options.rank,
        adapter=adapter,
        learning_rate=options.learning_rate,
        beta=options.beta,
    )


def _make_adapter(model: str, rank: int, folder: Path) -> None:
    """Write an untrained adapter as PEFT begins one: A drawn by a seed and B zero, which changes nothing yet."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    get_peft_model(base, LoraConfig(r=rank, lora_alpha=LORA_ALPHA, target_modules=ADAPTED)).save_pretrained(folder)


def run_cookhouse(case: Case, precision: str) -> Measurement:
    """Train with the loop that recipes use, against a server in its own process."""
    return _measured(case, precision, is_fused=True)


def run_custom(case: Case, precision: str) -> Measurement:
    """The same with the loss computed by the client, as at a service that has none over pairs."""
    return _measured(case, precision, is_fused=False)


def _measured(case: Case, precision: str, *, is_fused: bool) -> Measurement:
    os.environ["TINKER_TELEMETRY"] = "0"
    adapter = [] if case.adapter is None else ["--peft-folder", str(case.adapter)]
    with serving(case.device, "--base-model", case.offered_model, "--precision", precision, *adapter) as server:
        clock, losses, margins = asyncio.run(_train_over_the_wire(case, server.url, server.api_key, is_fused=is_fused))
        return clock.measurement(losses, margins, server.stop())


async def _train_over_the_wire(
    case: Case, url: str, key: str, *, is_fused: bool
) -> tuple[Clock, list[float], list[float]]:
    from cookhouse.algorithms import PairAssembler, pair_objective
    from cookhouse.algorithms.pairs.reference import ServiceReference, sums_by_forward
    from cookhouse.settings import OptimizerSettings, PairLossSettings
    from cookhouse.telemetry import Telemetry, keys
    from cookhouse.training import (
        AdamSchedule,
        BatchSource,
        CheckpointKind,
        FinishedStep,
        Interrupt,
        LoopSlots,
        TinkerServiceClient,
        TrainingLoop,
        submit_checkpoint,
    )
    from cookhouse.weights.checkpoints import CheckpointFile
    from cookhouse.weights.peft_folders import peft_path

    service = await asyncio.to_thread(TinkerServiceClient, base_url=url, api_key=key)
    offer = await service.pair_losses() if is_fused else None
    if case.adapter is None:
        client = await service.create_lora_training_client(case.offered_model, rank=0)
    else:
        client = await service.create_training_client_from_state(peft_path(case.adapter))
    reference = await service.create_lora_training_client(case.offered_model, rank=1, seed=0)
    settings = OptimizerSettings(learning_rate=case.learning_rate, lr_schedule="constant")
    clock = Clock(case, "cpu")  # of a step that has been answered: all of it is done
    losses: list[float] = []
    margins: list[float] = []

    def log(step: FinishedStep) -> None:
        losses.append(step.metrics[keys.PAIR_LOSS])
        margins.append(step.metrics[keys.PAIR_MARGIN])
        clock.step_done()

    telemetry = Telemetry([])
    assemble = PairAssembler(ServiceReference(sums_by_forward(reference, offer)), telemetry)
    with tempfile.TemporaryDirectory() as folder:
        loop = TrainingLoop(
            client=client,
            slots=LoopSlots(
                evaluate=[],
                get_work=BatchSource(
                    case.dataset, assemble, total_steps=case.num_steps, steps_per_epoch=len(case.dataset)
                ),
                forward_backward=pair_objective(PairLossSettings(dpo_beta=case.beta), offer),
                optim_step=AdamSchedule(settings=settings, total_steps=case.num_steps),
                checkpoint=lambda client, cursor: submit_checkpoint(client, cursor, kind=CheckpointKind.STATE),
                log=log,
            ),
            save_every=0,
            total_steps=case.num_steps,
            checkpoints=CheckpointFile(Path(folder) / "checkpoints.jsonl"),
            telemetry=telemetry,
            interrupt=Interrupt(),
        )
        await loop.run()
    return clock, losses, margins


def run_trl(case: Case, precision: str) -> Measurement:
    """Train with DPOTrainer on the same tokens."""
    import datasets
    import torch
    from peft import LoraConfig, load_peft_weights, set_peft_model_state_dict
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import DPOConfig, DPOTrainer

    model = AutoModelForCausalLM.from_pretrained(case.model, dtype=torch.float32)
    rows = [_row(pair) for index in range(case.num_steps) for pair in case.dataset.get_batch(index)]
    clock = Clock(case, case.device)
    losses: list[float] = []

    class StepClock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, state, control
            clock.step_done()

    class OfTokens(DPOTrainer):  # type: ignore[misc]
        """Takes tokens as they are, in order, and keeps every loss unrounded."""

        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

        def compute_loss(self, *given: Any, **named: Any) -> Any:
            loss = super().compute_loss(*given, **named)
            losses.append(float(loss.detach()))
            return loss

    with tempfile.TemporaryDirectory() as folder:
        trainer = OfTokens(
            model=model,
            ref_model=None if case.rank else AutoModelForCausalLM.from_pretrained(case.model, dtype=torch.float32),
            args=DPOConfig(
                output_dir=folder,
                beta=case.beta,
                per_device_train_batch_size=case.dataset.batch_size,
                max_steps=case.num_steps,
                learning_rate=case.learning_rate,
                lr_scheduler_type="constant",
                adam_beta2=0.95,
                weight_decay=0.0,
                max_grad_norm=0.0,
                bf16=precision == "bfloat16",
                use_cpu=case.device == "cpu",
                gradient_checkpointing=False,
                max_length=None,
                disable_dropout=True,
                remove_unused_columns=False,
                save_strategy="no",
                report_to=[],
                logging_steps=1,
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=datasets.Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(case.model),
            peft_config=LoraConfig(r=case.rank, lora_alpha=LORA_ALPHA, target_modules=ADAPTED) if case.rank else None,
            callbacks=[StepClock()],
        )
        if case.adapter is not None:
            set_peft_model_state_dict(trainer.model, load_peft_weights(str(case.adapter), "cpu"))
        trainer.train()
    margins = [float(row["rewards/margins"]) for row in trainer.state.log_history if "rewards/margins" in row]
    return clock.measurement(losses, margins, peak_bytes(case.device))


def _row(pair: Pair) -> dict[str, list[int]]:
    begin = int(pair.chosen.weights_T.argmax())
    return {
        "prompt_ids": pair.chosen.tokens_T[:begin].tolist(),
        "chosen_ids": pair.chosen.tokens_T[begin:].tolist(),
        "rejected_ids": pair.rejected.tokens_T[begin:].tolist(),
    }


def main() -> None:
    """Measure both sides and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cookhouse/tiny", help=MODEL_HELP)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--batch-size", type=int, default=32, help="pairs per step")
    parser.add_argument("--max-length", type=int, default=1024)
    parser.add_argument("--rank", type=int, default=32, help="0: all weights")
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--beta", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--warmup", type=int, default=3)
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as folder:
        case = make_case(options, Path(folder) / "model")
        found = [isolated(run, case, options.precision) for run in (run_cookhouse, run_custom, run_trl)]
    report(options, *found)


def report(options: argparse.Namespace, ours: Measurement, custom: Measurement, peer: Measurement) -> None:
    """Print all rates, the ratios, and how far the losses are apart."""
    for name, m in (("cookhouse", ours), ("custom", custom), ("TRL", peer)):
        print(
            f"{name:10} {options.precision:9} {m.rate:8.1f} pairs/s {m.peak_bytes / 2**20:7.0f} MiB  "
            f"loss {m.losses[0]:.5f} -> {m.losses[-1]:.5f}"
        )
    drift = max(abs(a / b - 1.0) for a, b in zip(ours.losses[:5], peer.losses[:5], strict=True))
    print(
        f"ratio {ours.rate / peer.rate:.2f}, and {custom.rate / peer.rate:.2f} with the loss at the client; largest "
        f"relative difference of the first five losses {drift:.1e}"
    )
    if options.save:
        figures = {"cookhouse": ours.rate, "custom": custom.rate, "trl": peer.rate, "ratio": ours.rate / peer.rate}
        figures |= {"cookhouse_peak_bytes": ours.peak_bytes, "trl_peak_bytes": peer.peak_bytes}
        save_record(f"dpo-{options.model}-{options.precision}-{options.rank}", vars(options), figures)


if __name__ == "__main__":
    main()

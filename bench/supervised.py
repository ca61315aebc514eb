"""Trained tokens per second of supervised LoRA: cookhouse over the wire against TRL's SFTTrainer with PEFT.

Same model, conversations, order, batch, rank, adapted layers and precision, one after the other in one run, each in a
process of its own; the first steps are left out. A trained token is one that carries loss. Both sides see the rendered
tokens, so no tokenizing is timed.

    python -m bench.supervised                              # cookhouse/tiny in fp32
    python -m bench.supervised --precision bfloat16 --peer-precision float32
    python -m bench.supervised --model random:512x8 --batch-size 8 --max-length 256
    python -m bench.supervised --model random:qwen3-1.7b --precision bfloat16 --join 8      # on a GPU
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.flops import training_work
from bench.harness import (
    MODEL_HELP,
    chat_format,
    isolated,
    model_folder,
    now,
    parse_options,
    peak_bytes,
    save_record,
    serving,
)

LORA_ALPHA = 32
ADAPTED = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One measurement's settings; `batches[i][j]` is (tokens, weights) of an example, one entry per token."""

    model: str
    device: str
    batches: list[list[tuple[list[int], list[float]]]]
    rank: int
    learning_rate: float
    num_warmup: int


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Seconds of the timed steps, their trained tokens, and the mean loss (nats per trained token) of each step."""

    seconds: float
    num_trained: int
    num_tokens: int
    losses: list[float]
    peak_bytes: int

    @property
    def rate(self) -> float:
        """Trained tokens per second."""
        return self.num_trained / self.seconds


def make_case(options: argparse.Namespace, folder: Path) -> Case:
    """Render the bundled conversations with the model's renderer into batches."""
    from cookhouse.assets import data_file
    from cookhouse.chat import TrainOnWhat, get_renderer
    from cookhouse.data import read_conversations
    from cookhouse.models.tokenizers import get_tokenizer

    model = model_folder(options.model, folder, options.device)
    renderer = get_renderer(chat_format(options.model, model), get_tokenizer(model))
    examples = []
    for conversation in read_conversations(data_file("conversations/train.jsonl")):
        model_input, weights = renderer.build_supervised_example(
            conversation.messages, TrainOnWhat.ALL_ASSISTANT_MESSAGES
        )
        examples.append((model_input.to_ints(), [float(w) for w in weights]))
    num_steps, size = options.warmup + options.steps, options.batch_size
    if options.join > 1:
        examples = [join(examples[i : i + options.join]) for i in range(0, len(examples), options.join)]
    examples = [(t[: options.max_length], w[: options.max_length]) for t, w in examples]
    while len(examples) < num_steps * size:
        examples += examples
    batches = [examples[i * size : (i + 1) * size] for i in range(num_steps)]
    return Case(
        model=model,
        device=options.device,
        batches=batches,
        rank=options.rank,
        learning_rate=options.learning_rate,
        num_warmup=options.warmup,
    )


def join(examples: Sequence[tuple[list[int], list[float]]]) -> tuple[list[int], list[float]]:
    """Several conversations as one long example."""
    return [t for tokens, _ in examples for t in tokens], [w for _, weights in examples for w in weights]


def run_cookhouse(case: Case, precision: str) -> Measurement:
    """Train through the unmodified SDK against a server in its own process, two batches in flight."""
    os.environ["TINKER_TELEMETRY"] = "0"
    with serving(case.device, "--base-model", case.model, "--precision", precision) as server:
        clock, losses = _train_over_the_wire(case, server.url, server.api_key)
        return clock.measurement(losses, server.stop())


def _train_over_the_wire(case: Case, url: str, key: str) -> "tuple[Clock, list[float]]":
    import tinker
    from tinker import types

    client = tinker.ServiceClient(base_url=url, api_key=key)
    # TRL computes its loss past an adapter on the output projection, so neither side has one.
    training = client.create_lora_training_client(case.model, rank=case.rank, seed=0, train_unembed=False).result()
    adam = types.AdamParams(learning_rate=case.learning_rate, beta2=0.95, eps=1e-8)
    clock = Clock(case, "cpu")  # of a step that has been answered: all of it is done
    losses: list[float] = []
    pending: list[tuple[Any, Any]] = []

    def finish() -> None:
        index = len(losses)
        forward, step = pending.pop(0)
        total = forward.result().metrics["loss:sum"]
        step.result()
        losses.append(total / clock.num_trained(index))
        clock.step_done(index)

    for batch in case.batches:
        datums = [
            types.Datum(
                model_input=types.ModelInput.from_ints(tokens[:-1]),
                loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights[1:]},  # type: ignore[dict-item]
            )
            for tokens, weights in batch
        ]
        pending.append((training.forward_backward(datums, "cross_entropy"), training.optim_step(adam)))
        if len(pending) == 2:
            finish()
    while pending:
        finish()
    return clock, losses


def run_trl(case: Case, precision: str) -> Measurement:
    """Train with SFTTrainer on the same tokens; its loss is the mean over the trained tokens of a batch."""
    import datasets
    import torch
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    model = AutoModelForCausalLM.from_pretrained(case.model, dtype=torch.float32)
    rows = [
        {"input_ids": tokens, "labels": [token if w > 0 else -100 for token, w in zip(tokens, weights, strict=True)]}
        for batch in case.batches
        for tokens, weights in batch
    ]
    clock = Clock(case, case.device)

    class StepClock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, control
            clock.step_done(state.global_step - 1)

    class InOrder(SFTTrainer):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    with tempfile.TemporaryDirectory() as folder:
        trainer = InOrder(
            model=model,
            args=SFTConfig(
                output_dir=folder,
                per_device_train_batch_size=len(case.batches[0]),
                max_steps=len(case.batches),
                learning_rate=case.learning_rate,
                lr_scheduler_type="constant",
                adam_beta2=0.95,
                weight_decay=0.0,
                max_grad_norm=0.0,
                bf16=precision == "bfloat16",
                use_cpu=case.device == "cpu",
                gradient_checkpointing=False,
                max_length=None,
                dataset_kwargs={"skip_prepare_dataset": True},
                remove_unused_columns=False,
                logging_steps=1,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=datasets.Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(case.model),
            peft_config=LoraConfig(r=case.rank, lora_alpha=LORA_ALPHA, target_modules=ADAPTED),
            callbacks=[StepClock()],
        )
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return clock.measurement(losses, peak_bytes(case.device))


def timed_flops(case: Case) -> int:
    """Floating-point operations of the timed steps, as `TrainingWork` counts them."""
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.contract import LoraSpec

    base = TorchEngine(base_models=[case.model], precision="float32", device="cpu")._bases[case.model]
    work = training_work(base, base.adapter_layout(LoraSpec(rank=case.rank, train_unembed=False)))
    timed = case.batches[case.num_warmup :]
    return sum(work.flops([len(tokens) - 1 for tokens, _ in batch]) for batch in timed)


class Clock:
    """Times the steps after the warm-up, up to what has been done on a device."""

    def __init__(self, case: Case, device: str) -> None:
        self._case = case
        self._device = device
        self._start = now(device)
        self._end = self._start

    def num_trained(self, step: int) -> int:
        """Tokens of a step that carry loss."""
        return sum(int(w > 0) for _, weights in self._case.batches[step] for w in weights[1:])

    def step_done(self, step: int) -> None:
        """Note that a step is over."""
        self._end = now(self._device)
        if step == self._case.num_warmup - 1:
            self._start = self._end

    def measurement(self, losses: list[float], peak: int) -> Measurement:
        """What the timed steps came to."""
        timed = range(self._case.num_warmup, len(self._case.batches))
        return Measurement(
            seconds=self._end - self._start,
            num_trained=sum(self.num_trained(step) for step in timed),
            num_tokens=sum(len(tokens) for step in timed for tokens, _ in self._case.batches[step]),
            losses=losses,
            peak_bytes=peak,
        )


def main() -> None:
    """Measure both sides and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cookhouse/tiny", help=MODEL_HELP)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--peer-precision", choices=["float32", "bfloat16"], help="default: the same")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--join", type=int, default=1, help="conversations per example")
    parser.add_argument("--max-length", type=int, default=1024)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1, help="repeat both sides in turn and keep the medians")
    options = parse_options(parser)
    peer_precision = options.peer_precision or options.precision
    with tempfile.TemporaryDirectory() as folder:
        case = make_case(options, Path(folder) / "model")
        ours, peers = [], []
        for _ in range(options.rounds):
            ours.append(isolated(run_cookhouse, case, options.precision))
            peers.append(isolated(run_trl, case, peer_precision))
        flops = isolated(timed_flops, case) if options.save and options.device == "cpu" else 0
    report(options, peer_precision, median(ours), median(peers), flops)


def median(measurements: list[Measurement]) -> Measurement:
    """The one of middle speed."""
    return sorted(measurements, key=lambda m: m.rate)[len(measurements) // 2]


def report(options: argparse.Namespace, peer_precision: str, ours: Measurement, peer: Measurement, flops: int) -> None:
    """Print both rates, the ratio, and how far the losses are apart; `flops` are those of the timed steps."""
    drift = max(abs(a - b) for a, b in zip(ours.losses[:10], peer.losses[:10], strict=True))
    for name, precision, m in (("cookhouse", options.precision, ours), ("TRL + PEFT", peer_precision, peer)):
        print(
            f"{name:11} {precision:9} {m.rate:9.0f} trained tokens/s {m.num_tokens / m.seconds:9.0f} tokens/s "
            f"{m.peak_bytes / 2**20:7.0f} MiB  loss {m.losses[0]:.4f} -> {m.losses[-1]:.4f}"
        )
    print(f"ratio {ours.rate / peer.rate:.2f}; largest difference of the first ten losses {drift:.1e}")
    if options.save:
        figures = {"cookhouse": ours.rate, "trl": peer.rate, "ratio": ours.rate / peer.rate}
        figures |= {"cookhouse_peak_bytes": ours.peak_bytes, "trl_peak_bytes": peer.peak_bytes}
        achieved = {
            "cookhouse": (options.precision, flops / ours.seconds),
            "trl": (peer_precision, flops / peer.seconds),
        }
        save_record(
            f"supervised-{options.model}-{options.precision}-{peer_precision}", vars(options), figures, achieved
        )


if __name__ == "__main__":
    main()

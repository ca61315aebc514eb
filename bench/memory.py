"""Resident memory of the engine's process: when it only samples, and over training steps, against TRL's SFTTrainer.

Each measurement is a fresh process that makes its engine in it. Sampling: 32 prompts at once, of 32 tokens each, each
continued by as many; beside them the same with the embedded model, so that what the model itself takes stands alone.
Training: steps over the same tokens on both sides, `--max-length` positions at most in a sequence.

    python -m bench.memory --model FOLDER
    python -m bench.memory --model FOLDER --samplers-only --no-training
    python -m bench.memory --model random:256x4 --contexts 2048 8192 32768     # peaks of a pass by its length
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench.harness import MODEL_HELP, isolated, model_folder, parse_options, peak_bytes, save_record
from bench.supervised import Case, make_case, run_trl

from cookhouse.assets import TINY_MODEL
from cookhouse.engine.host_memory import resident_bytes

_MIB = 2**20
_NUM_PROMPTS = 32
_NUM_TOKENS = 32
_RANK = 32


@dataclass(frozen=True, kw_only=True)
class Resident:
    """Bytes of a process: with its libraries, with the model loaded, at the end, and at the most."""

    libraries: int
    loaded: int
    end: int
    peak: int
    weights: int


def _resident_now() -> int:
    found = resident_bytes()
    assert found is not None, "this system does not tell"
    return found


def run_sampling(model: str, precision: str, options: dict[str, Any]) -> Resident:
    """Sample from the bare model; `options` are further ones of the engine."""
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.__main__ import load
    from cookhouse.engine.contract import SampleRequest

    load()
    libraries = _resident_now()
    engine = TorchEngine(base_models=[model], precision=precision, device="cpu", **options)
    loaded = _resident_now()
    rng = np.random.default_rng(0)
    for i in range(_NUM_PROMPTS):
        engine.submit_sample(
            SampleRequest(
                request_id=str(i),
                base_model=model,
                snapshot_id=None,
                prompt_T=rng.integers(0, 2000, _NUM_TOKENS),
                max_tokens=_NUM_TOKENS,
                stop=[],
                seed=i,
            )
        )
    while engine.has_samples():
        engine.step_samples()
    return _resident(engine, model, libraries, loaded)


def run_training(case: Case, precision: str, max_activation_bytes: int | None = None) -> Resident:
    """Train an adapter on the batches of a case; `max_activation_bytes` is the engine's."""
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.__main__ import load
    from cookhouse.engine.contract import AdamStep, ForwardBackward, LoraSpec, TrainingDatum

    load()
    libraries = _resident_now()
    engine = TorchEngine(
        base_models=[case.model], precision=precision, device="cpu", max_activation_bytes=max_activation_bytes
    )
    loaded = _resident_now()
    engine.create_model("m", case.model, LoraSpec(rank=case.rank, train_unembed=False))
    for batch in case.batches:
        data_D = [
            TrainingDatum(
                tokens_T=np.array(tokens[:-1]),
                loss_fn_inputs={
                    "target_tokens": np.array(tokens[1:]),
                    "weights": np.array(weights[1:], dtype=np.float32),
                },
            )
            for tokens, weights in batch
        ]
        (output,) = engine.forward_backward([ForwardBackward(model_id="m", data_D=data_D, loss_fn="cross_entropy")])
        if isinstance(output, Exception):
            raise output
        engine.optim_step("m", AdamStep(learning_rate=case.learning_rate))
    return _resident(engine, case.model, libraries, loaded)


def run_contexts(model: str, precision: str, length: int) -> Resident:
    """One training step over one sequence of some length, everything computed again."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 2000, length + 1).tolist()
    batch = [(tokens, [1.0] * len(tokens))]
    return run_training(_case(model, [batch]), precision, max_activation_bytes=0)


def _case(model: str, batches: list[list[tuple[list[int], list[float]]]]) -> Case:
    return Case(model=model, device="cpu", batches=batches, rank=_RANK, learning_rate=1e-3, num_warmup=0)


def _resident(engine: Any, model: str, libraries: int, loaded: int) -> Resident:
    parameters = engine._bases[model].parameters.values()
    weights = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    return Resident(libraries=libraries, loaded=loaded, end=_resident_now(), peak=peak_bytes("cpu"), weights=weights)


def show(name: str, found: Resident) -> None:
    """Print one process."""
    parts = {"libraries": found.libraries, "loaded": found.loaded, "end": found.end, "peak": found.peak}
    figures = "  ".join(f"{part} {value / _MIB:6.0f}" for part, value in parts.items())
    print(f"{name:28} weights {found.weights / _MIB:6.0f}  {figures} MiB", flush=True)


def measure_sampling(model: str, options: argparse.Namespace, figures: dict[str, float]) -> None:
    """The model beside the embedded one, both when only sampling."""
    engine_options = {"samplers_only": True} if options.samplers_only else {}
    embedded = isolated(run_sampling, TINY_MODEL, options.precision, engine_options)
    found = isolated(run_sampling, model, options.precision, engine_options)
    show(f"sampling, {TINY_MODEL}", embedded)
    show("sampling", found)
    figures["sampling_above_embedded_per_weights"] = (found.end - embedded.end) / found.weights
    figures["sampling_end_bytes"], figures["sampling_peak_bytes"] = found.end, found.peak


def measure_training(case: Case, options: argparse.Namespace, figures: dict[str, float]) -> None:
    """Both sides of training on the same batches."""
    found = isolated(run_training, case, options.precision)
    show("training", found)
    figures["training_peak_bytes"] = found.peak
    if options.peer:
        peer = isolated(run_trl, case, options.precision)
        print(f"{'training, TRL + PEFT':28} peak {peer.peak_bytes / _MIB:6.0f} MiB", flush=True)
        figures["trl_peak_bytes"] = peer.peak_bytes
        figures["training_per_trl"] = found.peak / peer.peak_bytes


def measure_contexts(
    model: str, lengths: Sequence[int], options: argparse.Namespace, figures: dict[str, float]
) -> None:
    """Peaks by the length of one sequence."""
    for length in lengths:
        found = isolated(run_contexts, model, options.precision, length)
        show(f"training, {length} tokens", found)
        figures[f"context_{length}_bytes"] = found.peak - found.loaded


def main() -> None:
    """Measure, print, and save if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="random:512x8", help=MODEL_HELP)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--samplers-only", action="store_true", help="as `cookhouse serve --samplers-only`")
    parser.add_argument("--sampling", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--training", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--peer", action=argparse.BooleanOptionalAction, default=True, help="measure TRL as well")
    parser.add_argument("--contexts", type=int, nargs="+", default=[], help="only these lengths of a sequence")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--join", type=int, default=4, help="conversations per example")
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--rank", type=int, default=_RANK)
    parser.add_argument("--steps", type=int, default=2)
    parser.set_defaults(warmup=0, learning_rate=1e-3)
    options = parse_options(parser)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(options.model, Path(folder) / "model", "cpu")
        if options.contexts:
            measure_contexts(model, options.contexts, options, figures)
        else:
            if options.sampling:
                measure_sampling(model, options, figures)
            if options.training:
                options.model = options.model if options.model.startswith("random:") else model
                measure_training(make_case(options, Path(folder) / "again"), options, figures)
    for name, value in figures.items():
        print(f"{name:40} {value / _MIB if name.endswith('_bytes') else value:10.2f}")
    if options.save:
        save_record(f"memory-{options.model}-{options.precision}", vars(options), figures)


if __name__ == "__main__":
    main()

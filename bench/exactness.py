"""How far the sampler's log-probabilities are from the trainer's, on tokens just sampled, and both from fp32.

    python -m bench.exactness [--model cookhouse/tiny] [--precision bfloat16]

The policy is a base model with an adapter that has taken some steps in fp32. Every figure is over the sampled tokens,
in nats: with d = log p(sampler) - log p(trainer), the mean and the largest |d|, and KL v2 = mean d² / 2, the second
estimator of http://joschu.net/blog/kl-approx.html, which runs report as `optim/kl_sample_train_v2`.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench.harness import MODEL_HELP, model_folder, parse_options, save_record
from numpy.typing import NDArray

STEPS = 3
RATE = 1e-3


@dataclass(frozen=True)
class Sampled:
    """One sample: prompt and tokens, and their log-probabilities as they were drawn and as the trainer has them."""

    prompt_T: NDArray[np.int64]
    tokens_T: NDArray[np.int64]
    sampler_T: NDArray[np.float32]
    trainer_T: NDArray[np.float32]


def prompts(folder: str, count: int) -> list[NDArray[np.int64]]:
    """Sums with up to eleven that are solved before: prompts of many lengths."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = []
    for i in range(count):
        solved = "".join(f"{n} + {n + i} = {2 * n + i}\n" for n in range(i % 12))
        texts.append(f"{solved}{17 * i} + {3 * i + 1} =")
    return [np.array(tokenizer.encode(text), np.int64) for text in texts]


def make_adapter(folder: str, state: Path, device: str, rank: int) -> None:
    """Train an adapter on the prompts and save it."""
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.contract import AdamStep, LoraSpec

    engine = TorchEngine(base_models=[folder], device=device, precision="float32")
    engine.create_model("m", folder, LoraSpec(rank=rank))
    data = [(tokens_T[:-1], tokens_T[1:]) for tokens_T in prompts(folder, 16) if len(tokens_T) > 2]
    for _ in range(STEPS):
        _logprobs(engine, data, forward_only=False)
        engine.optim_step("m", AdamStep(learning_rate=RATE))
    engine.save_state("m", state, with_optimizer=False)


def sample(folder: str, state: Path, device: str, precision: str, options: dict[str, int]) -> list[Sampled]:
    """Sample from the adapter at temperature 1 in a precision, and compute the same tokens as training does."""
    from cookhouse.engine.contract import SampleOutput, SampleRequest

    engine = _engine(folder, state, device, precision, options["rank"])
    engine.snapshot("m", "s")
    asked = {str(i): prompt_T for i, prompt_T in enumerate(prompts(folder, options["prompts"]))}
    for i, prompt_T in asked.items():
        request = SampleRequest(
            request_id=i,
            base_model=folder,
            snapshot_id="s",
            prompt_T=prompt_T,
            seed=int(i),
            num_samples=options["samples"],
            max_tokens=options["tokens"],
            stop=[],
        )
        engine.submit_sample(request)
    found = []
    while engine.has_samples():
        for output in engine.step_samples():
            assert isinstance(output, SampleOutput), output
            found += [
                (asked[output.request_id], one.tokens_T.astype(np.int64), one.logprobs_T) for one in output.sequences
            ]
    trained = _score(engine, [(prompt_T, tokens_T) for prompt_T, tokens_T, _ in found])
    return [Sampled(*one, trainer_T) for one, trainer_T in zip(found, trained, strict=True)]


def score(
    folder: str, state: Path, device: str, rank: int, found: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]
) -> list[NDArray[np.float32]]:
    """Log-probabilities of sampled tokens in fp32."""
    return _score(_engine(folder, state, device, "float32", rank), found)


def figures(sampled: Sequence[Sampled], exact: Sequence[NDArray[np.float32]]) -> dict[str, float]:
    """Mean, largest and KL v2 of each pair of sides."""
    sides = {
        "sampler": np.concatenate([one.sampler_T for one in sampled]).astype(np.float64),
        "trainer": np.concatenate([one.trainer_T for one in sampled]).astype(np.float64),
        "fp32": np.concatenate(exact).astype(np.float64),
    }
    found: dict[str, float] = {"tokens": float(len(sides["fp32"]))}
    for one, other in (("sampler", "trainer"), ("sampler", "fp32"), ("trainer", "fp32")):
        d = sides[one] - sides[other]
        found |= {
            f"{one}_{other}_mean": float(np.abs(d).mean()),
            f"{one}_{other}_largest": float(np.abs(d).max()),
            f"{one}_{other}_kl_v2": float(0.5 * np.mean(d**2)),
        }
    found["equal_share"] = float(np.mean(sides["sampler"] == sides["trainer"]))
    return found


def _engine(folder: str, state: Path, device: str, precision: str, rank: int) -> Any:
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.contract import LoraSpec

    engine = TorchEngine(base_models=[folder], device=device, precision=precision)
    engine.load_state("m", folder, LoraSpec(rank=rank), state, with_optimizer=False)
    return engine


def _score(engine: Any, found: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> list[NDArray[np.float32]]:
    whole = [np.concatenate(pair) for pair in found]
    logprobs = _logprobs(engine, [(tokens_T[:-1], tokens_T[1:]) for tokens_T in whole], forward_only=True)
    return [one[len(prompt_T) - 1 :] for one, (prompt_T, _) in zip(logprobs, found, strict=True)]


def _logprobs(
    engine: Any, data: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]], *, forward_only: bool
) -> Sequence[NDArray[np.float32]]:
    from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput, TrainingDatum

    datums = [
        TrainingDatum(
            tokens_T=tokens_T,
            loss_fn_inputs={"target_tokens": targets_T, "weights": np.ones(len(targets_T), np.float32)},
        )
        for tokens_T, targets_T in data
    ]
    request = ForwardBackward(model_id="m", data_D=datums, loss_fn="cross_entropy", forward_only=forward_only)
    (output,) = engine.forward_backward([request])
    assert isinstance(output, ForwardBackwardOutput), output
    return output.logprobs_D


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cookhouse/tiny", help=MODEL_HELP)
    parser.add_argument("--precision", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--samples", type=int, default=2, help="of each prompt")
    parser.add_argument("--tokens", type=int, default=64, help="of each sample")
    options = parse_options(parser)
    sizes = {name: getattr(options, name) for name in ("rank", "prompts", "samples", "tokens")}
    with tempfile.TemporaryDirectory() as scratch:
        folder, state = model_folder(options.model, Path(scratch) / "model", options.device), Path(scratch) / "state"
        make_adapter(folder, state, options.device, options.rank)
        sampled = sample(folder, state, options.device, options.precision, sizes)
        found = [(one.prompt_T, one.tokens_T) for one in sampled]
        exact = score(folder, state, options.device, options.rank, found)
    results = figures(sampled, exact)
    for name, value in results.items():
        print(f"{name:24} {value:10.3g}")
    if options.save:
        save_record("exactness", vars(options), results)


if __name__ == "__main__":
    main()

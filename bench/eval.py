"""Items of GSM8K answered per second: `cookhouse eval` over the wire against lm-evaluation-harness with its model `hf`.

Same model and precision, same prompts in the same chat format, greedy answers of at most the same number of tokens, one
side after the other in one run, each in a process of its own. Loading the model and a first item are not timed; grading
is, on both sides. Of the batch sizes of the harness that are named, its best counts. The harness is not among
cookhouse's dependencies: name a Python that has it, with torch and transformers.

    python -m bench.eval --data gsm8k/test.jsonl --lm-eval PYTHON                   # cookhouse/tiny
    python -m bench.eval --data gsm8k/test.jsonl --lm-eval PYTHON --model ~/.cache/cookhouse/SmolLM2-135M-Instruct
"""

import argparse
import asyncio
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.harness import MODEL_HELP, isolated, model_folder, parse_options, save_record, serving

OTHER_SIDE = Path(__file__).parent / "lm_eval_side.py"


def measure_ours(model: str, data: str, items: int, max_tokens: int, url: str, api_key: str) -> dict[str, float]:
    """Answer and grade the items, with every answer on disk as it comes."""
    os.environ["TINKER_API_KEY"], os.environ["TINKER_BASE_URL"] = api_key, url
    return asyncio.run(_measure_ours(model, data, items, max_tokens, url, api_key))


async def _measure_ours(model: str, data: str, items: int, max_tokens: int, url: str, api_key: str) -> dict[str, float]:
    from cookhouse.evals import AnswerOptions, SamplingAnswerer, ask_benchmark
    from cookhouse.training import connect_to
    from cookhouse.workflows.evaluation.attempt_files import AttemptFiles

    loaded, renderer = _problems(model, data, items)
    client = await (await connect_to(url, api_key)()).create_sampling_client(base_model=model)
    answerer = SamplingAnswerer(client, renderer)
    asking = AnswerOptions(max_tokens=max_tokens, max_concurrent=max(items, 1))
    await answerer(next(iter(loaded.items.values())).messages, asking.draw(loaded, 0))  # wakes everything up
    with tempfile.TemporaryDirectory() as folder:
        log = AttemptFiles(Path(folder))
        start = time.perf_counter()
        await ask_benchmark(loaded, answerer, asking, log)
        seconds = time.perf_counter() - start
        attempts = log.attempts(loaded.name)
    return {"seconds": seconds, "characters": float(sum(len(a.answers[0].text) for a in attempts))}


def _problems(model: str, data: str, items: int) -> Any:
    from cookhouse.data import build_renderer
    from cookhouse.evals import benchmarks_named, load_benchmark, sources_of_benchmarks
    from cookhouse.models.catalog import default_renderer

    [benchmark] = benchmarks_named("gsm8k")
    loaded = load_benchmark(benchmark, sources_of_benchmarks([benchmark], data)["gsm8k"], items)
    return loaded, build_renderer(model, default_renderer(model))


def write_prompts(model: str, data: str, items: int, path: Path) -> None:
    """The prompts as both sides have them, and what is expected, a line for each."""
    from cookhouse.models.tokenizers import get_tokenizer

    loaded, renderer = _problems(model, data, items)
    tokenizer = get_tokenizer(model)
    with path.open("w", encoding="utf-8") as file:
        for item in loaded.items.values():
            prompt = tokenizer.decode(renderer.build_generation_prompt(item.messages).to_ints())
            file.write(json.dumps({"prompt": prompt, "expected": item.expected}) + "\n")


def measure_theirs(python: str, folder: str, prompts: Path, *settings: str) -> dict[str, float]:
    """The same by the harness, in its own environment, with the settings of its side."""
    command = [python, str(OTHER_SIDE), folder, str(prompts), *settings]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | {"HF_HUB_OFFLINE": "1"}
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cookhouse/tiny", help=MODEL_HELP)
    parser.add_argument("--data", required=True, help="GSM8K's test.jsonl")
    parser.add_argument("--lm-eval", required=True, help="Python with lm_eval, torch and transformers")
    parser.add_argument("--items", type=int, default=128)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument(
        "--batch-sizes", type=int, nargs="+", default=[16], help="of the harness, which batches statically"
    )
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32", help="of both sides")
    parser.add_argument("--rounds", type=int, default=1, help="of which the fastest of each side counts")
    options = parse_options(parser)
    sides: dict[str, dict[str, float]] = {}

    def keep(name: str, side: dict[str, float]) -> None:
        sides[name] = min(sides.get(name, side), side, key=lambda each: each["seconds"])

    with tempfile.TemporaryDirectory() as temporary:
        folder = model_folder(options.model, Path(temporary) / "model", options.device)
        prompts = Path(temporary) / "prompts.jsonl"
        isolated(write_prompts, folder, options.data, options.items, prompts)
        for _ in range(options.rounds):
            with serving(options.device, "--base-model", folder, "--precision", options.precision) as server:
                load = (folder, options.data, options.items, options.max_tokens, server.url, server.api_key)
                keep("cookhouse eval", isolated(measure_ours, *load))
            for size in options.batch_sizes:
                side = measure_theirs(
                    options.lm_eval,
                    folder,
                    prompts,
                    str(options.max_tokens),
                    str(size),
                    options.device,
                    options.precision,
                )
                keep(f"lm-eval, batches of {size}", side)
    for name, side in sides.items():
        print(f"{name:<24}{options.items / side['seconds']:8.2f} items/s  {side['characters']:,.0f} characters")
    ours, *theirs = (options.items / side["seconds"] for side in sides.values())
    rates = {"ours": ours, "lm_eval": max(theirs)}
    print(f"{'ratio':<24}{rates['ours'] / rates['lm_eval']:8.2f}")
    if options.save:
        model = Path(options.model).name if Path(options.model).is_dir() else options.model
        settings = {key: value for key, value in vars(options).items() if key not in ("save", "lm_eval", "data")}
        best = options.batch_sizes[theirs.index(max(theirs))]
        settings |= {"model": model, "best_batch_size": best}
        save_record(f"eval-{model}-{options.precision}", settings, rates)


if __name__ == "__main__":
    main()

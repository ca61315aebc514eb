"""Decoding that keeps to a grammar against free decoding, in pairs: the same prompts, rows and numbers of tokens.

The grammars never end before `--tokens`: JSON of a schema, and a text of which no letter is forbidden. The ratio is of
tokens per second, of each pair; the goal is 0.8.

    python -m bench.constrained
    python -m bench.constrained --model random:qwen3-0.6b --rows 1 32
"""

import argparse
import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import numpy as np
from bench.harness import MODEL_HELP, model_folder, now, parse_options, save_record

from cookhouse.chat.grammars import json_of, serialize
from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import SampleOutput, SampleRequest

_ROW = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
GRAMMARS: Mapping[str, str] = {
    "json": serialize([{"json_schema": json_of({"type": "array", "items": _ROW, "minItems": 1000})}]),
    "text": serialize([{"lark_grammar": "start: /(?s:.){100000}/"}]),
}


def tokens_per_second(engine: TorchEngine, model: str, rows: int, num_tokens: int, grammar: str | None) -> float:
    """Of one batch; the clock runs while it is sampled."""
    for row in range(rows):
        engine.submit_sample(
            SampleRequest(
                request_id=str(row),
                base_model=model,
                snapshot_id=None,
                prompt_T=np.arange(20, 60),
                seed=row,
                max_tokens=num_tokens,
                stop=None if grammar else [],
                grammar=grammar,
            )
        )
    start, sampled = now("cpu"), 0
    while engine.has_samples():
        for output in engine.step_samples():
            if not isinstance(output, SampleOutput):
                raise output.error
            sampled += sum(len(sequence.tokens_T) for sequence in output.sequences)
    return sampled / (now("cpu") - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cookhouse/tiny", help=MODEL_HELP)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=7)
    options = parse_options(parser)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(options.model, Path(folder), options.device)
        engine = TorchEngine(base_models=[model], device=options.device)
        for rows, (name, grammar) in itertools.product(options.rows, GRAMMARS.items()):
            for kind in (None, grammar):
                tokens_per_second(engine, model, rows, 20, kind)
            pairs = [
                [tokens_per_second(engine, model, rows, options.tokens, kind) for kind in (None, grammar)]
                for _ in range(options.pairs)
            ]
            ratios = sorted(held / free for free, held in pairs)
            figures[f"{name}, {rows} rows, ratio"] = median(ratios)
            free, held = (median(column) for column in zip(*pairs, strict=True))
            print(
                f"{name:>5} {rows:>3} rows: free {free:,.0f} tokens/s, held {held:,.0f}, "
                f"ratio {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            )
    if options.save:
        save_record("constrained", vars(options), figures)


if __name__ == "__main__":
    main()

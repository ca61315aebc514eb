"""The other side of `bench.eval`: runs under a Python with lm-evaluation-harness and nothing of cookhouse.

PYTHON bench/lm_eval_side.py FOLDER PROMPTS.jsonl MAX_TOKENS BATCH_SIZE DEVICE PRECISION     prints seconds, characters

One item is answered before the clock starts, as on our side.
"""

import json
import sys
import time
from typing import Any

from lm_eval import simple_evaluate
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.huggingface import HFLM


def main() -> None:
    folder, prompts, max_tokens, batch_size, device, precision = sys.argv[1:]
    model = HFLM(pretrained=folder, dtype=precision, batch_size=int(batch_size), device=device, add_bos_token=False)
    task = ConfigurableTask(
        config={
            "task": "gsm8k_prompts",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": prompts}},
            "test_split": "test",
            "output_type": "generate_until",
            "doc_to_text": "{{prompt}}",
            "doc_to_target": "{{expected}}",
            "generation_kwargs": {"until": [], "do_sample": False, "max_gen_toks": int(max_tokens)},
            "filter_list": [
                {
                    "name": "boxed",
                    "filter": [
                        {"function": "regex", "regex_pattern": r"\\boxed\{([^}]*)\}"},
                        {"function": "take_first"},
                    ],
                }
            ],
            "metric_list": [{"metric": "exact_match"}],
        }
    )
    simple_evaluate(model=model, tasks=[task], bootstrap_iters=0, limit=1)  # wakes everything up
    start = time.perf_counter()
    found: Any = simple_evaluate(model=model, tasks=[task], bootstrap_iters=0, log_samples=True)
    seconds = time.perf_counter() - start
    samples = found["samples"]["gsm8k_prompts"]
    characters = sum(len(sample["resps"][0][0]) for sample in samples)
    print(json.dumps({"seconds": seconds, "characters": float(characters)}))


if __name__ == "__main__":
    main()

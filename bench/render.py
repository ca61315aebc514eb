"""Tokens rendered per second, with weights, of conversations that people wrote: ours, `tinker-cookbook`'s renderer of
the same name, and `apply_chat_template` with an assistant mask.

python -m bench.render --data FOLDER --tokenizers FOLDER [--rounds 7]

DATA has taskmaster4/dialogs_600.jsonl and self_instruct/*.jsonl, TOKENIZERS a folder for each family. All sides render
the same conversations in one process on one thread, in turns. In each round each makes a new renderer, which renders
four fifths of the conversations first, as a long run has rendered many; the others, which it has not seen, are timed.
That all give the same number of tokens is checked.
"""

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import save_record

from cookhouse.chat import Message, TrainOnWhat, get_renderer
from cookhouse.models.tokenizers import get_tokenizer

os.environ["TOKENIZERS_PARALLELISM"] = "false"

# What the families' own templates write for such conversations, with the marks that an assistant mask needs.
_CHATML = (
    "{% for m in messages %}{% if not loop.first %}{{ '\n' }}{% endif %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{% endfor %}"
)
_LLAMA3 = (
    "{{ '<|begin_of_text|>' }}{% for m in messages %}"
    "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' }}"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|eot_id|>' }}{% endgeneration %}"
    "{% else %}{{ m['content'] + '<|eot_id|>' }}{% endif %}{% endfor %}"
)
_DEEPSEEK = (
    "{{ '<｜begin▁of▁sentence｜>' }}{% for m in messages %}"
    "{% if m['role'] == 'assistant' %}{{ '<｜Assistant｜></think>' }}"
    "{% generation %}{{ m['content'] + '<｜end▁of▁sentence｜>' }}{% endgeneration %}"
    "{% else %}{{ '<｜User｜>' + m['content'] }}{% endif %}{% endfor %}"
)
_FAMILIES = {
    "qwen3_instruct": ("qwen3", _CHATML),
    "llama3": ("llama3", _LLAMA3),
    "deepseekv3": ("deepseek_v3_1", _DEEPSEEK),
}


@dataclass(frozen=True, kw_only=True)
class Side:
    name: str
    make: Callable[[], Callable[[list[list[Message]]], int]]
    """A new renderer, that has cached nothing of the batch yet: it renders one and gives its number of tokens."""


def read_conversations(data: Path) -> list[list[Message]]:
    """Dialogs of many turns and single answers that end with the assistant."""
    found: list[list[Message]] = []
    for line in (data / "taskmaster4/dialogs_600.jsonl").read_text(encoding="utf-8").strip().split("\n"):
        messages: list[Message] = [{"role": u["speaker"], "content": u["text"]} for u in json.loads(line)["utterances"]]
        while messages and messages[-1]["role"] != "assistant":
            messages.pop()
        found.append(messages)
    tasks = [path.read_text(encoding="utf-8").strip() for path in sorted((data / "self_instruct").glob("*.jsonl"))]
    for line in "\n".join(tasks).split("\n"):
        task = json.loads(line)
        asked = "\n\n".join(filter(None, [task["instruction"], task["instances"][0]["input"]]))
        found.append(
            [{"role": "user", "content": asked}, {"role": "assistant", "content": task["instances"][0]["output"]}]
        )
    return [[{**m, "content": str(m["content"]).strip()} for m in messages] for messages in found if messages]


def our_side(name: str, tokenizer: Any) -> Side:
    def make() -> Callable[[list[list[Message]]], int]:
        renderer = get_renderer(name, tokenizer)

        def render(batch: list[list[Message]]) -> int:
            examples = [renderer.build_supervised_example(m, TrainOnWhat.ALL_ASSISTANT_MESSAGES) for m in batch]
            return sum(tokens.length for tokens, _ in examples)

        return render

    return Side(name="cookhouse", make=make)


def cookbook_side(name: str, tokenizer: Any) -> Side:
    from tinker_cookbook.renderers import TrainOnWhat as Theirs
    from tinker_cookbook.renderers import get_renderer as get_theirs

    def make() -> Callable[[list[list[Any]]], int]:
        renderer = get_theirs(name, tokenizer)

        def render(batch: list[list[Any]]) -> int:
            examples = [renderer.build_supervised_example(m, Theirs.ALL_ASSISTANT_MESSAGES) for m in batch]
            return sum(tokens.length for tokens, _ in examples)

        return render

    return Side(name="tinker-cookbook", make=make)


def template_side(template: str, tokenizer: Any) -> Side:
    def render(batch: list[list[Message]]) -> int:
        made = tokenizer.apply_chat_template(
            batch, chat_template=template, return_assistant_tokens_mask=True, return_dict=True
        )
        return sum(map(len, made["input_ids"]))

    return Side(name="apply_chat_template", make=lambda: render)


def measure(sides: Sequence[Side], conversations: list[list[Message]], rounds: int) -> dict[str, float]:
    """Tokens per second of each side, the median of rounds in which they take turns."""
    batch = conversations[::5]
    before = [messages for index, messages in enumerate(conversations) if index % 5]
    taken: dict[str, list[float]] = {side.name: [] for side in sides}
    num_tokens = {side.name: side.make()(batch) for side in sides}
    if len(set(num_tokens.values())) > 1:
        raise SystemExit(f"the sides do not render the same: {num_tokens}")
    for _ in range(rounds):
        for side in sides:
            render = side.make()
            render(before)
            gc.collect()
            start = time.perf_counter()
            render(batch)
            taken[side.name].append(time.perf_counter() - start)
    return {name: num_tokens[name] / statistics.median(seconds) for name, seconds in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with taskmaster4 and self_instruct")
    parser.add_argument("--tokenizers", type=Path, required=True, help="folder with a tokenizer for each family")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--save", action="store_true", help="write a record under results/")
    options = parser.parse_args()
    batch = read_conversations(options.data)
    figures: dict[str, float] = {}
    for name, (folder, template) in _FAMILIES.items():
        tokenizer = get_tokenizer(str(options.tokenizers / folder))
        sides = [our_side(name, tokenizer), cookbook_side(name, tokenizer), template_side(template, tokenizer)]
        rates = measure(sides, batch, options.rounds)
        ours = rates["cookhouse"]
        print(f"{name}: {len(batch)} conversations")
        for side, rate in rates.items():
            print(f"  {side:20} {rate:10,.0f} tokens/s  {ours / rate:5.2f} ×")
            figures[f"{name}: {side}"] = round(rate)
    if options.save:
        save_record("render", {"rounds": options.rounds}, figures)


if __name__ == "__main__":
    main()

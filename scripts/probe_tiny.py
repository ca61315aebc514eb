"""What a model knows of the small world, asked in plain text: `python -m scripts.probe_tiny FOLDER`.

Greedy answers to held-out questions, after two answered ones of the same skill and in the layout of the pretraining
text, so that the figure is the share of problems the model can solve and not how well it follows a chat format. Facts
once more with each answer at the start of a line, where a chat begins its answers: other tokens than after a space.
"""

import argparse
import random
from pathlib import Path
from typing import Any

import torch
from scripts.tiny_world import SKILLS, Problem
from transformers import AutoTokenizer, Qwen3ForCausalLM

_QUESTIONS_PER_SKILL = 50
# What stands between the word and the question or answer after it.
_SAME_LINE, _OWN_LINE = " ", "\n"
_MAX_NEW_TOKENS = 24


def probe(model: Any, tokenizer: Any, *, seed: int = 0) -> dict[str, float]:
    """Share of exactly right answers by skill, the problems that the conversations do not ask ("hard") apart."""
    shares: dict[str, float] = {}
    for name in SKILLS:
        shares[name] = _share(model, tokenizer, name, random.Random(f"probe {seed} {name}"), is_hard=False)
    for name in ("add", "subtract", "multiply"):
        rng = random.Random(f"probe hard {seed} {name}")
        shares[f"{name} (hard)"] = _share(model, tokenizer, name, rng, is_hard=True)
    shares["fact (own line)"] = facts_on_their_own_line(model, tokenizer, seed=seed)
    return shares


def facts_on_their_own_line(model: Any, tokenizer: Any, *, seed: int = 0) -> float:
    """Share of held-out facts that are known where the answer begins a line."""
    rng = random.Random(f"probe {seed} fact")
    return _share(model, tokenizer, "fact", rng, is_hard=False, gap=_OWN_LINE)


def _share(
    model: Any, tokenizer: Any, skill: str, rng: random.Random, *, is_hard: bool, gap: str = _SAME_LINE
) -> float:
    problems, prompts = [], []
    for _ in range(_QUESTIONS_PER_SKILL):
        shown = [_draw(rng, skill, held_out=False, is_hard=is_hard) for _ in range(2)]
        problem = _draw(rng, skill, held_out=True, is_hard=is_hard)
        examples = "".join(f"Question:{gap}{other.ask(rng)}\nAnswer:{gap}{other.answer}\n" for other in shown)
        problems.append(problem)
        prompts.append(f"{examples}Question:{gap}{problem.ask(rng)}\nAnswer:{gap.strip(' ')}")
    answers = _continue(model, tokenizer, prompts)
    return sum(given == problem.answer for given, problem in zip(answers, problems, strict=True)) / len(problems)


def _draw(rng: random.Random, skill: str, *, held_out: bool, is_hard: bool) -> Problem:
    while True:
        problem = SKILLS[skill].draw(rng)
        if problem.is_held_out == held_out and problem.is_hard == is_hard:
            return problem


def _continue(model: Any, tokenizer: Any, prompts: list[str]) -> list[str]:
    """The first line of the greedy continuation of each prompt."""
    batch = tokenizer(prompts, padding=True, padding_side="left", return_tensors="pt")
    with torch.inference_mode():
        tokens = model.generate(**batch, max_new_tokens=_MAX_NEW_TOKENS, do_sample=False)
    texts = tokenizer.batch_decode(tokens[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return [text.strip().split("\n")[0].strip() for text in texts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for name, share in probe(model, AutoTokenizer.from_pretrained(folder)).items():
        print(f"{name:28} {share:.2f}")


if __name__ == "__main__":
    main()

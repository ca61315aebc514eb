"""Write the bundled preferences: `python -m scripts.write_preferences FOLDER`.

How to say an order of the small world: politely is preferred to curtly, whichever way it is given. The base model turns
an order that is given curtly into a polite one and the other way around, so that half of its answers are polite. As in
`write_tiny_data`, an order is in the test if a hash of its content says so, and in the training set if not.

The demonstrations are conversations about the same orders, answered politely and curtly as often: what a model is like
that has learned the task and no preference.
"""

import argparse
import json
import random
from pathlib import Path

from scripts.tiny_world import SKILLS, Problem

SEED = 0
NUM_TRAIN = 1000
NUM_TEST = 100
NUM_DEMONSTRATIONS = {"train": 500, "test": 100}
WORDINGS = ("How do I say this?", "How do I ask for this?", "Say this:")


def row(rng: random.Random, order: str) -> dict[str, str]:
    """The preference about an order, such as `close the old door`."""
    curt, polite = f"{order.capitalize()}.", f"Could you please {order}?"
    return {"prompt": f"{rng.choice(WORDINGS)} {rng.choice((curt, polite))}", "chosen": polite, "rejected": curt}


def orders(count: int, *, held_out: bool) -> list[str]:
    """`count` different orders."""
    rng = random.Random(f"preferences {SEED} {'test' if held_out else 'train'}")
    drawn: dict[str, Problem] = {}
    while len(drawn) < count:
        problem = SKILLS["style"].draw(rng)
        if problem.is_held_out == held_out:
            drawn.setdefault(problem.key, problem)
    return list(drawn)


def rows(count: int, *, held_out: bool) -> str:
    """One JSON object per line."""
    rng = random.Random(f"wordings {SEED} {'test' if held_out else 'train'}")
    return "".join(json.dumps(row(rng, order)) + "\n" for order in orders(count, held_out=held_out))


def demonstrations(count: int, *, held_out: bool) -> str:
    """One JSON object per line."""
    rng = random.Random(f"demonstrations {SEED} {'test' if held_out else 'train'}")
    lines = []
    for order in orders(count, held_out=held_out):
        pair = row(rng, order)
        said = [("user", pair["prompt"]), ("assistant", pair[rng.choice(("chosen", "rejected"))])]
        lines.append(json.dumps({"messages": [{"role": role, "content": text} for role, text in said]}) + "\n")
    return "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, count, held_out in (("train", NUM_TRAIN, False), ("test", NUM_TEST, True)):
        written = {
            f"{name}.jsonl": rows(count, held_out=held_out),
            f"demonstrations_{name}.jsonl": demonstrations(NUM_DEMONSTRATIONS[name], held_out=held_out),
        }
        for file, text in written.items():
            (folder / file).write_text(text, encoding="utf-8")
            print(f"{len(text):,} bytes in {folder / file}")


if __name__ == "__main__":
    main()

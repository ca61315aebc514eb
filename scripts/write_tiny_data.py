"""Write the bundled conversations: `python -m scripts.write_tiny_data FOLDER`."""

import argparse
import json
from pathlib import Path

from scripts.tiny_world import Conversation, conversations

NUM_TRAIN = 5000
NUM_TEST = 200
SEED = 0


def rows(conversations_: list[Conversation]) -> str:
    """One JSON object per line."""
    return "".join(json.dumps(conversation.row(), ensure_ascii=False) + "\n" for conversation in conversations_)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, count, held_out in (("train", NUM_TRAIN, False), ("test", NUM_TEST, True)):
        path = folder / f"{name}.jsonl"
        path.write_text(rows(conversations(count, held_out=held_out, seed=SEED)), encoding="utf-8")
        print(f"{count} conversations in {path}")


if __name__ == "__main__":
    main()

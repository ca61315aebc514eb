"""The bundled sentences: what the script writes, held out, and in as many languages as the instruction lists."""

import json
import re

import pytest
from scripts.write_languages import SENTENCES, rows

from cookhouse.assets import data_file


def read(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in data_file(f"languages/{name}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", ["train", "test"])
def test_files_are_what_the_script_writes(name: str) -> None:
    """Catches data that was edited by hand, or a script that depends on hash order, platform or library version."""
    assert data_file(f"languages/{name}.jsonl").read_bytes() == rows(held_out=name == "test").encode()


def test_no_test_sentence_is_in_train() -> None:
    """Catches a leak by content: the same sentence with another number."""
    train, test = ({re.sub(r"\d+", "n", row["question"]) for row in read(name)} for name in ("train", "test"))
    assert not train & test
    assert (len(train), len(test)) == (7 * len(SENTENCES), 3 * len(SENTENCES))


def test_every_sentence_is_of_one_language() -> None:
    """Catches a translation that was pasted under the wrong label, or forgotten."""
    texts = [sentence for sentences in SENTENCES.values() for sentence in sentences]
    assert len(texts) == len(set(texts)) == 10 * len(SENTENCES)
    assert all(text.count("{n}") == 1 for text in texts)
    scripts = {"el": r"[Α-ώ]", "ru": r"[А-яё]", "zh": r"[一-鿿]"}
    for label, sentences in SENTENCES.items():
        for other, letters in scripts.items():
            assert all((re.search(letters, sentence) is not None) == (label == other) for sentence in sentences), label


def test_the_instruction_lists_the_labels() -> None:
    told = data_file("languages/instruction.txt").read_text(encoding="utf-8")
    listed = told.partition("How to decide")[0]
    assert set(re.findall(r"\b([a-z]{2}) [A-Z]", listed)) | {"ot"} == set(SENTENCES)
    assert told.count("{text}") == 1
    assert "Final Answer:" in told

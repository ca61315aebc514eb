"""The verdicts of lm-evaluation-harness on the published prompts, and how often sentences are parted as NLTK does."""

import importlib
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cookhouse.grading.ifeval import parse_instructions, score_instructions
from cookhouse.grading.ifeval.instructions import Instruction
from cookhouse.grading.ifeval.sentences import split_sentences
from cookhouse.grading.ifeval.words import split_words

_NEEDS_PUNKT = {"change_case:capital_word_frequency"}
_LINES = [
    "* a point, and more",
    "- another",
    "**Bold** and *slanted*",
    "<<A title>>",
    "My answer is yes.",
    "P.S. Write to me!",
    "P.P.S I did",
    "SECTION 1",
    "Section 2",
    "PARAGRAPH 3",
    "***",
    "******",
    "[name] and [address]",
    '"Quoted"',
    "",
    "",
    "I SAY SO, AND I'M RIGHT. IT'S 5 P.M.",
    "the weekend was long. president of us all",
    '{"a": 1}',
    "---",
    "Mr. Smith went to Washington. Did he? He did!",
]


@pytest.fixture(scope="module")
def harness() -> Iterator[Any]:
    """The harness's own task, if it and what it needs are installed."""
    pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: make test-harness")
    nltk = pytest.importorskip("nltk", reason="needs nltk: make test-harness")
    pytest.importorskip("immutabledict", reason="needs immutabledict: make test-harness")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nltk, "download", lambda *_: None)
        patch.setattr("langdetect.DetectorFactory.seed", 0)  # else it says now this, now that
        yield importlib.import_module("lm_eval.tasks.ifeval.utils")


@pytest.fixture(scope="module")
def has_punkt() -> bool:
    import nltk

    try:
        nltk.data.find("tokenizers/punkt_tab")
    except LookupError:
        return False
    return True


def test_verdicts_agree(harness: Any, has_punkt: bool, shared: Path) -> None:
    """Catches a check that differs from the published one; the exceptions are those that the package names."""
    compared: Counter[str] = Counter()
    differ = []
    for row, answer in itertools.islice(_answers(shared), 1500):
        for instruction in parse_instructions(row):
            if _is_left_out(instruction, has_punkt):
                continue
            ours = score_instructions([instruction], answer)
            one = harness.InputExample(0, [instruction.id], row["prompt"], [dict(instruction.settings)])
            strict = harness.test_instruction_following_strict(one, answer).follow_all_instructions
            loose = harness.test_instruction_following_loose(one, answer).follow_all_instructions
            compared[instruction.id] += 1
            if (ours.prompt_strict, ours.prompt_loose) != (strict, loose):
                differ.append((instruction, answer))
    assert differ == []
    assert len(compared) == 24 if has_punkt else 23
    assert min(compared.values()) >= 10


@pytest.mark.slow
def test_sentences_and_words_agree(harness: Any, has_punkt: bool, shared: Path) -> None:
    """Catches a splitter that departs from NLTK's: of texts that people and models wrote, 97 % have as many sentences,
    and 99.9 % as many words in capitals.
    """
    del harness
    if not has_punkt:
        pytest.skip("needs NLTK's punkt_tab: see make test-harness")
    from nltk.tokenize import sent_tokenize, word_tokenize

    texts = _texts(shared)
    sentences = sum(len(split_sentences(text)) == len(sent_tokenize(text)) for text in texts)
    words = sum(_capitals(split_words(text)) == _capitals(word_tokenize(text)) for text in texts)
    assert len(texts) > 1000
    assert sentences / len(texts) > 0.96
    assert words / len(texts) > 0.999


def _answers(shared: Path) -> Any:
    """Rows with answers made up for them: lines at random, words of the settings among them, in any case of letters."""
    rows = [json.loads(line) for line in (shared / "data/ifeval/input_data.jsonl").read_text().splitlines()]
    dice = random.Random(0)
    cases: list[Callable[[str], str]] = [str, str, str.upper, str.lower]
    for row in itertools.cycle(rows):
        own = [str(value) for kwargs in row["kwargs"] for value in kwargs.values()]
        own += [word for kwargs in row["kwargs"] for word in [*kwargs.get("keywords", []), row["prompt"][:200]]]
        lines = dice.choices(_LINES, k=dice.randint(1, 12)) + dice.choices(own or _LINES, k=dice.randint(0, 4))
        dice.shuffle(lines)
        if own and dice.random() < 0.4:
            lines = [*own[:1], *lines] if dice.random() < 0.5 else [*lines, *own[:1]]
        text = dice.choice(["\n", "\n\n", " "]).join(lines)
        in_case = dice.choice(cases)
        yield row, in_case(text if dice.random() < 0.8 else f'"{text}"')


def _is_left_out(instruction: Instruction, has_punkt: bool) -> bool:
    """Sentences are compared apart; of a letter that is none, the harness counts another, at random."""
    if instruction.id == "keywords:letter_frequency":
        return not instruction.settings["letter"].isalpha()
    return instruction.id == "length_constraints:number_sentences" or (instruction.id in _NEEDS_PUNKT and not has_punkt)


def _texts(shared: Path) -> list[str]:
    found: list[str] = []
    for name in (
        "mt_bench/question.jsonl",
        "gsm8k/test.jsonl",
        "preference/dpo_en_demo.jsonl",
        "ifeval/input_data.jsonl",
    ):
        for line in (shared / "data" / name).read_text().splitlines():
            found += _long(json.loads(line))
    return found[:4000]


def _long(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if 60 < len(value) < 5000 else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for item in inner for text in _long(item)]


def _capitals(words: list[str]) -> int:
    return sum(word.isupper() for word in words)

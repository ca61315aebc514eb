"""Every instruction with answers that follow it and answers that do not."""

import builtins
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cookhouse.errors import InputError
from cookhouse.grading.ifeval import CHECKS, follows, parse_instructions, score_instructions
from cookhouse.grading.ifeval.language import _detectors

_ENGLISH = "There are many things that one could say about the weather in this town, and all of them are true."
_GERMAN = "Es gibt vieles, was man über das Wetter in dieser Stadt sagen könnte, und alles davon ist wahr."

# instruction, settings, answers that follow it, answers that do not
_CASES: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        ["READ this NOW", "I say I'm fine", "IT'S late", "U.S. and U.K.", "CANNOT"],
        ["Read this now", "I say so", "it is 12 past 5", ""],
    ),
    ("change_case:english_capital", {}, [_ENGLISH.upper()], [_ENGLISH, _GERMAN.upper(), "12"]),
    ("change_case:english_lowercase", {}, [_ENGLISH.lower()], [_ENGLISH, _GERMAN.lower(), "12"]),
    (
        "combination:repeat_prompt",
        {"prompt_to_repeat": "Say hello. "},
        ["Say hello.\nHello.", " say HELLO. Hello."],
        ["Hello.", "Sure: Say hello. Hello."],
    ),
    (
        "combination:two_responses",
        {},
        ["one\n******\ntwo", "******one******two******"],
        ["one", "one******one", "one******two******three", "one************two"],
    ),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        ["[name] of [town]", "[a][b]", "[[a] b] [c]", "[a]\n[]"],
        ["[name]", "[a\nb] [c]", "[[[", "]]["],
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.S."},
        ["Bye.\n\nP.S. Write.", "p. s. write", "P.P.S. Write, P.S. too"],
        ["Bye.", "PS: Write", "P.S"],
    ),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, ["P.P.S Write.", "p. p. s"], ["P.S. Write."]),
    ("detectable_content:postscript", {"postscript_marker": "N.B."}, ["n.b. this"], ["Nab"]),
    (
        "detectable_format:constrained_response",
        {},
        ["My answer is yes.", "Well. My answer is maybe. I think."],
        ["Yes.", "my answer is no."],
    ),
    (
        "detectable_format:json_format",
        {},
        ['{"a": [1]}', '```json\n{"a": 1}\n```', "```\n[]```", "3"],
        ["a: 1", '{"a": 1} is it', "```json\n```", "[" * 100_000],
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        ["Section 1\na\nSection 2\nb", "Section1 Section\n22"],
        ["Section 1\na", "SECTION 1 SECTION 2", "Section one, Section two"],
    ),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        ["* a\n* b", "- a\n\n  - b", "text\n* a\n---\n", "* a\n**b**\n- c"],
        ["* a", "* a\n* b\n* c", "1. a\n2. b", "a * b - c"],
    ),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        ["*a* and *b*", "**a** and *b*", "**a** **b**"],
        ["*a*", "**a**", "* a\n* b", "** ** * *"],
    ),
    ("detectable_format:title", {}, ["<<Title>>\ntext", "text <<a>>"], ["<Title>", "<<>>", "<< >>", "<<a\nb>>"]),
    ("keywords:existence", {"keywords": ["cat", "c++"]}, ["Cats like C++"], ["cats", "a cat, and ccc"]),
    ("keywords:forbidden_words", {"forbidden_words": ["cat", "dog"]}, ["concatenate dogs"], ["A Cat.", "dog-like"]),
    (
        "keywords:frequency",
        {"keyword": "cat", "frequency": 2, "relation": "at least"},
        ["Cat and concatenate"],
        ["cat", "c a t"],
    ),
    ("keywords:frequency", {"keyword": "cat", "frequency": 2, "relation": "less than"}, ["cat", "dog"], ["cat cat"]),
    (
        "keywords:letter_frequency",
        {"letter": "A", "let_frequency": 2, "let_relation": "at least"},
        ["Anna"],
        ["banjo", "b"],
    ),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 2, "let_relation": "at least"}, ["##"], ["#", "a"]),
    ("language:response_language", {"language": "de"}, [_GERMAN, "123"], [_ENGLISH]),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Then"},
        ["One.\n\nthen two.", 'One.\n\n"Then," he said.', "One.\n\nThen's"],
        ["One.\n\nTwo.", "Then.\n\nOne.", "One.\nThen two.", "One.\n\nThen two.\n\nThree.", "\n\nOne.\n\nThen"],
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        ["one\n***\ntwo", "*** one *** two ***"],
        ["one\n\ntwo", "one *** two *** three", "one *** *** two"],
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "less than"},
        ["One sentence.", "Mr. Smith and Dr. Jones came at 3.5 p.m. yesterday", "so it\ngoes"],
        ["One. Two.", "One? (Two.)", 'He said "Stop!" She did.'],
    ),
    (
        "length_constraints:number_words",
        {"num_words": 3, "relation": "at least"},
        ["one two three", "well-known thing", "it's so"],
        ["one two", "... !"],
    ),
    ("punctuation:no_comma", {}, ["one and two"], ["one, two"]),
    (
        "startend:end_checker",
        {"end_phrase": "The End. "},
        ["It was so. the end.", '"The end."'],
        ["The end", "The end.!"],
    ),
    ("startend:quotation", {}, ['"So it goes."', ' "" '], ["So", '"', '"So', "“So”"]),
]
_ANSWERS = [
    pytest.param(name, settings, answer, is_good, id=f"{name}-{answer[:20]!r}")
    for name, settings, good, bad in _CASES
    for is_good, answers in ((True, good), (False, bad))
    for answer in answers
]


@pytest.mark.parametrize(("name", "settings", "answer", "expected"), _ANSWERS)
def test_a_check_tells(name: str, settings: dict[str, Any], answer: str, expected: bool) -> None:
    """Catches a check that is too strict, too lax, or fails on what a model may write."""
    assert follows(name, settings, answer) is expected


def test_every_check_is_tested() -> None:
    assert {name for name, *_ in _CASES} == set(CHECKS)
    assert len(CHECKS) == 25


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_white_space_follows_nothing(name: str) -> None:
    """Catches an empty answer that scores, by having no comma and no forbidden word."""
    settings = next(settings for case, settings, *_ in _CASES if case == name)
    assert not follows(name, settings, " \n ")


def test_strict_and_loose() -> None:
    """Catches a loose score that forgets a form, and scores of a prompt that take one instruction for all."""
    row = {"instruction_id_list": ["startend:quotation", "punctuation:no_comma"], "kwargs": [{}, {"language": None}]}
    instructions = parse_instructions(row)
    framed = score_instructions(instructions, 'Sure, here it is:\n*"So it goes"*\nEnjoy')
    assert (framed.strict, framed.loose) == ((False, False), (True, True))
    assert (framed.prompt_strict, framed.prompt_loose) == (False, True)
    whole = score_instructions(instructions, '"So, so"')
    assert (whole.strict, whole.loose) == ((True, False), (True, False))
    assert (whole.prompt_strict, whole.prompt_loose) == (False, False)
    last = score_instructions(instructions, '"So"\n\nBye')
    assert (last.prompt_strict, last.prompt_loose) == (False, True)


def test_all_prompts_are_read(shared: Path) -> None:
    """Catches settings that the published data has and a check does not take."""
    rows = [json.loads(line) for line in (shared / "data/ifeval/input_data.jsonl").read_text().splitlines()]
    read = [parse_instructions(row) for row in rows]
    assert (len(read), sum(map(len, read))) == (541, 834)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "instruction_id_list must be a list"),
        ({"instruction_id_list": ["startend:quotation"], "kwargs": []}, "an object for each"),
        ({"instruction_id_list": ["a:b"], "kwargs": [{}]}, "no instruction 'a:b'; there are: change_case"),
        ({"instruction_id_list": ["startend:quotation"], "kwargs": [{"a": 1}]}, "takes no settings, and is given a"),
        ({"instruction_id_list": ["detectable_format:number_bullet_lists"], "kwargs": [{}]}, "takes num_bullets"),
        (
            {"instruction_id_list": ["detectable_format:number_bullet_lists"], "kwargs": [{"num_bullets": "3"}]},
            "num_bullets must be a whole number, 0 or more, not '3'",
        ),
        (
            {"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": "cat"}]},
            "a list of one or more texts",
        ),
        (
            {"instruction_id_list": ["length_constraints:number_words"], "kwargs": [{"num_words": 3, "relation": "<"}]},
            "relation must be 'less than' or 'at least', not '<'",
        ),
        (
            {"instruction_id_list": ["language:response_language"], "kwargs": [{"language": "xx"}]},
            "cannot tell language 'xx', only af, ar",
        ),
    ],
)
def test_bad_rows(row: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        parse_instructions(row)
    assert said in str(error.value)


@pytest.mark.parametrize("name", ["language:response_language", "change_case:english_capital"])
@pytest.mark.usefixtures("without_langdetect")
def test_languages_that_cannot_be_told(name: str) -> None:
    """Catches an instruction that counts as not followed because a library is missing."""
    settings = {"language": "de"} if name.startswith("language") else {}
    with pytest.raises(InputError, match=r"needs langdetect, to tell languages: .* install .*\[ifeval\]"):
        parse_instructions({"instruction_id_list": [name], "kwargs": [settings]})


def test_the_language_is_the_same_each_time() -> None:
    """Catches an answer that scores now and then: the library draws at random."""
    text = "la casa blanca de mi padre no"
    assert len({follows("language:response_language", {"language": "es"}, text) for _ in range(50)}) == 1


@pytest.mark.parametrize("text", ["[" * 200_000, "\n" * 200_000 + "x", "*" * 200_000, ("a." * 100_000), "<<" * 100_000])
def test_hostile_answers_take_no_time(text: str) -> None:
    """Catches a pattern that reads the rest of an answer again from every character: that takes minutes."""
    start = time.process_time()
    for name, settings, *_ in _CASES:
        follows(name, settings, text)
    assert time.process_time() - start < 10.0


@pytest.fixture
def without_langdetect(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    original = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("langdetect"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    for module in [module for module in sys.modules if module.startswith("langdetect")]:
        monkeypatch.delitem(sys.modules, module)
    _detectors.cache_clear()
    monkeypatch.setattr(builtins, "__import__", refuse)
    yield
    monkeypatch.undo()
    _detectors.cache_clear()

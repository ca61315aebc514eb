"""The bundled conversations, read as a user would read them and checked without the generator's own answers."""

import ast
import json
import re
from typing import Any

import pytest
from scripts.tiny_world import SKILLS, conversations, documents
from scripts.tiny_world.knowledge import all_facts
from scripts.write_tiny_data import NUM_TEST, NUM_TRAIN, SEED, rows

from cookhouse.assets import data_file

POLITE = re.compile(r"Of course! (?:The answer is|Here you are:) (.*)", re.DOTALL)
ARITHMETIC = (
    (re.compile(r"(\d+) (?:\+|plus) (\d+)\?|Add (\d+) and (\d+)\."), "add"),
    (re.compile(r"(\d+) (?:-|minus) (\d+)\?"), "subtract"),
    (re.compile(r"(\d+) (?:\*|times) (\d+)\?|Multiply (\d+) by (\d+)\."), "multiply"),
)
FACTORS = {"cm mm": 10, "m cm": 100, "km m": 1000, "kg g": 1000, "liters ml": 1000, "dollars cents": 100}
FACTORS |= {"decades years": 10, "centuries years": 100}


def read(name: str) -> list[dict[str, Any]]:
    lines = data_file(f"conversations/{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def turns(name: str) -> list[tuple[str, str]]:
    """Every question and its answer, the polite frame removed."""
    pairs = []
    for row in read(name):
        spoken = [message for message in row["messages"] if message["role"] != "system"]
        for asked, answered in zip(spoken[::2], spoken[1::2], strict=True):
            assert (asked["role"], answered["role"]) == ("user", "assistant")
            framed = POLITE.fullmatch(answered["content"])
            pairs.append((asked["content"], framed[1] if framed else answered["content"]))
    return pairs


def numbers(text: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", text)]


def expected_arithmetic(question: str) -> str | None:
    if match := re.fullmatch(r"Subtract (\d+) from (\d+)\.", question):
        return str(int(match[2]) - int(match[1]))
    for pattern, skill in ARITHMETIC:
        if pattern.search(question):
            a, b = numbers(question)
            return str({"add": a + b, "subtract": a - b, "multiply": a * b}[skill])
    return None


def expected_comparison(question: str) -> str | None:
    if "larger" in question and " Python " not in question:
        return str(max(numbers(question)))
    if "smaller" in question and " Python " not in question:
        return str(min(numbers(question)))
    return None


def expected_conversion(question: str) -> str | None:
    match = (
        re.fullmatch(r"How many (?P<to>\w+) are (?P<n>\d+) (?P<of>\w+)\?", question)
        or re.fullmatch(r"Convert (?P<n>\d+) (?P<of>\w+) to (?P<to>\w+)\.", question)
        or re.fullmatch(r"What is (?P<n>\d+) (?P<of>\w+) in (?P<to>\w+)\?", question)
    )
    if match is None:
        return None
    count, of, to = int(match["n"]), match["of"], match["to"]
    if f"{of} {to}" in FACTORS:
        return f"{count * FACTORS[f'{of} {to}']} {to}"
    whole, rest = divmod(count, FACTORS[f"{to} {of}"])
    assert rest == 0, question
    return f"{whole} {to}"


def expected_words(question: str) -> str | None:
    if match := re.fullmatch(
        r"(?:Sort|Put) these words[^:]*: (.*)\.|What is the alphabetical order of (.*)\?", question
    ):
        return ", ".join(sorted((match[1] or match[2]).split(", ")))
    if match := re.fullmatch(r"(?:Reverse these|Write these|Say the) \w+[^:]*: (.*)", question):
        return " ".join(match[1].split()[::-1])
    if match := re.fullmatch(r".*(?:politely|polite)[:?] (\w+) (.*)\.", question):
        return f"Could you please {match[1].lower()} {match[2]}?"
    if match := re.fullmatch(r".*(?:curtly|curt)[:?] Could you please (\w+) (.*)\?", question):
        return f"{match[1].capitalize()} {match[2]}."
    return None


@pytest.mark.parametrize("name", ["train", "test"])
def test_answers_are_right(name: str) -> None:
    """Catches a template that swaps operands, and a generator that computes one thing and asks another."""
    checked = 0
    for question, answer in turns(name):
        if "(" in question:
            continue
        for expected in (expected_arithmetic, expected_conversion, expected_comparison, expected_words):
            value = expected(question)
            if value is not None:
                assert answer == value, question
                checked += 1
                break
    # Two of ten skills, facts and Python, are checked elsewhere; longer conversations draw all skills evenly.
    assert checked > 0.75 * len(turns(name))


def described(text: str, argument: Any) -> Any:
    """What a function described by `text` gives for `argument`."""
    amounts = numbers(text)
    first = amounts[0] if amounts else 0
    table: dict[str, Any] = {
        "returns the first {n} items of": lambda x: x[:first],
        "without the first": lambda x: x[first:],
        "at index": lambda x: x[first],
        "repeats": lambda x: x * first,
        "is greater than": lambda x: x > first,
        "is less than": lambda x: x < first,
        "equals": lambda x: x == first,
        "remainder": lambda x: x % first,
        "backwards": lambda x: list(reversed(x)),
        "length": len,
        "first item": lambda x: x[0],
        "last item": lambda x: x[len(x) - 1],
        "largest": max,
        "smallest": min,
        "sum of": sum,
        "sorted": sorted,
        "square": lambda x: x**2,
        "unchanged": lambda x: x,
    }
    for phrase, function in table.items():
        if phrase.replace("{n}", str(first)) in text:
            return function(argument)
    value = argument
    for verb, amount in zip(re.findall(r"adds|subtracts|multiplies", text), amounts, strict=True):
        value = {"adds": value + amount, "subtracts": value - amount, "multiplies": value * amount}[verb]
    return value


@pytest.mark.parametrize("name", ["train", "test"])
def test_functions_do_what_they_are_described_to_do(name: str) -> None:
    """Catches an expression that does not belong to its description; only plain expressions are ever evaluated."""
    allowed: tuple[type[ast.AST], ...] = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Subscript)
    allowed += (ast.Slice, ast.Name, ast.Constant, ast.USub, ast.operator, ast.cmpop, ast.expr_context)
    asked = [(question, answer) for question, answer in turns(name) if answer.startswith("def ")]
    assert len(asked) > 15
    for question, answer in asked:
        head, body = answer.split(": return ")
        variable = head[len("def f(") : -1]
        assert head in f"def {question}" or head[4:] in question
        tree = ast.parse(body, mode="eval")
        assert all(isinstance(node, allowed) for node in ast.walk(tree)), answer
        is_list = re.search(r"item|length|backwards|sum of|sorted|repeats", question) is not None
        argument: Any = [(7 * i) % 31 for i in range(30)] if is_list else 12
        functions = {"len": len, "max": max, "min": min, "sum": sum, "sorted": sorted}
        value = eval(compile(tree, "answer", "eval"), {"__builtins__": {}}, functions | {variable: argument})
        does = question.split(f"({variable})", 1)[1]
        assert value == described(does, argument), (question, answer)


def test_files_are_what_the_generator_writes() -> None:
    """Catches data that was edited by hand, or a generator that depends on hash order, platform or library version."""
    for name, count, held_out in (("train", NUM_TRAIN, False), ("test", NUM_TEST, True)):
        written = rows(conversations(count, held_out=held_out, seed=SEED))
        assert data_file(f"conversations/{name}.jsonl").read_bytes() == written.encode()


def test_no_test_problem_is_in_train() -> None:
    """Catches a leak: one problem under two wordings, or in an earlier turn of a longer conversation."""
    held = [problem for row in conversations(NUM_TEST, held_out=True, seed=SEED) for problem in row.problems]
    seen = [problem for row in conversations(NUM_TRAIN, held_out=False, seed=SEED) for problem in row.problems]
    assert not {(p.skill, p.key) for p in held} & {(p.skill, p.key) for p in seen}
    assert not {question for question, _ in turns("test")} & {question for question, _ in turns("train")}


@pytest.mark.slow
def test_no_test_problem_is_in_the_pretraining_text() -> None:
    """Catches documents that show held-out sums or sorted lists, or ask held-out questions."""
    texts = documents(SEED)
    text = "\n".join(next(texts) for _ in range(8000))
    # In code, `x * 3 + 4` is no sum of 3 and 4.
    text = "\n".join(line for line in text.splitlines() if "def " not in line)
    shown = {frozenset(pair) for pair in re.findall(r"(?<!\d)(\d+) (?:\+|plus) (\d+)(?!\d)", text)}
    assert len(shown) > 1000
    for question, answer in turns("test"):
        assert not question[0].isalpha() or re.search(rf"(?<!\w){re.escape(question)}", text) is None
        if match := ARITHMETIC[0][0].search(question):
            assert frozenset(group for group in match.groups() if group) not in shown
        if ", " in answer and "alphabetical" in question:
            assert f"Answer: {answer}\n" not in text
            assert f"gives {answer}." not in text


def test_facts_are_told_as_a_chat_would_answer_and_not_asked() -> None:
    """Catches facts told only after a space: to a tokenizer those are other words than those that begin an answer."""
    for fact in all_facts():
        assert any(statement.endswith(f"\n{fact.answer}") for statement in fact.statements), fact.key
        assert not any(question in statement for question in fact.questions for statement in fact.statements), fact.key


def test_every_skill_is_there_and_test_answers_are_short() -> None:
    """Catches a skill that lost its share, and answers too long for the evaluation's token limit."""
    for name, least in (("train", 450), ("test", 20)):
        skills = [row["skill"] for row in read(name)]
        assert all(skills.count(skill) >= least for skill in SKILLS)
        assert set(skills) == set(SKILLS)
    assert max(len(answer) for _, answer in turns("test")) < 120


def test_train_has_system_prompts_and_longer_conversations() -> None:
    """Catches a generator that only makes single turns."""
    train = read("train")
    assert sum(row["messages"][0]["role"] == "system" for row in train) > 0.15 * len(train)
    assert sum(len(row["messages"]) > 3 for row in train) > 0.1 * len(train)
    assert all(row["messages"][-1]["role"] == "assistant" for row in train)

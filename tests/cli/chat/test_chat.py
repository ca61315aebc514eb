"""A conversation: what is typed, what is said, and what is kept of it."""

import asyncio
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from cookhouse.chat import Message
from cookhouse.cli.chat.commands import HELP, ChatHistory, ChatSession
from cookhouse.cli.chat.screen import Screen, Writer
from cookhouse.data import read_conversations
from cookhouse.errors import InputError, ServiceError
from cookhouse.service.sampling.chat_model import ChatAnswer, ChatModel, SamplingOptions
from cookhouse.service.sampling.sampling_service import SamplingService
from cookhouse.service.sampling.target import Target

DRAW = SamplingOptions(max_tokens=20, temperature=1.0, top_p=1.0, seed=None)


class Script(Screen):
    """Types lines, and keeps what is said."""

    def __init__(self, *lines: str | type[BaseException], has_user: bool = True) -> None:
        self.has_user = has_user
        self.lines = iter(lines)
        self.said: list[str] = []
        self.out = io.StringIO()

    def read(self) -> str | None:
        line = next(self.lines, None)
        if isinstance(line, type):
            raise line
        return line

    def say(self, text: str) -> None:
        self.said.append(text)

    def answer(self) -> Writer:
        return Writer(self.out, None)

    @property
    def answers(self) -> list[str]:
        return self.out.getvalue().splitlines()


class Parrot:
    """Says who it is, what it was asked, how long the conversation is, and how often it was asked that."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def answer(self, messages: Sequence[Message], show: Callable[[Any], None], *, attempt: int = 0) -> ChatAnswer:
        asked = str(messages[-1]["content"])
        if asked == "fail":
            raise InputError("the conversation has 9 tokens")
        if asked == "break":
            show({"type": "text", "text": "so far"})
            raise ServiceError("gone")
        if asked == "wait":
            show({"type": "text", "text": "so far"})
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        text = f"{self.name}: {asked}, {messages[0]['role']} {len(messages)}.{attempt}"
        show({"type": "text", "text": text})
        return ChatAnswer(message={"role": "assistant", "content": text}, text=text, note=None)


class Engines:
    """Opens parrots."""

    async def chat_model(self, target: Target, draw: SamplingOptions) -> Parrot:
        del draw
        if target.model_name == "org/gone":
            raise InputError("there is no such model")
        return Parrot(target.label)


def talk(*lines: str | type[BaseException], has_user: bool = True) -> tuple[Script, ChatHistory]:
    """Hold a conversation of these lines."""
    script, conversation = Script(*lines, has_user=has_user), ChatHistory()
    talking = ChatSession(
        screen=script,
        service=cast("SamplingService", Engines()),
        draw=DRAW,
        registry=None,
        conversation=conversation,
        chat_model=cast("ChatModel", Parrot("A")),
    )
    asyncio.run(talking.go_on())
    return script, conversation


@pytest.mark.parametrize(
    ("lines", "answers"),
    [
        (["hi", "", "you"], ["A: hi, user 1.0", "A: you, user 3.0"]),
        (["/system Be brief.", "hi", "/system", "you"], ["A: hi, system 2.0", "A: you, user 3.0"]),
        (["hi", "/again", "/again"], ["A: hi, user 1.0", "A: hi, user 1.1", "A: hi, user 1.2"]),
        (["hi", "/model org/B", "you"], ["A: hi, user 1.0", "org/B: you, user 3.0"]),
        (["hi", "/clear", "you"], ["A: hi, user 1.0", "A: you, user 1.0"]),
        (["hi", "fail", "you"], ["A: hi, user 1.0", "A: you, user 3.0"]),
        (["//help", "/quit", "you"], ["A: /help, user 1.0"]),
        (["hi", KeyboardInterrupt, "you"], ["A: hi, user 1.0", "A: you, user 3.0"]),
    ],
)  # fmt: skip
def test_what_is_typed_is_done(
    lines: list[Any], answers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Catches a question that failed and stays in the conversation, and a command that is sent to the model.
    monkeypatch.chdir(tmp_path)  # where nobody has run anything
    script, _ = talk(*lines)
    assert [answer for answer in script.answers if answer] == answers


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/help", HELP),
        ("/model", "this is A"),
        ("/model org/gone", "error: there is no such model"),
        ("/nonsense", "error: there is no command /nonsense; /help lists them, and // begins a message with a slash"),
        ("/again", "error: nothing was asked yet; ask first, and /again samples another answer"),
        ("/save", "error: save to which file? as in: /save mine.jsonl"),
        ("/save x.jsonl", "error: the last question has no answer yet: nothing is there to train on"),
        ("fail", "error: the conversation has 9 tokens"),
    ],
)
def test_a_mistake_is_told_and_the_conversation_goes_on(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script, _ = talk(line, "hi")
    assert script.said == [said]
    assert script.answers[-1] == "A: hi, user 1.0"


def test_without_a_user_a_mistake_ends_it() -> None:
    # Catches a script that goes on after its first step has failed.
    with pytest.raises(InputError, match="save to which file"):
        talk("hi", "/save", "you", has_user=False)


def test_without_a_user_a_command_that_there_is_not_is_told_and_the_next_line_read() -> None:
    # Catches a file of questions that ends at the first one that begins with a slash.
    script, _ = talk("hi", "/nonsense", "you", has_user=False)
    assert script.said == [
        "error: there is no command /nonsense; /help lists them, and // begins a message with a slash"
    ]
    assert [answer for answer in script.answers if answer] == ["A: hi, user 1.0", "A: you, user 3.0"]


def test_ctrl_c_stops_an_answer_and_keeps_what_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    before = signal.getsignal(signal.SIGINT)
    try:
        script, conversation = talk("wait", "hi")
    finally:
        signal.signal(signal.SIGINT, before)
    assert script.said == ["(stopped)"]
    assert script.answers == ["so far", "A: hi, user 3.0"]
    assert conversation.turns[1] == {"role": "assistant", "content": "so far"}


def test_what_is_saved_can_be_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    script, conversation = talk("/system Be brief.", "hi 日本", f"/save {path}", "you", f"/save {path}")
    assert [said.split(":")[0] for said in script.said[1:]] == [f"saved as line {n} of {path}" for n in (1, 2)]
    rows = read_conversations(str(path))
    assert [len(row.messages) for row in rows] == [3, 5]
    assert list(rows[1].messages) == list(conversation.messages)
    assert "日本" in path.read_text(encoding="utf-8")


def test_a_save_begins_a_line_of_its_own(tmp_path: Path) -> None:
    # Catches a row on the line of the one before, which an editor has left without its end, and a text whose own line
    # separator is taken for the end of a row.
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}))
    script, _ = talk("one\u2028two\x85three", f"/save {path}", f"/save {path}")
    assert [said.split(":")[0] for said in script.said] == [f"saved as line {n} of {path}" for n in (2, 3)]
    assert [len(row.messages) for row in read_conversations(str(path))] == [2, 2, 2]


@pytest.mark.parametrize("content", [b"mine", b"\xff\xfe\x00"])
def test_a_file_that_holds_something_else_is_left_alone(content: bytes, tmp_path: Path) -> None:
    # Catches also a conversation that ends, unsaved, at a file that is no text.
    (tmp_path / "notes.txt").write_bytes(content)
    script, _ = talk("hi", f"/save {tmp_path / 'notes.txt'}")
    assert "is no JSONL, and is left alone" in script.said[-1]
    assert (tmp_path / "notes.txt").read_bytes() == content


def test_an_answer_that_fails_half_way_ends_its_line() -> None:
    # Catches an error told on the line of the answer, and a terminal that stays dim after a thought.
    script, conversation = talk("break", "hi")
    assert script.said == ["error: gone"]
    assert script.answers == ["so far", "A: hi, user 1.0"]
    assert [turn["role"] for turn in conversation.turns] == ["user", "assistant"]


def test_lines_between_quotation_marks_are_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = 'one\n"""two\n\nthree"""\n"""\nfour\n"""\nlast'
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    screen = Screen()
    assert [screen.read() for _ in range(5)] == ["one", "two\n\nthree", "four", "last", None]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_words_are_not_broken_at_the_edge_of_a_terminal(size: int) -> None:
    # Catches a line broken differently by how the answer came in pieces.
    text = "The water runs down the hill.\n\n  - as 日本 shows\nabcdefghijklmnopqrstuvwxyz end \x1b[2J"
    out = io.StringIO()
    writer = Writer(out, 12)
    for start in range(0, len(text), size):
        writer.write(text[start : start + size])
    writer.close()
    expected = "The water\nruns down\nthe hill.\n\n  - as 日本\nshows\nabcdefghijklmnopqrstuvwxyz\nend \\x1b[2J\n"
    assert out.getvalue() == expected


def test_a_pipe_gets_the_answer_as_it_is_and_no_thinking() -> None:
    out = io.StringIO()
    writer = Writer(out, None)
    writer.write("let me see", is_thinking=True)
    writer.write("a long line of words\x07 ")
    writer.close()
    assert out.getvalue() == "a long line of words\x07 \n"


def test_thinking_stands_apart_on_a_terminal() -> None:
    out = io.StringIO()
    writer = Writer(out, 40)
    writer.write("hm", is_thinking=True)
    writer.write("Yes.")
    writer.close()
    assert out.getvalue() == "\x1b[0m\x1b[2mhm\n\x1b[0mYes.\n"

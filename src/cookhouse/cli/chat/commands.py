"""`cookhouse chat`: takes turns, and does what is typed behind a slash."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cookhouse.cli.models.commands import Registry
from cookhouse.cli.sampling_options import (
    MaxTokens,
    ModelOption,
    RendererOption,
    Seed,
    Temperature,
    TopP,
    WeightsArgument,
    note_of,
)
from cookhouse.cli.verbosity import LogLevel, Verbose
from cookhouse.errors import CookhouseError, InputError
from cookhouse.files import append_row
from cookhouse.service.sampling.chat_model import ChatAnswer, ChatModel, SamplingOptions
from cookhouse.service.sampling.target import Target, find_target

if TYPE_CHECKING:
    from cookhouse.chat import Delta, Message
    from cookhouse.cli.chat.screen import Screen
    from cookhouse.service.sampling.sampling_service import SamplingService


@dataclass(kw_only=True)
class ChatHistory:
    """The conversation so far."""

    system: str | None = None
    turns: "list[Message]" = field(default_factory=list)
    """Of user and assistant; a question that was not answered is the last one."""
    num_draws: int = 0
    """Of the last answer."""

    @property
    def messages(self) -> "Sequence[Message]":
        """All of it, as a model is asked."""
        first: list[Message] = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*first, *self.turns]

    def ask(self, question: str) -> None:
        """Say something; a question before it that was not answered is taken back."""
        if self.turns and self.turns[-1]["role"] == "user":
            self.turns.pop()
        self.turns.append({"role": "user", "content": question})
        self.num_draws = 0

    def ask_again(self) -> None:
        """Take the last answer back.

        Raises:
            InputError: nothing was asked.
        """
        if not self.turns:
            raise InputError("nothing was asked yet; ask first, and /again samples another answer")
        if self.turns[-1]["role"] != "user":
            self.turns.pop()
            self.num_draws += 1

    def answered(self, message: "Message") -> None:
        """Keep an answer, or what there is of one that was stopped."""
        self.turns.append(message)

    def clear(self) -> None:
        """Begin anew, with the same system message."""
        self.turns.clear()

    def save(self, file_name: str) -> str:
        """Append it to a JSONL file that can be trained on, as one line; what to say of that.

        Raises:
            InputError: nothing was answered yet, or the file holds something else.
        """
        if not self.turns or self.turns[-1]["role"] == "user":
            raise InputError("the last question has no answer yet: nothing is there to train on")
        path = Path(file_name).expanduser()
        number = append_row(path, {"messages": list(self.messages)})
        return f"saved as line {number:,} of {path}: cookhouse run supervised dataset_path={path}"


HELP = """\
/system TEXT  set the system message; no text
              takes it away
/model NAME   go on with another model or other
              weights: a run, a tinker:// path,
              a registered model, a base model
/again        draw the last answer anew
/clear        begin anew, with the same system
              message
/save FILE    append the conversation to a JSONL
              file to train on
/help         this
/quit         leave, as does Ctrl-D

Ctrl-C stops an answer. A message of several
lines stands between two lines of three quotation
marks; one that begins with a slash begins with
two."""


def chat(
    weights: WeightsArgument = None,
    model: ModelOption = None,
    renderer: RendererOption = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    max_tokens: MaxTokens = 1024,
    temperature: Temperature = 0.7,
    top_p: TopP = 1.0,
    seed: Seed = None,
    registry: Registry = None,
    verbose: Verbose = False,  # noqa: ARG001  the callbacks of both have set the level
    log_level: LogLevel = None,  # noqa: ARG001
) -> None:
    """Talk with a run, any other weights or a base model.

    Answers are shown as they come. /help lists what can be typed beside messages: the system message, the weights and
    the last answer can be changed, and a conversation be saved to train on. Without a terminal, each line of standard
    input is a message or a command, and answers alone are written to standard output.
    """
    draw = SamplingOptions(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    target = find_target(weights, model, renderer, registry)
    asyncio.run(converse(target, draw, system, registry))


async def converse(target: Target, draw: SamplingOptions, system: str | None, registry: str | None) -> None:
    """Take turns with whoever types until they leave."""
    from cookhouse.cli.chat.screen import Screen
    from cookhouse.service.sampling.sampling_service import SamplingService

    screen = Screen()
    async with SamplingService(say=screen.say) as service:
        session = ChatSession(
            screen=screen,
            service=service,
            draw=draw,
            registry=registry,
            conversation=ChatHistory(system=system),
            chat_model=await service.chat_model(target, draw),
        )
        if screen.has_user:
            screen.say(f"{session.chat_model.name}; /help says what can be typed, Ctrl-D leaves")
        await session.go_on()


@dataclass(kw_only=True)
class ChatSession:
    """A conversation with whoever types."""

    screen: "Screen"
    service: "SamplingService"
    draw: SamplingOptions
    registry: str | None
    conversation: ChatHistory
    chat_model: ChatModel

    async def go_on(self) -> None:
        """Take turns. On a terminal an error is shown, and they go on.

        Raises:
            CookhouseError: something went wrong, and there is no user to show it to.
        """
        while True:
            try:
                line = self.screen.read()
            except KeyboardInterrupt:
                self.screen.say("\n(Ctrl-D or /quit leaves)")
                continue
            if line is None or line.strip() in ("/quit", "/exit"):
                return
            try:
                await self._take(line.strip())
            except CookhouseError as error:
                if not self.screen.has_user:
                    raise
                self.screen.say(f"error: {error}")
            except OSError as error:
                if not self.screen.has_user:
                    raise
                self.screen.say(f"error: {error.strerror}: {error.filename}")

    async def _take(self, line: str) -> None:
        """One message, or one command."""
        if line.startswith("/") and not line.startswith("//"):
            await self._obey(*line.partition(" ")[::2])
        elif line:
            self.conversation.ask(line[1:] if line.startswith("//") else line)
            await self._answer()

    async def _obey(self, command: str, text: str) -> None:
        """One command. An unknown one is reported, and the conversation goes on also where nobody types."""
        text = text.strip()
        match command:
            case "/help":
                self.screen.say(HELP)
            case "/system":
                self.conversation.system = text or None
                self.screen.say("the system message is set" if text else "there is no system message now")
            case "/model":
                await self._switch(text)
            case "/again":
                self.conversation.ask_again()
                if self.draw.temperature == 0:
                    self.screen.say("temperature 0 takes the likeliest token each time; --temperature 0.7 would not")
                await self._answer()
            case "/clear":
                self.conversation.clear()
                self.screen.say("the conversation is empty")
            case "/save":
                if not text:
                    raise InputError("save to which file? as in: /save mine.jsonl")
                self.screen.say(self.conversation.save(text))
            case _:
                self.screen.say(
                    f"error: there is no command {command}; /help lists them, and // begins a message with a slash"
                )

    async def _switch(self, name: str) -> None:
        if not name:
            self.screen.say(f"this is {self.chat_model.name}")
            return
        self.chat_model = await self.service.chat_model(find_target(name, registry=self.registry), self.draw)
        self.screen.say(f"this is {self.chat_model.name} now")

    async def _answer(self) -> None:
        """Answer the last question; Ctrl-C stops that, and what was said until then is kept."""
        from cookhouse.training import service_errors

        writer = self.screen.answer()
        said: list[str] = []

        def show(delta: "Delta") -> None:
            match delta:
                case {"type": "thinking", "thinking": str(thought)}:
                    writer.write(thought, is_thinking=True)
                case {"type": "text", "text": str(text)}:
                    said.append(text)
                    writer.write(text)

        answering = asyncio.ensure_future(
            self.chat_model.answer(self.conversation.messages, show, attempt=self.conversation.num_draws)
        )
        message: Message | None = None
        note: str | None = None
        try:
            with _stopped_by_interrupt(answering), service_errors("sampling"):
                answer = await answering
            message, note = answer.message, note_of(answer)
        except asyncio.CancelledError:
            if not answering.cancelled():
                raise
            message, note = _partial("".join(said)), "stopped"
        finally:
            writer.close()
        if note is not None:
            self.screen.say(f"note: {note}" if note != "stopped" else "(stopped)")
        if message is not None:
            self.conversation.answered(message)


def _partial(text: str) -> "Message | None":
    """The part of an answer that came before it was stopped; None: nothing."""
    return {"role": "assistant", "content": text} if text.strip() else None


@contextlib.contextmanager
def _stopped_by_interrupt(task: "asyncio.Future[ChatAnswer]") -> Iterator[None]:
    """On a terminal, Ctrl-C cancels the task and nothing else."""
    if not sys.stdin.isatty():
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)

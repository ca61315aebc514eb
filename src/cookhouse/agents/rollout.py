"""One rollout of an agent: its calls in order, their limits, and what a call that comes again is.

    request ── ask ──► calls ── next_call ──► environment ── sampled ──► answer ──► request

Lives on the event loop. Calls are answered one after another, in the order in which they came, so that the number of a
call is its place in the rollout.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tinker import ModelInput

from cookhouse.agents.answers import Output, outputs_of
from cookhouse.agents.conversations import Conversations
from cookhouse.agents.refused import check_trainable
from cookhouse.chat import Message, Renderer, ResponseStream, parse_messages, text_of
from cookhouse.dialects.choice import ChatChoice
from cookhouse.dialects.errors import FieldError
from cookhouse.dialects.openai.chat import ChatRequest, given_message
from cookhouse.dialects.openai.chat_answer import message_of
from cookhouse.dialects.openai.fields import check_length, check_letters
from cookhouse.dialects.texts import TokenTexts
from cookhouse.errors import CookhouseError, InputError
from cookhouse.rl import RolloutLimits, TokensWithLogprobs

MAX_CALLS = 1024
"""Calls of a rollout where no `max_turns` is set: no client stops a model that always calls a tool."""
MAX_RECORDED_TOKENS = 2**24
"""Tokens of all prompts and answers of a rollout."""


class AgentError(CookhouseError):
    """An agent failed, took too long, or asked for what it could not have."""


@dataclass(eq=False, kw_only=True)
class Call:
    """A request that is answered once, however often it is sent."""

    body: bytes
    """Digest of what was asked."""
    request: ChatRequest
    messages: Sequence[Message]
    prompt: list[int]
    max_tokens: int | None
    answer: "asyncio.Future[tuple[Output, Output]]"


@dataclass(kw_only=True)
class Rollout:
    """Of one agent, used once."""

    renderer: Renderer
    model_name: str
    """Name that answers are given under, whatever a request asks for."""
    limits: RolloutLimits = field(default_factory=RolloutLimits)
    refusal: str | None = None
    """Why the last call was refused; None: it was answered."""
    num_answered: int = 0
    answer_text: str = ""
    """The last that the model said, in words."""

    def __post_init__(self) -> None:
        self.conversations = Conversations(self.renderer)
        self.texts = TokenTexts(self.renderer.encoder)
        self._waiting: deque[Call] = deque()
        self._unanswered: set[Call] = set()
        self._lost: dict[bytes, Call] = {}
        self._turns: dict[str, Sequence[Mapping[str, Any]]] = {}
        """Conversations up to an answer that has an id, as `/v1/responses` has them."""
        self._has_call = asyncio.Event()
        self._num_calls = 0
        self._num_tool_calls = 0
        self._num_recorded = 0
        self._is_over = False

    # ------------------------------------------------------------------ the agent's side

    def ask(self, body: bytes, request: ChatRequest) -> Call:
        """A call that waits for its answer; the same one for a body whose answer was never read.

        Raises:
            InputError: it cannot be answered, or not any more.
        """
        digest = hashlib.sha256(body).digest()
        lost = None if self._is_over else self._lost.pop(digest, None)
        return lost or self._new_call(digest, request)

    def refuse(self, reason: str) -> None:
        """Note that a call was refused, which is an error of the rollout unless another one follows."""
        if not self._is_over:
            self.refusal = reason

    def lose(self, call: Call) -> None:
        """Note that whoever waited for an answer has gone: the same body again is the same call."""
        self._lost[call.body] = call

    def kept_turns(self, response_id: str | None) -> Sequence[Mapping[str, Any]]:
        """The conversation that ends with an answer; none before the first. Raises `FieldError` for an unknown one."""
        if response_id is None:
            return ()
        if response_id not in self._turns:
            field = "previous_response_id"
            raise FieldError(
                field, f"{field}: this rollout has kept no such response", code="previous_response_not_found"
            )
        return self._turns[response_id]

    def keep_turns(self, response_id: str, turns: Sequence[Mapping[str, Any]]) -> None:
        """Kept as long as the rollout: the limits of calls and tokens bound them."""
        self._turns[response_id] = turns

    def count(self, request: ChatRequest) -> int:
        """The tokens of a prompt that nobody answers. Raises `InputError` where it cannot be written."""
        return self.renderer.build_generation_prompt(request.conversation()).length

    def _new_call(self, digest: bytes, request: ChatRequest) -> Call:
        self._check_limits()
        request.check()
        check_trainable(request, self.renderer)
        messages = request.conversation()
        context = self.limits.max_sequence_tokens
        if context is not None:
            letters = sum(len(text_of(message)) for message in messages)
            check_letters(context, letters, prompt="messages")
        try:
            prompt = self.conversations.prompt(messages)
        except InputError as error:
            raise FieldError("messages", str(error)) from error
        room = None
        if context is not None:
            check_length(context, len(prompt), None, prompt="messages", limit=request.limit_field)
            room = context - len(prompt)
        bounds = [bound for bound in (request.limit, room) if bound is not None]
        call = Call(
            body=digest,
            request=request,
            messages=messages,
            prompt=prompt,
            max_tokens=min(bounds, default=None),
            answer=asyncio.get_running_loop().create_future(),
        )
        self._num_calls += 1
        self._num_recorded += len(prompt)
        self.refusal = None
        self._waiting.append(call)
        self._unanswered.add(call)
        self._has_call.set()
        return call

    def _check_limits(self) -> None:
        limits = self.limits
        if self._is_over:
            raise InputError("the rollout of this address is over; nothing more is answered here")
        most = MAX_CALLS if limits.max_turns is None else limits.max_turns
        if self._num_calls >= most:
            raise InputError(f"a rollout may ask the model {most} times (max_turns), and this one has")
        if limits.max_tool_calls is not None and self._num_tool_calls > limits.max_tool_calls:
            raise InputError(
                f"the model may call tools {limits.max_tool_calls} times (max_tool_calls), and has called them "
                f"{self._num_tool_calls} times"
            )
        if self._num_recorded >= MAX_RECORDED_TOKENS:
            raise InputError(f"a rollout may have {MAX_RECORDED_TOKENS:,} tokens in all its prompts, and this one has")

    # ------------------------------------------------------------------ the environment's side

    async def next_call(self) -> Call:
        """The next call to be answered, once there is one."""
        while not self._waiting:
            self._has_call.clear()
            await self._has_call.wait()
        return self._waiting.popleft()

    def record(self, call: Call, action: TokensWithLogprobs) -> int:
        """Keep what was sampled for a call, and only then let its answer go; the number of its tool calls."""
        partial, whole = outputs_of(action)
        is_single = call.request.choice().is_single
        choice = ChatChoice(self.stream(call), (), self.texts, max_calls=1 if is_single else None)
        told = message_of([*choice.feed(partial.sequences[0]), *choice.finish(is_stopped=not action.is_truncated)])
        [said] = parse_messages([given_message(told)])
        self.conversations.record(call.messages, call.prompt, said, action.tokens)
        self.answer_text = text_of(said)
        self.num_answered += 1
        self._num_tool_calls += choice.num_calls
        self._num_recorded += len(action.tokens)
        self._unanswered.discard(call)
        call.answer.set_result((partial, whole))
        return choice.num_calls

    def stream(self, call: Call) -> ResponseStream:
        """Reads the answer to a call."""
        return self.renderer.stream_response(ModelInput.from_ints(call.prompt))

    def end(self) -> None:
        """Answer nothing any more."""
        self._is_over = True
        for call in self._unanswered:
            call.answer.set_exception(InputError("the rollout of this address is over"))
            call.answer.exception()  # whoever asked may be gone
        self._unanswered.clear()
        self._waiting.clear()

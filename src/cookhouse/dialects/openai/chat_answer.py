"""Answers of a chat as they come and as a whole, which are read in one and the same way."""

import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any

from cookhouse.chat import ResponseStream, ToolCall
from cookhouse.chat.tool_calls import write_arguments
from cookhouse.dialects.choice import ChatChoice, Said
from cookhouse.dialects.logprobs import chat_logprobs, prompt_logprobs, scored_prompt
from cookhouse.dialects.openai.chat import ChatRequest
from cookhouse.dialects.openai.fields import usage
from cookhouse.dialects.sampled import SampleOutput
from cookhouse.dialects.texts import TokenTexts


class ChatAnswer:
    """The answer to one request, of n choices."""

    def __init__(
        self,
        request: ChatRequest,
        *,
        model: str,
        prompt: Sequence[int],
        streams: Sequence[ResponseStream],
        texts: TokenTexts,
    ) -> None:
        """`model` says which weights answer; `prompt` is what was rendered; `streams` read the choices, one each."""
        self._request = request
        self._texts = texts
        self._prompt = [*prompt]
        self._num_sampled = 0
        self._num_reused = 0
        self._head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": model}
        self._choices = [
            ChatChoice(stream, request.stops, texts, max_calls=1 if request.choice().is_single else None)
            for stream in streams
        ]
        self._num_calls = [0] * len(self._choices)
        """Of those that chunks have been made of."""
        self._echoed = request.echoed
        self._is_begun = False

    def chunks(self, output: SampleOutput) -> list[dict[str, Any]]:
        """Chunks to send for an output of the engine."""
        chunks: list[dict[str, Any]] = []
        if not self._is_begun:
            self._is_begun = True
            for index in range(len(self._choices)):
                chunks.append(self._chunk(index, {"role": "assistant", "content": self._echoed}))
            chunks[0] |= self._prompt_tokens()
        for index, (choice, sequence) in enumerate(zip(self._choices, output.sequences, strict=True)):
            if output.is_partial and len(sequence.tokens_T):
                self._num_sampled += len(sequence.tokens_T)
                chunks += self._deltas(index, choice.feed(sequence))
            if (sequence.is_stopped or not output.is_partial) and not choice.is_ended:
                chunks += self._deltas(index, choice.finish(is_stopped=sequence.is_stopped))
                chunks.append(self._chunk(index, {}, finish_reason=choice.finish_reason))
        if not output.is_partial:
            self._count(output)
            if self._request.includes_usage:
                chunks.append({**self._head, "object": "chat.completion.chunk", "choices": [], "usage": self._usage()})
        return chunks

    def whole(self, output: SampleOutput) -> dict[str, Any]:
        """The answer at once."""
        self._count(output)
        choices = []
        for index, (choice, sequence) in enumerate(zip(self._choices, output.sequences, strict=True)):
            said = [*choice.feed(sequence), *choice.finish(is_stopped=sequence.is_stopped)]
            said = [{"type": "text", "text": self._echoed}, *said] if self._echoed else said
            choices.append(
                {
                    "index": index,
                    "message": message_of(said),
                    "logprobs": self._logprobs(choice) if self._request.logprobs else None,
                    "finish_reason": choice.finish_reason,
                    **self._sampled_tokens(choice),
                }
            )
        whole = {**self._head, "object": "chat.completion", "choices": choices, "usage": self._usage()}
        if self._request.prompt_logprobs is not None:
            whole["prompt_logprobs"] = prompt_logprobs(scored_prompt(self._prompt, output))
        return whole | self._prompt_tokens()

    def _deltas(self, index: int, said: Sequence[Said]) -> list[dict[str, Any]]:
        return [self._chunk(index, self._delta(index, one)) for one in said]

    def _delta(self, index: int, said: Said) -> dict[str, Any]:
        if said["type"] == "function":
            self._num_calls[index] += 1
            return {"tool_calls": [{"index": self._num_calls[index] - 1, **_call(said)}]}
        return {"content": said["text"]} if said["type"] == "text" else {"reasoning_content": said["thinking"]}

    def _chunk(self, index: int, delta: dict[str, Any], *, finish_reason: str | None = None) -> dict[str, Any]:
        """A chunk of one choice, with the tokens that no chunk has been sent with."""
        choice = self._choices[index]
        logprobs = None
        if self._request.logprobs and choice.scored:
            logprobs = self._logprobs(choice)
            choice.scored = []
        one = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        one |= self._sampled_tokens(choice)
        chunk = {**self._head, "object": "chat.completion.chunk", "choices": [one]}
        if not self._request.includes_usage:
            return chunk
        return {**chunk, "usage": self._usage() if self._request.counts_usage else None}

    def _logprobs(self, choice: ChatChoice) -> dict[str, Any]:
        return chat_logprobs(choice.scored, self._texts, by_id=bool(self._request.return_tokens_as_token_ids))

    def _prompt_tokens(self) -> dict[str, Any]:
        return {"prompt_token_ids": self._prompt} if self._request.return_token_ids else {}

    def _sampled_tokens(self, choice: ChatChoice) -> dict[str, Any]:
        """The tokens that nothing has been sent with."""
        if not self._request.return_token_ids:
            return {}
        return {"token_ids": choice.next_tokens(), **choice.shaped.next()}

    def _count(self, output: SampleOutput) -> None:
        self._num_sampled = sum(len(sequence.tokens_T) for sequence in output.sequences)
        self._num_reused = output.num_reused_tokens

    def _usage(self) -> dict[str, Any]:
        return usage(len(self._prompt), self._num_sampled, self._num_reused)


def message_of(said: Iterable[Said]) -> dict[str, Any]:
    """The message that parts make up."""
    parts = list(said)
    calls = [_call(one) for one in parts if one["type"] == "function"]
    text = "".join(one["text"] for one in parts if one["type"] == "text")
    message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
    if thinking := "".join(one["thinking"] for one in parts if one["type"] == "thinking"):
        message["reasoning_content"] = thinking
    return {**message, "tool_calls": calls} if calls else message


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call["function"]["name"], "arguments": write_arguments(call["function"]["arguments"])}
    return {"id": call["id"], "type": "function", "function": function}

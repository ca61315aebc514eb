"""A response as it comes, in items, and as a whole, which are read in one and the same way."""

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cookhouse.chat import ResponseStream
from cookhouse.chat.tool_calls import write_arguments
from cookhouse.dialects.choice import ChatChoice, Said, joined
from cookhouse.dialects.logprobs import chat_logprobs
from cookhouse.dialects.openai.chat import ChatRequest
from cookhouse.dialects.openai.chat_answer import message_of
from cookhouse.dialects.openai.responses import ResponsesRequest
from cookhouse.dialects.sampled import SampleOutput
from cookhouse.dialects.texts import TokenTexts

_Event = dict[str, Any]
_EMPTY: Mapping[str, _Event] = {
    "message": {"content": []},
    "reasoning": {"summary": []},
    "function_call": {"arguments": ""},
}
"""Empty fields of an item as it begins, by its type."""
_PARTS = {"message": "content", "reasoning": "summary"}
"""The field of an item that holds its text, by type."""


class ResponsesAnswer:
    """The answer to one request."""

    def __init__(
        self,
        asked: ResponsesRequest,
        request: ChatRequest,
        *,
        model: str,
        prompt: Sequence[int],
        streams: Sequence[ResponseStream],
        texts: TokenTexts,
    ) -> None:
        """`request` is what `asked` is as a chat; the others as of `ChatAnswer`, of one choice."""
        self._asked = asked
        self._namespaces = asked.namespaces
        self._num_prompt = len(prompt)
        self._texts = texts
        max_calls = 1 if request.choice().is_single else None
        self._choice = ChatChoice(streams[0], request.stops, texts, max_calls=max_calls)
        self.id = f"resp_{secrets.token_hex(24)}"
        self._model = model
        self._created_at = int(time.time())
        self._said: list[Said] = []
        self._items: list[_Event] = []
        """Those that are over."""
        self._item: _Event | None = None
        """The one that is not."""
        self._num_events = 0

    @property
    def message(self) -> dict[str, Any]:
        """What was said, as a message of a chat."""
        return message_of(self._said)

    def whole(self, output: SampleOutput) -> dict[str, Any]:
        """The answer at once."""
        (sequence,) = output.sequences
        said = [*self._choice.feed(sequence), *self._choice.finish(is_stopped=sequence.is_stopped)]
        self._events(joined(said))
        self._close()
        return self._ended(output)

    def chunks(self, output: SampleOutput) -> list[_Event]:
        """Events to send for an output of the engine."""
        (sequence,) = output.sequences
        events = [] if self._num_events else self._begin()
        if output.is_partial and len(sequence.tokens_T):
            events += self._events(self._choice.feed(sequence))
        if (sequence.is_stopped or not output.is_partial) and not self._choice.is_ended:
            events += [*self._events(self._choice.finish(is_stopped=sequence.is_stopped)), *self._close()]
        if not output.is_partial:
            response = self._ended(output)
            events.append(self._event(f"response.{response['status']}", response=response))
        return events

    def failed(self, message: str, status: int) -> _Event:
        """The last event of a stream that fails."""
        code = "rate_limit_exceeded" if status == 429 else "server_error"
        return self._event(
            "response.failed", response=self._response("failed", error={"code": code, "message": message})
        )

    def _begin(self) -> list[_Event]:
        response = self._response("in_progress")
        return [self._event(f"response.{kind}", response=response) for kind in ("created", "in_progress")]

    def _events(self, said: Sequence[Said]) -> list[_Event]:
        events: list[_Event] = []
        for one in said:
            self._said.append(one)
            if one["type"] == "function":
                events += [*self._close(), *self._open(self._call_item(one)), *self._called(), *self._close()]
                continue
            kind = "message" if one["type"] == "text" else "reasoning"
            if self._item is None or self._item["type"] != kind:
                events += [*self._close(), *self._open(self._new_item(kind))]
            events.append(self._more(one))
        return events

    def _open(self, item: _Event) -> list[_Event]:
        self._item = item
        events = [self._event("response.output_item.added", **self._at(), item={**item, **_EMPTY[item["type"]]})]
        if item["type"] != "function_call":
            events.append(self._of_part("added", part=_text_item(item["type"])[_PARTS[item["type"]]][0]))
        return events

    def _call_item(self, one: Said) -> _Event:
        item = _call_item(one)
        namespace = self._namespaces.get(item["name"])
        return item if namespace is None else {**item, "namespace": namespace}

    def _new_item(self, kind: str) -> _Event:
        """The handle of reasoning stands for it, and tells nothing of it."""
        item = _text_item(kind)
        is_named = kind == "reasoning" and self._asked.has_handles
        return {**item, "encrypted_content": f"{self.id}.{len(self._items)}"} if is_named else item

    def _more(self, one: Said) -> _Event:
        """More of the text of the item that is open."""
        assert self._item is not None
        assert one["type"] != "function"
        text = one["text"] if one["type"] == "text" else one["thinking"]
        part = self._item[_PARTS[self._item["type"]]][0]
        part["text"] += text
        if one["type"] == "thinking":
            return self._of_text("response.reasoning_summary_text.delta", delta=text)
        return self._of_text("response.output_text.delta", delta=text, logprobs=self._take_logprobs(part))

    def _take_logprobs(self, part: _Event) -> list[dict[str, Any]]:
        """Those that no text was sent with."""
        if not self._asked.has_logprobs:
            return []
        scored, self._choice.scored = self._choice.scored, []
        logprobs: list[dict[str, Any]] = chat_logprobs(scored, self._texts)["content"]
        part["logprobs"] = [*part["logprobs"], *logprobs]
        return logprobs

    def _called(self) -> list[_Event]:
        assert self._item is not None
        name, arguments = self._item["name"], self._item["arguments"]
        kind = "response.function_call_arguments"
        return [
            self._event(f"{kind}.delta", **self._at(), item_id=self._item["id"], delta=arguments),
            self._event(f"{kind}.done", **self._at(), item_id=self._item["id"], name=name, arguments=arguments),
        ]

    def _close(self) -> list[_Event]:
        """The end of the item that is open, if there is one."""
        item = self._item
        if item is None:
            return []
        events: list[_Event] = []
        item["status"] = "completed"
        if item["type"] == "message":
            part = item["content"][0]
            events.append(self._of_text("response.output_text.done", text=part["text"], logprobs=part["logprobs"]))
            events.append(self._of_part("done", part=part))
        elif item["type"] == "reasoning":
            part = item["summary"][0]
            events.append(self._of_text("response.reasoning_summary_text.done", text=part["text"]))
            events.append(self._of_part("done", part=part))
        events.append(self._event("response.output_item.done", **self._at(), item=item))
        self._items.append(item)
        self._item = None
        return events

    def _at(self) -> Mapping[str, int]:
        return {"output_index": len(self._items)}

    def _of_text(self, kind: str, **fields: Any) -> _Event:
        assert self._item is not None
        place = "content_index" if self._item["type"] == "message" else "summary_index"
        return self._event(kind, item_id=self._item["id"], **self._at(), **{place: 0}, **fields)

    def _of_part(self, kind: str, **fields: Any) -> _Event:
        assert self._item is not None
        name = "content_part" if self._item["type"] == "message" else "reasoning_summary_part"
        return self._of_text(f"response.{name}.{kind}", **fields)

    def _event(self, kind: str, **fields: Any) -> _Event:
        self._num_events += 1
        return {"type": kind, "sequence_number": self._num_events - 1, **fields}

    def _ended(self, output: SampleOutput) -> dict[str, Any]:
        (sequence,) = output.sequences
        num_sampled = len(sequence.tokens_T)
        usage = {
            "input_tokens": self._num_prompt,
            "input_tokens_details": {"cached_tokens": output.num_reused_tokens},
            "output_tokens": num_sampled,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self._num_prompt + num_sampled,
        }
        if self._choice.finish_reason == "length":
            return self._response("incomplete", usage=usage, incomplete_details={"reason": "max_output_tokens"})
        return self._response("completed", usage=usage, completed_at=int(time.time()))

    def _response(self, status: str, **fields: Any) -> dict[str, Any]:
        asked = self._asked
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created_at,
            "status": status,
            "model": self._model,
            "output": [*self._items],
            "error": None,
            "incomplete_details": None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata or {},
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": asked.previous_response_id,
            "reasoning": {"effort": None if asked.reasoning is None else asked.reasoning.effort, "summary": None},
            "store": asked.store is not False,
            "temperature": 1.0 if asked.temperature is None else asked.temperature,
            "text": {"format": (asked.text and asked.text.format) or {"type": "text"}},
            "tool_choice": asked.tool_choice or "auto",
            "tools": asked.tools or [],
            "top_logprobs": asked.top_logprobs or 0,
            "top_p": 1.0 if asked.top_p is None else asked.top_p,
            "truncation": "disabled",
            "usage": None,
            **fields,
        }


def _text_item(kind: str) -> _Event:
    if kind == "reasoning":
        summary = [{"type": "summary_text", "text": ""}]
        return {"id": f"rs_{secrets.token_hex(24)}", "type": kind, "summary": summary, "status": "in_progress"}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    return {
        "id": f"msg_{secrets.token_hex(24)}",
        "type": kind,
        "role": "assistant",
        "status": "in_progress",
        "content": [part],
    }


def _call_item(call: Any) -> _Event:
    return {
        "id": f"fc_{secrets.token_hex(24)}",
        "type": "function_call",
        "call_id": call["id"],
        "name": call["function"]["name"],
        "arguments": write_arguments(call["function"]["arguments"]),
        "status": "in_progress",
    }

"""Answers of a model behind an OpenAI-compatible address, by chat completions."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx

from cookhouse.chat import Message, text_of
from cookhouse.errors import InputError, ServiceError
from cookhouse.evals.benchmarks.answerers import AnswerSampling, failed, refuse_choices
from cookhouse.evals.benchmarks.attempts import SampledAnswer

_ATTEMPTS = 5
_FIRST_PAUSE_SECONDS = 0.5
_SHORT_TOKENS = 1024
"""Of one who says little, and may think before."""
_MAX_BODY_BYTES = 64 * 2**20
_REASON_CHARACTERS = 300
_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504}
_OF_THE_REQUEST = {400, 413, 422}
_OF_ALL_REQUESTS = {"max_tokens", "model", "n", "seed", "temperature"}
"""What every request of an evaluation says alike."""


class OpenAIAnswerer:
    """Fits `Answerer`. What is overloaded or broken at the moment is asked again, up to five times in all; a request
    that is refused for what it asks is an answer that failed, but for what all of them ask alike. Close it in the end.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout_seconds: float = 600.0,
        first_pause_seconds: float = _FIRST_PAUSE_SECONDS,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Raises `InputError` if `base_url` is no address."""
        if not base_url.startswith(("http://", "https://")):
            raise InputError(f"{base_url!r} is no address; give one such as http://127.0.0.1:8000/v1")
        self.base_url = base_url
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._model = model
        self._pause_seconds = first_pause_seconds
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        # How many are asked at a time is the evaluation's to say.
        limits = httpx.Limits(max_connections=None)
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout_seconds, limits=limits, transport=transport)

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def __call__(self, messages: Sequence[Message], draw: AnswerSampling) -> Sequence[SampledAnswer]:
        refuse_choices(draw, self._url)
        body = {
            "model": self._model,
            "messages": [{"role": message["role"], "content": text_of(message)} for message in messages],
            "max_tokens": draw.max_tokens,
            "temperature": draw.temperature,
            "seed": draw.seed,
            **({"n": draw.num_samples} if draw.num_samples > 1 else {}),
        }
        response = await self._post(body)
        if response.status_code in _OF_THE_REQUEST and _param(response) in _OF_ALL_REQUESTS:
            raise InputError(f"{self._url} refused what is asked: {_reason(response)}")
        if response.status_code in _OF_THE_REQUEST:
            return failed(f"refused with {response.status_code}: {_reason(response)}", draw)
        if response.status_code != 200:
            raise InputError(
                f"{self._url} refused model {self._model!r} with {response.status_code}: {_reason(response)}; see that "
                "the address, the model and the key in OPENAI_API_KEY are right"
            )
        return self._answers(response, draw)

    async def _post(self, body: dict[str, Any]) -> httpx.Response:
        for attempt in range(_ATTEMPTS):
            is_last = attempt == _ATTEMPTS - 1
            try:
                response = await self._client.post(self._url, json=body)
                if response.status_code not in _AGAIN:
                    return response
                if is_last:
                    raise ServiceError(f"{self._url} failed with {response.status_code}: {_reason(response)}")
            except httpx.InvalidURL as error:
                raise InputError(f"{self._url} is no address: {error}") from error
            except httpx.HTTPError as error:
                if is_last:
                    what = str(error) or type(error).__name__
                    raise ServiceError(f"{self._url} cannot be reached: {what}; see that it runs") from error
            await asyncio.sleep(self._pause_seconds * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _answers(self, response: httpx.Response, draw: AnswerSampling) -> list[SampledAnswer]:
        try:
            if len(response.content) > _MAX_BODY_BYTES:
                raise ValueError(f"the answer has more than {_MAX_BODY_BYTES >> 20} MiB")
            answers = [_answer(choice) for choice in json.loads(response.content)["choices"]][: draw.num_samples]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ServiceError(f"{self._url} did not answer with a chat completion ({error!r})") from error
        missing = draw.num_samples - len(answers)
        return [*answers, *[SampledAnswer(error="the address gave fewer answers than it was asked for")] * missing]


class CompletedBy:
    """Completer of messages one at a time, greedily; fits `cookhouse.rl.MessageCompleter`."""

    def __init__(self, answerer: OpenAIAnswerer) -> None:
        self._answerer = answerer

    async def __call__(self, messages: Sequence[Message]) -> Message:
        """Raises `ServiceError` where there is no answer."""
        [answer] = await self._answerer(messages, AnswerSampling(max_tokens=_SHORT_TOKENS, temperature=0.0, seed=0))
        if answer.error is not None:
            raise ServiceError(f"the judge gave no answer: {answer.error}")
        return {"role": "assistant", "content": answer.text}


def _answer(choice: dict[str, Any]) -> SampledAnswer:
    content = choice["message"].get("content") or ""
    if not isinstance(content, str):
        raise TypeError("content is no text")
    return SampledAnswer(text=content, is_cut=choice.get("finish_reason") == "length")


def _param(response: httpx.Response) -> str | None:
    """Parameter of the request that is at fault, where the answer names it as OpenAI's own does."""
    try:
        param = response.json()["error"]["param"]
    except (ValueError, KeyError, TypeError):
        return None
    return param if isinstance(param, str) else None


def _reason(response: httpx.Response) -> str:
    try:
        body = response.json()
        error = body.get("error", body.get("detail", body))
        reason = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        reason = response.text
    return " ".join(str(reason).split())[:_REASON_CHARACTERS]

"""A model of Inspect AI that samples from weights which a client holds, in their own chat format."""

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import tinker
from inspect_ai.log._samples import sample_active
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    Logprob,
    Logprobs,
    ModelAPI,
    ModelCall,
    ModelOutput,
    ModelUsage,
    TopLogprob,
)
from inspect_ai.tool import ToolChoice, ToolInfo

from cookhouse.chat import Message, Renderer, with_tool_text, with_tools
from cookhouse.errors import InputError
from cookhouse.evals.inspect.messages import to_answer, to_messages, to_schemas
from cookhouse.sampling_client import SampleClient

MAX_TOKENS = 2048
"""Of an answer, unless a task says."""
_MAX_CONNECTIONS = 64
_logger = logging.getLogger(__name__)
_NOT_HERE = ("best_of", "frequency_penalty", "presence_penalty", "logit_bias", "prompt_logprobs", "response_schema")


class OpenWeights(Protocol):
    """Weights that are open."""

    @property
    def client(self) -> SampleClient: ...
    @property
    def renderer(self) -> Renderer: ...
    @property
    def context_tokens(self) -> int | None:
        """Prompt and answer together; None if nobody knows."""


class SampledModel(ModelAPI):
    """Answers with what the weights sample. The seed, the stop sequences, tools and logprobs of a task pass through;
    what cannot be done is refused.
    """

    def __init__(self, model_name: str, asked: OpenWeights | None = None, config: GenerateConfig | None = None) -> None:
        """`asked` is what answers; None where a subclass opens it."""
        super().__init__(model_name, config=config or GenerateConfig())
        self._asked = asked
        self._has_told = False

    async def open(self) -> OpenWeights:
        """Open the weights that answer."""
        assert self._asked is not None
        return self._asked

    async def count_text_tokens(self, text: str) -> int:
        return len((await self.open()).renderer.encoder.encode([text]))

    def max_connections(self) -> int:
        return _MAX_CONNECTIONS

    def collapse_system_messages(self) -> bool:
        return True

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - as Inspect AI names it
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput | tuple[ModelOutput, ModelCall]:
        """The next message.

        Raises:
            InputError: the chat format cannot write the conversation, or a setting cannot be kept to.
        """
        _check(tool_choice, config)
        asked = await self.open()
        messages = to_messages(input)
        if tools and tool_choice != "none":
            messages = with_tools(messages, to_schemas(tools))
        renderer = self._renderer(asked, messages)
        prompt = renderer.build_generation_prompt(messages)
        room = MAX_TOKENS if asked.context_tokens is None else asked.context_tokens - prompt.length
        if room < 1:
            return ModelOutput.from_content(self.model_name, "", stop_reason="model_length")
        params = _params(config, room, renderer)
        response = await self.sample(asked, prompt, params, config)
        choices = [self._choice(renderer, sequence, config) for sequence in response.sequences]
        num_sampled = sum(len(sequence.tokens) for sequence in response.sequences)
        usage = ModelUsage(
            input_tokens=prompt.length, output_tokens=num_sampled, total_tokens=prompt.length + num_sampled
        )
        output = ModelOutput(model=self.model_name, choices=choices, usage=usage)
        request = {"messages": messages, "num_samples": config.num_choices or 1, **params.model_dump()}
        return output, ModelCall.create(request, {"tokens": [list(found.tokens) for found in response.sequences]})

    async def sample(
        self, asked: OpenWeights, prompt: tinker.ModelInput, params: tinker.SamplingParams, config: GenerateConfig
    ) -> tinker.SampleResponse:
        """Sample at the service."""
        given: dict[str, Any] = {"topk_sample_logprobs": config.top_logprobs} if config.top_logprobs else {}
        client: Any = asked.client
        response: tinker.SampleResponse = await client.sample(prompt, config.num_choices or 1, params, **given)
        return response

    def _renderer(self, asked: OpenWeights, messages: Sequence[Message]) -> Renderer:
        """The weights' own chat format, with tools as text where it has no form for them and there are some."""
        if asked.renderer.has_tools or not any(_is_of_tools(message) for message in messages):
            return asked.renderer
        if not self._has_told:
            _logger.warning("the chat format of %s has no form for tools; they are written as text", self.model_name)
            self._has_told = True
        return with_tool_text(asked.renderer)

    def _choice(self, renderer: Renderer, sequence: Any, config: GenerateConfig) -> ChatCompletionChoice:
        message = to_answer(renderer.parse_response(sequence.tokens)[0], self.model_name)
        stop_reason: Any = "stop" if sequence.stop_reason == "stop" else "max_tokens"
        if message.tool_calls:
            stop_reason = "tool_calls"
        elif config.stop_seqs:
            _cut(message, config.stop_seqs)
        logprobs = _logprobs(renderer, sequence) if config.logprobs or config.top_logprobs else None
        return ChatCompletionChoice(message=message, stop_reason=stop_reason, logprobs=logprobs)


def _is_of_tools(message: Message) -> bool:
    return message["role"] == "tool" or bool(message.get("tools")) or bool(message.get("tool_calls"))


def _check(tool_choice: ToolChoice, config: GenerateConfig) -> None:
    if tool_choice not in ("auto", "none"):
        raise InputError(f"tool_choice {tool_choice!r}: a model of cookhouse cannot be made to call a tool; use 'auto'")
    if given := [name for name in _NOT_HERE if getattr(config, name, None) is not None]:
        raise InputError(f"a model of cookhouse takes no {given[0]}; leave it out")


def _params(config: GenerateConfig, room: int, renderer: Renderer) -> tinker.SamplingParams:
    stops = renderer.get_stop_sequences()
    if config.stop_seqs:  # the SDK takes texts or tokens, not both
        spelled = [renderer.encoder.decode([stop]) if isinstance(stop, int) else stop for stop in stops]
        stops = [*map(str, spelled), *config.stop_seqs]
    return tinker.SamplingParams(
        max_tokens=min(config.max_tokens or MAX_TOKENS, room),
        temperature=1.0 if config.temperature is None else config.temperature,
        top_p=1.0 if config.top_p is None else config.top_p,
        top_k=-1 if config.top_k is None else config.top_k,
        seed=_seed(config),
        stop=stops,
    )


def _seed(config: GenerateConfig) -> int | None:
    """The seed that is given, in the first epoch: the same again in another would only give the same answer."""
    sample, seed = sample_active(), config.seed
    return None if seed is None else int(seed + (sample.epoch - 1 if sample is not None else 0))


def _cut(message: ChatMessageAssistant, stops: Sequence[str]) -> None:
    """End the text before the first stop sequence."""
    text = message.text
    message.text = text[: min((place for stop in stops if (place := text.find(stop)) >= 0), default=len(text))]


def _logprobs(renderer: Renderer, sequence: Any) -> Logprobs:
    tokens, values = sequence.tokens, sequence.logprobs or []
    tops = sequence.topk_logprobs or [None] * len(values)
    return Logprobs(content=[_logprob(renderer, *found) for found in zip(tokens, values, tops, strict=False)])


def _logprob(renderer: Renderer, token: int, logprob: float, tops: Any) -> Logprob:
    text = renderer.encoder.decode([token])
    likeliest = [TopLogprob(token=renderer.encoder.decode([other]), logprob=value) for other, value in tops or ()]
    return Logprob(token=text, logprob=logprob, top_logprobs=likeliest or None)

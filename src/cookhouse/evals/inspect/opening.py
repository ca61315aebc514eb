"""Models that answer an evaluation, found by Inspect AI by name, also when it continues a log."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelAPI, ModelOutput, get_model, modelapi
from inspect_ai.tool import ToolChoice, ToolInfo

from cookhouse.chat import with_tools
from cookhouse.errors import InputError
from cookhouse.evals.benchmarks.answerers import Answerer, CompleterAnswerer, SamplingAnswerer
from cookhouse.evals.benchmarks.open_ai import OpenAIAnswerer
from cookhouse.evals.inspect.messages import to_answer, to_messages, to_schemas
from cookhouse.evals.inspect.model import SampledModel
from cookhouse.rl import MessageCompleter

_PROVIDER = "cookhouse_opened"
_OPENED: dict[str, ModelAPI] = {}


class OpenedModel(ModelAPI):
    """The model that is open under this name: Inspect AI makes models anew from the names in a log."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
    ) -> None:
        del base_url, api_key
        super().__init__(model_name, config=config or GenerateConfig())

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - as Inspect AI names it
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> object:
        """The next message, as the open model gives it."""
        return await self._opened.generate(input, tools, tool_choice, config)

    async def count_text_tokens(self, text: str) -> int:
        return int(await self._opened.count_text_tokens(text))

    def max_connections(self) -> int:
        return int(self._opened.max_connections())

    def should_retry(self, ex: Exception) -> object:
        return self._opened.should_retry(ex)

    def collapse_system_messages(self) -> bool:
        return bool(self._opened.collapse_system_messages())

    def tools_required(self) -> bool:
        return bool(self._opened.tools_required())

    def tool_result_images(self) -> bool:
        return bool(self._opened.tool_result_images())

    @property
    def _opened(self) -> ModelAPI:
        return _OPENED[self.model_name]


@contextmanager
def opened(api: ModelAPI) -> Iterator[None]:
    """Have a model be found by its name."""
    _OPENED[api.model_name] = api
    try:
        yield
    finally:
        del _OPENED[api.model_name]


def opened_model(name: str, config: GenerateConfig) -> Model:
    """A model that is open; `config` holds where a task says nothing else."""
    return get_model(f"{_PROVIDER}/{name}", config=config, memoize=False)


class CompletedModel(ModelAPI):
    """Answers with what a completer says, which samples as it was opened to."""

    def __init__(self, model_name: str, completer: MessageCompleter) -> None:
        super().__init__(model_name)
        self._completer = completer

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - as Inspect AI names it
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """The next message."""
        del config
        messages = to_messages(input)
        if tools and tool_choice != "none":
            messages = with_tools(messages, to_schemas(tools))
        return ModelOutput.from_message(to_answer(await self._completer(messages), self.model_name))


async def model_of(answerer: Answerer, name: str) -> ModelAPI:
    """The answerer of benchmarks, as a model of Inspect AI.

    Raises:
        InputError: Inspect AI asks an OpenAI-compatible address by a package that is not installed.
    """
    if isinstance(answerer, SamplingAnswerer):
        return SampledModel(name, answerer)
    if isinstance(answerer, CompleterAnswerer):
        return CompletedModel(name, answerer.completer)
    assert isinstance(answerer, OpenAIAnswerer)
    return await asyncio.to_thread(_at_address, answerer.base_url, name)


def _at_address(base_url: str, name: str) -> ModelAPI:
    try:
        # Its own servers ask for some key, others for none.
        key = os.environ.get("OPENAI_API_KEY") or "none"
        return get_model(f"openai-api/cookhouse/{name}", base_url=base_url, api_key=key, memoize=False).api
    except Exception as error:  # of Inspect AI, in words for people
        raise InputError(f"Inspect AI cannot ask {base_url}: {error}; it needs the package openai") from error


@modelapi(name=_PROVIDER)
def _opened_provider() -> type[ModelAPI]:
    return OpenedModel

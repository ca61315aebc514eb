"""Weights as a model of lm-evaluation-harness: `python -m cookhouse.harnesses.lm_eval run --model cookhouse ...`.

The harness loads no plug-ins of installed packages: importing this module registers the model `cookhouse`.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import tinker
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs, postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from cookhouse.chat import parse_messages
from cookhouse.errors import InputError, ServiceError
from cookhouse.harnesses.background import BackgroundWeights
from cookhouse.sampling_client import sample_one
from cookhouse.service.sampling.chat_model import ChatModel

_T = TypeVar("_T")
_Pair = tuple[Any, list[int], list[int]]
"""What was asked, its context and its continuation."""

_CONTEXT_TOKENS = 2048
"""Of a model of which nobody knows more, as the harness assumes."""
_IGNORED = ("batch_size", "max_batch_size", "device")
"""What the harness gives every model: batches and devices are the service's."""
_KNOWN = {"temperature", "top_p", "top_k", "do_sample"}


@register_model("cookhouse")
class CookhouseLM(TemplateLM):
    """Scores and continues texts with weights by any name: a run, a checkpoint, a registered model or a base model.

    Texts become tokens as the harness's own `hf` model makes them, so that both are asked the same.
    """

    def __init__(
        self,
        weights: str,
        *,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        max_concurrent: int = 64,
        seed: int = 0,
        registry: str | None = None,
        **others: Any,
    ) -> None:
        """`max_length`: tokens that a text may have, the first of which a longer one loses; default: what the model
        takes. `seed`: of samples, where a task asks for them.

        Raises:
            InputError, ServiceError: the weights cannot be opened, or an argument is unknown.
        """
        super().__init__()
        if unknown := sorted(set(others) - set(_IGNORED)):
            raise InputError(
                f"--model cookhouse takes no argument {unknown[0]!r}; it takes weights, max_length, max_gen_toks, "
                "max_concurrent, seed and registry"
            )
        self._background = BackgroundWeights(str(weights), registry=registry)
        self._weights: ChatModel = self._background.open().result()
        self.tokenizer: Any = self._weights.renderer.encoder.tokenizer
        self._client: Any = self._weights.client
        # A scored text has one token more than the model reads, and the service samples one after it.
        self.max_length = max_length or (self._weights.context_tokens or _CONTEXT_TOKENS) - 2
        self.max_gen_toks = max_gen_toks
        self._max_concurrent = max_concurrent
        self._seed = seed

    def close(self) -> None:
        """Stop the local engine, if one was started; the end of the program does so, too."""
        self._background.close()

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        first = self.tokenizer.bos_token_id
        return self.eot_token_id if first is None else int(first)

    @property
    def tokenizer_name(self) -> str:
        return self._weights.name.replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The name of the chat format, by which the harness distinguishes stored requests."""
        return f"cookhouse renderer {type(self._weights.renderer).__name__}" if chat_template else None

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The prompt that the weights' own chat format makes of messages, as text; without `add_generation_prompt`
        the last message is the beginning of the answer.
        """
        messages = parse_messages(chat_history)
        if add_generation_prompt:
            prompt = self._weights.renderer.build_generation_prompt(messages)
        else:
            begun = chat_history[-1]["content"]
            prompt = self._weights.renderer.build_generation_prompt(messages[:-1], prefill=begun)
        return str(self.tokenizer.decode(prompt.to_ints(), skip_special_tokens=False))

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Tokens of a text, with the first token that its tokenizer adds unless the text has it."""
        if add_special_tokens is None:
            add_special_tokens = not string.startswith(str(self.tokenizer.decode([self.prefix_token_id])))
        return list(self.tokenizer.encode(string, add_special_tokens=add_special_tokens))

    def _loglikelihood_tokens(
        self, requests: list[_Pair], disable_tqdm: bool = False, **_others: Any
    ) -> list[tuple[float, bool]]:
        """For each continuation, the sum of its tokens' logprobs, and whether each is the likeliest."""
        scores = self._all("scored", [self._score(context, end) for _, context, end in requests], disable_tqdm)
        for (asked, _, _), score in zip(requests, scores, strict=True):
            if asked is not None:
                self.cache_hook.add_partial("loglikelihood", asked, score)
        return scores

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Of whole texts, in windows as long as the model takes, each token once."""
        texts = [request.args[0] for request in requests]
        windows = [self._windows(text) for text in texts]
        pairs: list[_Pair] = [(None, *window) for group in windows for window in group]
        scores = iter(self._loglikelihood_tokens(pairs, disable_tqdm))
        totals = [math.fsum(next(scores)[0] for _ in group) for group in windows]
        for text, total in zip(texts, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), total)
        return totals

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """A continuation of each context, up to the first of its stop sequences.

        Raises:
            InputError: a task sets something of sampling that cannot be set here.
        """
        asked = [request.args for request in requests]
        texts = self._all("continued", [self._continue(*args) for args in asked], disable_tqdm)
        for args, text in zip(asked, texts, strict=True):
            self.cache_hook.add_partial("generate_until", args, text)
        return texts

    async def _score(self, context: Sequence[int], continuation: Sequence[int]) -> tuple[float, bool]:
        num_scored = len(continuation)
        tokens = [*context, *continuation][-(self.max_length + 1) :]
        if num_scored > len(tokens) - 1:
            raise InputError(
                f"a continuation has {num_scored:,} tokens; the model takes {self.max_length:,} with its context"
            )
        response = await self._client.sample(
            tinker.ModelInput.from_ints(tokens),
            1,
            tinker.SamplingParams(max_tokens=1),
            include_prompt_logprobs=True,
            topk_prompt_logprobs=1,
            prompt_logprobs_last_n=num_scored,
        )
        logprobs, likeliest = response.prompt_logprobs, response.topk_prompt_logprobs
        if logprobs is None or likeliest is None:
            raise ServiceError("the service gave no logprobs of a prompt; lm-evaluation-harness needs them")
        scored = [value for value in logprobs[-num_scored:] if value is not None]
        if len(scored) != num_scored:
            raise ServiceError(f"the service gave {len(scored)} logprobs of a continuation of {num_scored} tokens")
        is_greedy = all(
            bool(top) and top[0][0] == token
            for top, token in zip(likeliest[-num_scored:], tokens[-num_scored:], strict=True)
        )
        return math.fsum(scored), is_greedy

    async def _continue(self, context: str, settings: Mapping[str, Any]) -> str:
        given: dict[str, Any] = dict(normalize_gen_kwargs(dict(settings), self.max_gen_toks))
        end = str(self.tokenizer.decode([self.eot_token_id], skip_special_tokens=False))
        stops = [stop for stop in handle_stop_sequences(given.pop("until", None), eos=end) if stop]
        max_tokens = int(given.pop("max_gen_toks"))
        if unknown := sorted(set(given) - _KNOWN):
            raise InputError(
                f"a task sets {unknown[0]} = {given[unknown[0]]!r}; of sampling it can set temperature, top_p and top_k"
            )
        room = self.max_length - max_tokens
        if room < 1:
            raise InputError(f"a task asks for {max_tokens:,} tokens of the {self.max_length:,} that the model takes")
        params = tinker.SamplingParams(
            max_tokens=max_tokens,
            temperature=float(given.get("temperature") or 0.0),
            top_p=float(given.get("top_p") or 1.0),
            top_k=int(given.get("top_k") or -1),
            seed=self._seed,
            stop=stops,
        )
        prompt = tinker.ModelInput.from_ints(self.tok_encode(context)[-room:])
        sequence = await sample_one(self._client, prompt, params)
        text = str(self.tokenizer.decode(sequence.tokens, skip_special_tokens=True))
        return str(postprocess_generated_text(text, stop=stops, think_end_token=None))

    def _windows(self, text: str) -> list[tuple[list[int], list[int]]]:
        windows = get_rolling_token_windows(
            token_list=self.tok_encode(text),
            prefix_token=self.prefix_token_id,
            max_seq_len=self.max_length,
            context_len=1,
        )
        return [make_disjoint_window(window) for window in windows]

    def _all(self, what: str, works: Sequence[Awaitable[_T]], disable_tqdm: bool) -> list[_T]:
        with tqdm(total=len(works), desc=f"Texts {what}", disable=disable_tqdm) as bar:
            return self._background.submit(_gather(works, self._max_concurrent, bar.update)).result()


async def _gather(works: Iterable[Awaitable[_T]], at_a_time: int, on_done: Callable[[], Any]) -> list[_T]:
    from cookhouse.training import service_errors

    slots = asyncio.Semaphore(at_a_time)

    async def one(work: Awaitable[_T]) -> _T:
        async with slots:
            with service_errors("an evaluation"):
                result = await work
            on_done()
            return result

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(work)) for work in works]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [task.result() for task in tasks]

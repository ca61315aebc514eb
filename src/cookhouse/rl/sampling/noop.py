"""Completers that make their answers up."""

import zlib
from collections.abc import Callable, Sequence

import tinker

from cookhouse.chat import Message, text_of
from cookhouse.rl.sampling.sampler import StopCondition, TokensWithLogprobs


class NoopTokenCompleter:
    """Fits `cookhouse.rl.TokenCompleter`: says a token of the prompt, chosen by the seed."""

    synthetic = True

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    async def __call__(self, prompt: tinker.ModelInput, stop: StopCondition) -> TokensWithLogprobs:
        """One continuation, of one token. It ends there, whatever the stop condition is."""
        del stop
        tokens = prompt.to_ints()
        return TokensWithLogprobs(tokens=[tokens[_number(self._seed, tokens) % len(tokens)]], maybe_logprobs=None)


class NoopMessageCompleter:
    """Fits `cookhouse.rl.MessageCompleter`: yes or no, or A or B where it is asked for that, by the seed and what was
    said last; and that it is made up.
    """

    synthetic = True

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    async def __call__(self, messages: Sequence[Message]) -> Message:
        """An answer of a few words."""
        last = text_of(messages[-1]) if messages else ""
        words = ("A", "B") if "A, B or Tie" in last else ("Yes", "No")
        word = words[_number(self._seed, last) % 2]
        return {"role": "assistant", "content": f"{word}. (synthetic)"}


def noop_completer(seed: int = 0) -> Callable[[str], NoopMessageCompleter]:
    """Opens a completer for the name of any model."""

    def open_completer(name: str) -> NoopMessageCompleter:
        del name
        return NoopMessageCompleter(seed)

    open_completer.synthetic = True  # type: ignore[attr-defined]
    return open_completer


def _number(seed: int, said: object) -> int:
    return zlib.crc32(f"{seed} {said}".encode())

"""Suite that completers of both kinds pass."""

import asyncio
from collections.abc import Sequence

import tinker

from cookhouse.chat import Message
from cookhouse.rl import MessageCompleter, TokenCompleter
from cookhouse.testing.contract import Contract, require


def _conversations() -> list[list[Message]]:
    return [
        [{"role": "user", "content": "Is it larger than 3?"}],
        [
            {"role": "system", "content": "Answer with one word."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": "And now?"},
        ],
    ]


class TokenCompleterContract(Contract[TokenCompleter]):
    """The suite of `cookhouse.rl.TokenCompleter`."""

    prompt: Sequence[int] = tuple(range(20, 36))
    """Tokens that can be completed."""

    def test_gives_tokens_with_or_without_logprobs(self) -> None:
        answer = asyncio.run(self.make()(self._prompt(), []))
        require(all(isinstance(token, int) and token >= 0 for token in answer.tokens), "tokens are whole numbers")
        logprobs = answer.maybe_logprobs
        if logprobs is not None:
            require(len(logprobs) == len(answer.tokens), "there is a logprob for each token, or none at all")
            require(all(value <= 0 for value in logprobs), "logprobs are at most 0")

    def test_nothing_follows_the_token_to_stop_at(self) -> None:
        free = asyncio.run(self.make()(self._prompt(), [])).tokens
        require(len(free) > 0, "a prompt gets an answer")
        answer = list(asyncio.run(self.make()(self._prompt(), [free[0]])).tokens)
        require(free[0] not in answer[:-1], f"nothing follows the token to stop at, {free[0]}, in {answer}")

    def test_completes_several_at_once(self) -> None:
        async def complete() -> int:
            completer = self.make()
            return len(await asyncio.gather(*(completer(self._prompt(), []) for _ in range(4))))

        require(asyncio.run(complete()) == 4, "prompts may be completed side by side")

    def _prompt(self) -> tinker.ModelInput:
        return tinker.ModelInput.from_ints(list(self.prompt))


class MessageCompleterContract(Contract[MessageCompleter]):
    """The suite of `cookhouse.rl.MessageCompleter`."""

    def test_answers_as_the_assistant(self) -> None:
        for messages in _conversations():
            answer = asyncio.run(self.make()(messages))
            require(answer.get("role") == "assistant", f"the answer is the assistant's, not {answer.get('role')!r}")
            content = answer.get("content")
            require(isinstance(content, str | list), f"the answer has text or parts, not {type(content).__name__}")

    def test_leaves_the_messages_alone(self) -> None:
        messages = _conversations()[1]
        asyncio.run(self.make()(messages))
        require(messages == _conversations()[1], "the messages that it is given stay as they are")

    def test_answers_several_at_once(self) -> None:
        async def answer() -> list[Message]:
            completer = self.make()
            return list(await asyncio.gather(*(completer(messages) for messages in _conversations() * 2)))

        roles = {message["role"] for message in asyncio.run(answer())}
        require(roles == {"assistant"}, "conversations may be answered side by side")

"""The suites of completers and evaluators: kept by ours, and each broken promise is caught."""

import random
from collections.abc import Sequence

import tinker

from cookhouse.assets import TINY_MODEL
from cookhouse.chat import Message
from cookhouse.data import build_renderer, read_conversations
from cookhouse.evals import Evaluator, ExactMatchEvaluator, Metrics, NoopEvaluator, TrainingClientEvaluator
from cookhouse.evals.evaluator import ForwardClient
from cookhouse.rl import (
    ClientTokenCompleter,
    MessageCompleter,
    NoopMessageCompleter,
    NoopTokenCompleter,
    RenderedMessageCompleter,
    StopCondition,
    TokenCompleter,
    TokensWithLogprobs,
)
from cookhouse.testing import EvaluatorContract, MessageCompleterContract, TokenCompleterContract, failures_of
from cookhouse.training import FakeSamplingClient, FakeService


def _client() -> FakeSamplingClient:
    import numpy as np

    return FakeSamplingClient(FakeService(), np.zeros(512))


class TestClientTokens(TokenCompleterContract):
    def make(self) -> TokenCompleter:
        return ClientTokenCompleter(_client(), max_tokens=4)


class TestNoopTokens(TokenCompleterContract):
    def make(self) -> TokenCompleter:
        return NoopTokenCompleter()


class TestRenderedMessages(MessageCompleterContract):
    def make(self) -> MessageCompleter:
        renderer = build_renderer(TINY_MODEL, "qwen3_instruct")
        return RenderedMessageCompleter(ClientTokenCompleter(_client(), max_tokens=4), renderer)


class TestNoopMessages(MessageCompleterContract):
    def make(self) -> MessageCompleter:
        return NoopMessageCompleter()


class TestNoopEvaluator(EvaluatorContract):
    def make(self) -> Evaluator:
        return NoopEvaluator(seed=1)


class TestExactMatch(EvaluatorContract):
    def make(self) -> Evaluator:
        path = self.folder() / "two.jsonl"
        path.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "c", "completion": "d"}\n')
        renderer = build_renderer(TINY_MODEL, "qwen3_instruct")
        return ExactMatchEvaluator(read_conversations(path), renderer, max_tokens=4)


def test_broken_token_completers_are_caught() -> None:
    class Goes(TokenCompleterContract):
        def make(self) -> TokenCompleter:
            async def complete(prompt: tinker.ModelInput, stop: StopCondition) -> TokensWithLogprobs:
                del stop
                return TokensWithLogprobs(tokens=prompt.to_ints(), maybe_logprobs=[0.5])

            return complete

    assert failures_of(Goes()) == {
        "test_gives_tokens_with_or_without_logprobs": "there is a logprob for each token, or none at all",
        "test_nothing_follows_the_token_to_stop_at": (
            f"nothing follows the token to stop at, 20, in {list(range(20, 36))}"
        ),
    }


def test_broken_message_completers_are_caught() -> None:
    class Speaks(MessageCompleterContract):
        def make(self) -> MessageCompleter:
            async def answer(messages: Sequence[Message]) -> Message:
                messages[0]["content"] = "changed"
                return {"role": "user", "content": "yes"}

            return answer

    assert failures_of(Speaks()) == {
        "test_answers_as_the_assistant": "the answer is the assistant's, not 'user'",
        "test_answers_several_at_once": "conversations may be answered side by side",
        "test_leaves_the_messages_alone": "the messages that it is given stay as they are",
    }


def test_broken_evaluators_are_caught() -> None:
    class Draws(EvaluatorContract):
        def make(self) -> Evaluator:
            chance = random.Random(0)

            class Draw(TrainingClientEvaluator):
                async def __call__(self, client: ForwardClient) -> Metrics:
                    await client.optim_step(tinker.AdamParams())  # type: ignore[attr-defined]
                    return {"a score": chance.random()}

            return Draw()

    failures = failures_of(Draws())
    assert failures["test_measures"] == "metrics have names without spaces, unlike 'a score'"
    assert "the same weights give the same figures" in failures["test_the_same_weights_give_the_same_figures"]
    assert failures["test_leaves_the_model_alone"] == "an evaluator only samples, and asks forward; not optim_step"

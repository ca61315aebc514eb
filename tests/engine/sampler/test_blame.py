"""A sample that cannot be drawn fails by itself: the others give what they give without it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import SampleOutput, SampleRequest
from cookhouse.engine.engine import SampleFailure
from cookhouse.engine.sampler import Sampler
from cookhouse.engine.sampler.choose import choose
from cookhouse.engine.sampler.scheduler import Piece
from cookhouse.engine.sampler.scoring import PromptScores
from tests.engine.sampler.test_sampler import Ask, ask

__all__ = ["ask"]

BAD_T = np.array([13, 13, 13])


def _drain(engine: TorchEngine, *requests: SampleRequest) -> dict[str, SampleOutput | SampleFailure]:
    for request in requests:
        engine.submit_sample(request)
    outputs: dict[str, SampleOutput | SampleFailure] = {}
    while engine.has_samples():
        outputs |= {output.request_id: output for output in engine.step_samples()}
    return outputs


def _break_passes(engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = engine._samplers[next(iter(engine._samplers))]._runner.run

    def fail(pieces: Sequence[Piece], *arguments: Any, **settings: Any) -> Any:
        if any(np.array_equal(piece.sequence.request.prompt_T, BAD_T) for piece in pieces):
            raise RuntimeError("13 is bad luck")
        return run(pieces, *arguments, **settings)

    monkeypatch.setattr(engine._samplers[next(iter(engine._samplers))]._runner, "run", fail)


def _break_scores(_engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    add = PromptScores.add

    def fail(self: Any, head: Any, piece: Piece, *arguments: Any) -> None:
        if np.array_equal(piece.sequence.request.prompt_T, BAD_T):
            raise RuntimeError("13 is bad luck")
        add(self, head, piece, *arguments)

    monkeypatch.setattr(PromptScores, "add", fail)


def _break_choices(_engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(logits_BV: Any, choices: Sequence[Any]) -> Any:
        if any(choice.top_k == 13 for choice in choices):
            raise RuntimeError("13 is bad luck")
        return choose(logits_BV, choices)

    monkeypatch.setattr("cookhouse.engine.sampler.draw.choose", fail)


def _break_stops(_engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = Sampler._ends_in_stop_string

    def fail(self: Any, sequence: Any) -> bool:
        if len(sequence.tokens) > 6 and np.array_equal(sequence.request.prompt_T, BAD_T):
            raise RuntimeError("13 is bad luck")
        return ends(self, sequence)

    monkeypatch.setattr(Sampler, "_ends_in_stop_string", fail)


@pytest.mark.slow
@pytest.mark.parametrize("break_one", [_break_passes, _break_scores, _break_choices, _break_stops])
def test_one_that_fails_leaves_the_others_as_they_are(
    engine: TorchEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch, break_one: Callable[..., None]
) -> None:
    """Would catch one request that ends the samples of every tenant."""
    good = [ask(f"good{seed}", seed=seed, num_samples=2, prompt_logprobs=True) for seed in range(3)]
    bad = ask("bad", prompt_T=BAD_T, num_samples=2, top_k=13, prompt_logprobs=True)
    expected = _drain(engine, *good)
    (own,) = engine._samplers.values()
    break_one(engine, monkeypatch)
    outputs = _drain(engine, good[0], bad, *good[1:])
    failure = outputs.pop("bad")
    assert isinstance(failure, SampleFailure)
    assert "13 is bad luck" in str(failure.error)
    assert set(outputs) == set(expected)
    for name, output in outputs.items():
        other = expected[name]
        assert isinstance(output, SampleOutput)
        assert isinstance(other, SampleOutput)
        for one, two in zip(output.sequences, other.sequences, strict=True):
            assert one.tokens_T.tolist() == two.tokens_T.tolist()
            np.testing.assert_allclose(one.logprobs_T, two.logprobs_T, atol=1e-4)  # passes of other shapes round apart
        assert output.prompt_logprobs_T is not None
        assert np.isfinite(output.prompt_logprobs_T[1:]).all()
    assert own.num_free_blocks == own._scheduler.blocks.num_blocks


def test_a_sampler_that_fails_leaves_those_of_other_base_models_alone(engine: TorchEngine, ask: Ask) -> None:
    """Would catch the samples of all base models ended by what happens to one."""

    class Broken:
        """A sampler whose every step fails."""

        has_work = True
        unused_bytes = 0
        base = None

        def step_bytes(self, _base: object) -> int:
            return 0

        def step(self) -> list[SampleOutput]:
            raise RuntimeError("13 is bad luck")

        def fail_all(self, error: Exception) -> list[SampleFailure]:
            self.has_work = False
            return [SampleFailure(request_id="other", error=error)]

    engine._samplers["broken"] = Broken()  # type: ignore[assignment]
    outputs = _drain(engine, ask("mine"))
    assert isinstance(outputs["mine"], SampleOutput)
    assert isinstance(outputs["other"], SampleFailure)


def test_a_stop_that_no_text_can_hold_stops_nothing(engine: TorchEngine, ask: Ask) -> None:
    """Would catch half a character, which JSON can name, that ends the samples of every tenant."""
    outputs = _drain(engine, ask("half", stop=["\ud83d"]), ask("other"))
    assert all(isinstance(output, SampleOutput) for output in outputs.values())

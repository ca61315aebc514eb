"""An engine that says what a test has it say."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tests.server.fake_engine import FakeEngine

from cookhouse.engine.contract import BaseModelInfo, SampledSequence, SampleOutput, SampleRequest


@dataclass
class _Running:
    request: SampleRequest
    num_told: int = 0


class ScriptedEngine(FakeEngine):
    """Sample i of a request has the tokens of answer i, one a step; each ends as if by a stop token, but where
    `max_tokens` is shorter. `requests` are those that came.
    """

    def __init__(self, answers: Sequence[Sequence[int]], context: int = 4096) -> None:
        super().__init__()
        self._context = context
        self._answers = answers
        self._asked: list[_Running] = []
        self.requests: list[SampleRequest] = []

    def load_base_model(self, name: str) -> BaseModelInfo:
        return replace(super().load_base_model(name), vocab_size=2**20, max_context_tokens=self._context)

    def submit_sample(self, request: SampleRequest) -> None:
        self.requests.append(request)
        self._asked.append(_Running(request))

    def cancel_sample(self, request_id: str) -> None:
        self.calls.append(("cancel_sample", request_id))
        self._asked = [one for one in self._asked if one.request.request_id != request_id]

    def has_samples(self) -> bool:
        return bool(self._asked)

    def step_samples(self) -> Sequence[SampleOutput]:
        outputs = []
        for running in list(self._asked):
            request, step = running.request, running.num_told
            running.num_told += 1
            if request.is_streamed:
                newest = [self._part(request, index, step, step + 1) for index in range(request.num_samples)]
                if any(len(sequence.tokens_T) for sequence in newest):
                    outputs.append(SampleOutput(request_id=request.request_id, sequences=newest, is_partial=True))
                    continue
            self._asked.remove(running)
            whole = [self._part(request, index, 0, None) for index in range(request.num_samples)]
            outputs.append(SampleOutput(request_id=request.request_id, sequences=whole))
        return outputs

    def _part(self, request: SampleRequest, index: int, start: int, stop: int | None) -> SampledSequence:
        answer = list(self._answers[index % len(self._answers)])
        tokens = answer[: request.max_tokens]
        part = tokens[start:stop]
        return SampledSequence(
            tokens_T=np.array(part, np.int32),
            logprobs_T=np.full(len(part), -0.5, np.float32),
            is_stopped=tokens == answer and bool(part) and (stop is None or stop >= len(tokens)),
        )

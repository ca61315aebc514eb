"""A teacher's answers to the datums that train on them: the prompt weighs nothing, and every token of the answer 1.

Legend: T positions of a datum, K tokens that the teacher finds most likely at each.
"""

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.chat import Renderer
from cookhouse.data import shifted_datum
from cookhouse.errors import InputError, ServiceError
from cookhouse.sampling_client import TopKClient
from cookhouse.telemetry import Telemetry
from cookhouse.training.clients.session import service_errors
from cookhouse.training.work import Assembled
from cookhouse.workflows.distillation.samples import (
    TeacherAnswer,
    TeacherQuestion,
    TeacherSampler,
    count_failures,
    refuse_all_failed,
)


@dataclass(frozen=True, kw_only=True)
class QuestionBatch:
    """Questions of one step, in one epoch."""

    questions: Sequence[TeacherQuestion]
    epoch: int


class QuestionDataset:
    """Batches of questions, in an order that the seed and the epoch decide; what does not fill another makes a last,
    smaller one. Raises `InputError` where there are none.
    """

    def __init__(self, questions: Sequence[TeacherQuestion], *, batch_size: int, seed: int) -> None:
        if not questions:
            raise InputError("there is no prompt to ask the teacher; see what the data holds")
        self.questions = questions
        self._batch_size = batch_size
        self._seed = seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Put them into an epoch's order."""
        self._epoch = epoch
        self._order = list(range(len(self.questions)))
        random.Random(f"{self._seed}/{epoch}").shuffle(self._order)

    def get_batch(self, index: int) -> QuestionBatch:
        """A batch of the present epoch."""
        chosen = self._order[index * self._batch_size : (index + 1) * self._batch_size]
        return QuestionBatch(questions=[self.questions[i] for i in chosen], epoch=self._epoch)

    def __len__(self) -> int:
        return -(-len(self.questions) // self._batch_size)


class AnswerAssembler:
    """The assembler of batches of questions. The teacher is asked while the batch before is trained on."""

    def __init__(
        self,
        ask: TeacherSampler,
        renderer: Renderer,
        telemetry: Telemetry,
        *,
        max_length: int,
        is_verbatim: bool,
        targets: "TeacherTargets | None" = None,
    ) -> None:
        """`is_verbatim`: the tokens that were sampled are trained on, and not what the renderer makes of their text."""
        self._ask = ask
        self._renderer = renderer
        self._telemetry = telemetry
        self._max_length = max_length
        self._is_verbatim = is_verbatim
        self._targets = targets

    async def __call__(self, batch: QuestionBatch) -> Assembled[None]:
        """A datum for each answer that did not fail, with `teacher_logprobs` where there are some.

        Raises:
            InputError: every answer of the batch failed.
            ServiceError: the teacher gave no targets.
        """
        with self._telemetry.span("teacher_inference"):
            answers = await self._ask(batch.questions, batch.epoch)
        said = [answer for of_question in answers for answer in of_question]
        refuse_all_failed(said, "to the prompts of a step")
        with self._telemetry.span("build_distill_datums"):
            data_D = [
                datum
                for question, of_question in zip(batch.questions, answers, strict=True)
                for answer in of_question
                if answer.failed is None and (datum := self._datum(question, answer)) is not None
            ]
        if not data_D:
            raise InputError(
                f"max_length={self._max_length} leaves nothing of any answer of a step; set it higher, or leave out "
                "long prompts"
            )
        metrics = count_failures(said)
        metrics["distill/cut_to_nothing"] = metrics["distill/samples"] - metrics["distill/dropped"] - len(data_D)
        if self._targets is not None:
            with self._telemetry.span("teacher_inference"):
                data_D = await self._targets(data_D)
        return Assembled(data_D=data_D, payload=None, metrics=metrics)

    def _datum(self, question: TeacherQuestion, answer: TeacherAnswer) -> tinker.Datum | None:
        """None where the cut leaves nothing of the answer."""
        prompt = list(question.student_tokens)
        said = answer.tokens if self._is_verbatim else self._rendered(question, answer.text)
        tokens = [*prompt, *said][: self._max_length]
        if len(tokens) <= len(prompt):
            return None
        weights_T = np.array([0.0] * len(prompt) + [1.0] * (len(tokens) - len(prompt)), dtype=np.float32)
        datum = shifted_datum(np.array(tokens, dtype=np.int64), weights_T, "none")
        if not self._is_verbatim or len(answer.logprobs) != len(answer.tokens):
            return datum
        logprobs_T = np.array([*[0.0] * len(prompt), *answer.logprobs][1 : len(tokens)], dtype=np.float32)
        inputs = {**datum.loss_fn_inputs, "teacher_logprobs": tinker.TensorData.from_numpy(logprobs_T)}
        return tinker.Datum(model_input=datum.model_input, loss_fn_inputs=inputs)

    def _rendered(self, question: TeacherQuestion, text: str) -> list[int]:
        return self._renderer.build_response([*question.messages, {"role": "assistant", "content": text}])


class TeacherTargets:
    """Tokens that the teacher finds most likely at each position of an answer, in place of the one in the answer.

    The targets and weights of a datum become (T, K): the K most likely tokens, and their probabilities, made to sum to
    1 over the K. `cross_entropy` of these has, by the student, the gradient of the forward divergence from that
    distribution, and differs from it by the teacher's entropy alone.
    """

    def __init__(self, client: TopKClient, name: str, k: int) -> None:
        self._client = client
        self._name = name
        self._k = k

    async def __call__(self, data_D: Sequence[tinker.Datum]) -> list[tinker.Datum]:
        """The same datums with these targets. Raises `ServiceError` where a teacher gives none."""
        try:
            async with asyncio.TaskGroup() as tasks:
                asking = [tasks.create_task(self._of(datum)) for datum in data_D]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        return [task.result() for task in asking]

    async def _of(self, datum: tinker.Datum) -> tinker.Datum:
        targets_T = datum.loss_fn_inputs["target_tokens"].to_numpy()
        sequence = tinker.ModelInput.from_ints([*datum.model_input.to_ints(), int(targets_T[-1])])
        params = tinker.SamplingParams(max_tokens=1, temperature=1.0, seed=0)
        with service_errors(f"asking the teacher {self._name}"):
            response = await self._client.sample(
                sequence, 1, params, include_prompt_logprobs=True, topk_prompt_logprobs=self._k
            )
        ranked = response.topk_prompt_logprobs
        if ranked is None or len(ranked) != targets_T.size + 1:
            raise ServiceError(
                f"the teacher {self._name} gave no most likely tokens of a prompt; set teacher_top_k=0, or take one "
                "whose service does"
            )
        tokens_TK, weights_TK = self._soft(ranked[1:])
        weights_TK *= datum.loss_fn_inputs["weights"].to_numpy()[:, None]
        return tinker.Datum(
            model_input=datum.model_input,
            loss_fn_inputs={
                "target_tokens": tinker.TensorData.from_numpy(tokens_TK),
                "weights": tinker.TensorData.from_numpy(weights_TK.astype(np.float32)),
            },
        )

    def _soft(
        self, ranked_T: Sequence[Sequence[tuple[int, float]] | None]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        tokens_TK = np.zeros((len(ranked_T), self._k), dtype=np.int64)
        weights_TK = np.zeros((len(ranked_T), self._k))
        for position, ranked in enumerate(ranked_T):
            likely = [(token, logprob) for token, logprob in (ranked or ())[: self._k] if math.isfinite(logprob)]
            if not likely:
                raise ServiceError(f"the teacher {self._name} found no token likely at position {position + 1}")
            p_K = np.exp(np.array([logprob for _, logprob in likely]))
            tokens_TK[position, : len(likely)] = [token for token, _ in likely]
            weights_TK[position, : len(likely)] = p_K / p_K.sum()
        return tokens_TK, weights_TK

"""A teacher's answers to the datums that train on them, and the loss of these: the prompt weighs nothing, and every
token of the answer 1; or its most likely tokens at each position are the targets.

Legend: T positions of a datum, K tokens that the teacher finds most likely at each.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.chat import Message, Renderer
from cookhouse.data import shifted_datum
from cookhouse.errors import InputError, ServiceError
from cookhouse.sampling_client import TopKClient
from cookhouse.telemetry import Telemetry, keys
from cookhouse.training import Answered, Assembled, Objective, ServiceLoss, answered_datums, service_errors
from cookhouse.workflows.distillation.questions import QuestionBatch, TeacherQuestion
from cookhouse.workflows.distillation.samples import (
    DROPPED,
    SAMPLES,
    TeacherAnswer,
    TeacherSampler,
    count_failures,
    refuse_all_failed,
)

FORWARD_KL = "train/forward_kl"


class AnswerAssembler:
    """The assembler of batches of questions. The teacher is asked while the batch before is trained on."""

    def __init__(
        self,
        ask: TeacherSampler,
        telemetry: Telemetry,
        *,
        max_length: int,
        renderer: Renderer | None = None,
        targets: "TeacherTargets | None" = None,
    ) -> None:
        """`renderer` writes the text of an answer anew; None: the very tokens that were sampled are trained on."""
        self._ask = ask
        self._telemetry = telemetry
        self._max_length = max_length
        self._renderer = renderer
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
        metrics["distill/cut_to_nothing"] = metrics[SAMPLES] - metrics[DROPPED] - len(data_D)
        if self._targets is not None:
            with self._telemetry.span("teacher_inference"):
                data_D = await self._targets(data_D)
        return Assembled(data_D=data_D, payload=None, metrics=metrics)

    def _datum(self, question: TeacherQuestion, answer: TeacherAnswer) -> tinker.Datum | None:
        """None where the cut leaves nothing of the answer."""
        prompt, said = list(question.student_tokens), answer.tokens
        if self._renderer is not None:
            message: Message = {"role": "assistant", "content": answer.text}
            said = self._renderer.build_response([*question.row.prompt, message])
        tokens = [*prompt, *said][: self._max_length]
        if len(tokens) <= len(prompt):
            return None
        weights_T = np.array([0.0] * len(prompt) + [1.0] * (len(tokens) - len(prompt)), dtype=np.float32)
        datum = shifted_datum(np.array(tokens, dtype=np.int64), weights_T, "none")
        if self._renderer is not None or len(answer.logprobs) != len(answer.tokens):
            return datum
        logprobs_T = np.array([*[0.0] * len(prompt), *answer.logprobs][1 : len(tokens)], dtype=np.float32)
        inputs = {**datum.loss_fn_inputs, "teacher_logprobs": tinker.TensorData.from_numpy(logprobs_T)}
        return tinker.Datum(model_input=datum.model_input, loss_fn_inputs=inputs)


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


def taught_objective(*, has_teacher_logprobs: bool) -> Objective[None]:
    """Cross-entropy, −Σ w · lp over the targets: of what the teacher says (https://arxiv.org/abs/1606.07947), or, with
    its most likely tokens as targets, of its distribution (https://arxiv.org/abs/1503.02531). `has_teacher_logprobs`:
    those of the answers are of what was sampled from, at temperature 1.
    """
    return Objective(
        loss=ServiceLoss(name="cross_entropy"), metrics=lambda parts: taught_metrics(parts, has_teacher_logprobs)
    )


def taught_metrics(parts: Answered[Any], has_teacher_logprobs: bool = True) -> dict[str, float]:
    """`train/loss`, a mean over the tokens of answers in nats, and token counts; and `train/forward_kl`, the divergence
    of the student from the teacher at these tokens: exactly that from its K most likely tokens where these are the
    targets, else an estimate by what it sampled, if its logprobs are there.
    """
    loss = divergence = 0.0
    num_trained = num_compared = 0
    for datum, fields in answered_datums(parts):
        weights = datum.loss_fn_inputs["weights"].to_numpy().astype(np.float64)
        logprobs = fields["logprobs"].to_numpy().astype(np.float64).reshape(weights.shape)
        trained = weights != 0
        nll = -float(np.sum(weights[trained] * logprobs[trained]))
        count = int(np.count_nonzero(trained.any(axis=-1) if weights.ndim == 2 else trained))
        loss, num_trained = loss + nll, num_trained + count
        if weights.ndim == 2:
            divergence += nll + float(np.sum(weights[trained] * np.log(weights[trained])))
            num_compared += count
        elif has_teacher_logprobs and "teacher_logprobs" in datum.loss_fn_inputs:
            teacher = datum.loss_fn_inputs["teacher_logprobs"].to_numpy().astype(np.float64)
            divergence += float(np.sum((teacher - logprobs)[trained]))
            num_compared += count
    return {
        keys.TRAIN_LOSS: loss / num_trained,
        **({FORWARD_KL: divergence / num_compared} if num_compared else {}),
        keys.TRAIN_TOKENS: float(sum(datum.model_input.length for work, _ in parts for datum in work.data_D)),
        keys.TRAIN_TRAINED_TOKENS: float(num_trained),
    }

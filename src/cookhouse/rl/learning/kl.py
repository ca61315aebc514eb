"""Divergence of the weights that sampled from the weights that train, or from a reference; figures and penalty.

q is the logprob recorded when a token was sampled, lp its logprob under other weights, d = q − lp. Every mean is over
the sampled (masked) tokens of all datums.

Legend: T positions of a datum, D datums, M the sampled tokens of all datums end to end, S those of one.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import tinker
from numpy.typing import ArrayLike, NDArray

from cookhouse.errors import InputError
from cookhouse.rl.learning.advantages import discounted_future_sum
from cookhouse.rl.learning.assembly import with_advantages
from cookhouse.telemetry import keys


def sampling_metrics(data_D: Sequence[tinker.Datum]) -> dict[str, float]:
    """`optim/entropy`: −mean q in nats, an unbiased estimate at temperature 1. Nothing if no token was sampled."""
    q_M = _sampled(data_D, [datum.loss_fn_inputs["logprobs"].to_numpy() for datum in data_D])
    return {keys.ENTROPY: float(-q_M.mean())} if q_M.size else {}


def kl_metrics(
    data_D: Sequence[tinker.Datum], logprobs_D_T: Sequence[ArrayLike], *, suffix: str = ""
) -> dict[str, float]:
    """`optim/kl_sample_train_v1` = mean d and `v2` = ½ mean d², in nats, with lp as the trainer gave it.

    `suffix` is appended, such as `_post` for lp after the step. Nothing if no token was sampled.

    Raises:
        InputError: logprobs that do not match the datums.
    """
    d_M = _log_ratios(data_D, logprobs_D_T)
    if not d_M.size:
        return {}
    return {
        f"{keys.SAMPLER_KL}{suffix}": float(d_M.mean()),
        f"optim/kl_sample_train_v2{suffix}": float(0.5 * np.mean(d_M**2)),
    }


def movement_metrics(
    data_D: Sequence[tinker.Datum], first_D_T: Sequence[ArrayLike], last_D_T: Sequence[ArrayLike]
) -> dict[str, float]:
    """`optim/kl_ppo_epochs_v1` and `v2`, as those of `kl_metrics`, of the trainer's first logprobs less its last.

    Nothing if no token was sampled; errors as above.
    """
    d_M = _sampled(data_D, first_D_T) - _sampled(data_D, last_D_T)
    if not d_M.size:
        return {}
    return {keys.EPOCHS_KL: float(d_M.mean()), "optim/kl_ppo_epochs_v2": float(0.5 * np.mean(d_M**2))}


def clip_metrics(
    data_D: Sequence[tinker.Datum],
    logprobs_D_T: Sequence[ArrayLike],
    *,
    low: float,
    high: float,
    is_per_datum: bool = False,
) -> dict[str, float]:
    """`optim/clip_frac`: share of sampled tokens whose ratio exp(lp − q) is below `low` or above `high`.

    Nothing if no token was sampled; errors as above. Such a ratio would be clipped, whether or not the sign of the
    advantage makes the clipped side count. With `is_per_datum` the ratio of every token is that of its datum, exp of
    the mean of lp − q over the datum's sampled tokens, as gspo has it.
    """
    d_M = _log_ratios(data_D, logprobs_D_T)
    if is_per_datum:
        counts_D = [int((datum.loss_fn_inputs["mask"].to_numpy() > 0).sum()) for datum in data_D]
        parts_D = np.split(d_M, np.cumsum(counts_D)[:-1])
        d_M = np.concatenate([np.full(part.size, part.mean()) for part in parts_D if part.size] or [d_M])
    ratio_M = np.exp(-d_M)
    return {keys.CLIP_SHARE: float(np.mean((ratio_M < low) | (ratio_M > high)))} if ratio_M.size else {}


def kl_penalty(
    data_D: Sequence[tinker.Datum],
    reference_D_T: Sequence[ArrayLike],
    *,
    coef: float,
    gamma: float = 0.0,
    is_centered: bool = True,
) -> tuple[list[tinker.Datum], dict[str, float]]:
    """Datums with coef · mask · (mean d − d) added to their advantages, d against the reference's logprobs.

    Without `is_centered` it is −coef · mask · d, for advantages whose mean is subtracted afterwards: with `gamma` the
    two differ, since sums of a mean grow with the tokens that are left.

    With `gamma` above 0 each token gets Σ γ^k of its own term and those k positions on, observations counted among the
    positions; the sum is masked again, since observations have no advantage. The figure is `optim/kl_reference` = mean
    d in nats. Where no token was sampled there is nothing to penalize, and no figure.

    Raises:
        InputError: logprobs that do not match the datums.
    """
    d_M = _log_ratios(data_D, reference_D_T)
    if not d_M.size:
        return list(data_D), {}
    mean = float(d_M.mean())
    baseline = mean if is_centered else 0.0
    penalized = []
    for datum, reference_T in zip(data_D, reference_D_T, strict=True):
        mask_T = datum.loss_fn_inputs["mask"].to_numpy().astype(np.float64)
        d_T = datum.loss_fn_inputs["logprobs"].to_numpy().astype(np.float64) - np.asarray(reference_T, dtype=np.float64)
        # Where nothing was sampled d means nothing, and may be NaN: chosen, not multiplied.
        term_T = np.where(mask_T > 0, coef * (baseline - d_T), 0.0)
        if gamma > 0:
            term_T = np.where(mask_T > 0, discounted_future_sum(term_T, gamma), 0.0)
        penalized.append(with_advantages(datum, datum.loss_fn_inputs["advantages"].to_numpy() + term_T))
    return penalized, {"optim/kl_reference": mean}


TeacherTerm: TypeAlias = Callable[[NDArray[np.float64], NDArray[np.float64]], ArrayLike]
"""What a teacher adds to the advantages of the S sampled tokens of a datum, in their order: (S,), of their logprobs in
nats under the weights that sampled them, (S,), and under the teacher, (S,).
"""


def teacher_log_ratio(student_S: NDArray[np.float64], teacher_S: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much likelier the teacher finds each token, −d: advantages whose policy gradient is that of the reverse
    divergence (https://thinkingmachines.ai/blog/on-policy-distillation).
    """
    return teacher_S - student_S


def teacher_advantages(
    data_D: Sequence[tinker.Datum],
    teacher_D_T: Sequence[ArrayLike],
    coefs_D: Sequence[float],
    *,
    gamma: float = 0.0,
    term: TeacherTerm = teacher_log_ratio,
) -> list[tinker.Datum]:
    """Datums with coef · `term` added to their advantages, against a teacher's logprobs, which stand next to them as
    `teacher_logprobs`. `gamma` as in `kl_penalty`.

    Raises:
        InputError: logprobs that do not match the datums, or a term that is not one finite number for each token.
    """
    _log_ratios(data_D, teacher_D_T)
    taught = []
    for datum, teacher, coef in zip(data_D, teacher_D_T, coefs_D, strict=True):
        is_sampled_T, teacher_T = datum.loss_fn_inputs["mask"].to_numpy() > 0, np.asarray(teacher, dtype=np.float64)
        student_T = datum.loss_fn_inputs["logprobs"].to_numpy().astype(np.float64)
        term_S = np.asarray(term(student_T[is_sampled_T], teacher_T[is_sampled_T]), dtype=np.float64)
        if term_S.shape != (is_sampled_T.sum(),) or not np.isfinite(term_S).all():
            raise InputError(
                f"a teacher's term has the shape {term_S.shape} for {is_sampled_T.sum()} sampled tokens, or something "
                "in it that is no number; return a finite number for each"
            )
        term_T = np.zeros(teacher_T.shape)
        term_T[is_sampled_T] = coef * term_S
        if gamma > 0:
            term_T = np.where(is_sampled_T, discounted_future_sum(term_T, gamma), 0.0)
        taught_T = np.where(is_sampled_T, teacher_T, 0.0).astype(np.float32)
        datum = with_advantages(datum, datum.loss_fn_inputs["advantages"].to_numpy() + term_T)
        inputs = {**datum.loss_fn_inputs, "teacher_logprobs": tinker.TensorData.from_numpy(taught_T)}
        taught.append(tinker.Datum(model_input=datum.model_input, loss_fn_inputs=inputs))
    return taught


def divergence_by_position(data_D: Sequence[tinker.Datum]) -> list[NDArray[np.float64]]:
    """Of datums with `teacher_logprobs`, each: d of its sampled tokens, in their order."""
    return [
        (datum.loss_fn_inputs["logprobs"].to_numpy() - datum.loss_fn_inputs["teacher_logprobs"].to_numpy())[
            datum.loss_fn_inputs["mask"].to_numpy() > 0
        ].astype(np.float64)
        for datum in data_D
    ]


def _log_ratios(data_D: Sequence[tinker.Datum], logprobs_D_T: Sequence[ArrayLike]) -> NDArray[np.float64]:
    q_M = _sampled(data_D, [datum.loss_fn_inputs["logprobs"].to_numpy() for datum in data_D])
    return q_M - _sampled(data_D, logprobs_D_T)


def _sampled(data_D: Sequence[tinker.Datum], values_D_T: Sequence[ArrayLike]) -> NDArray[np.float64]:
    """Values at the sampled tokens of all datums, float64."""
    if len(data_D) != len(values_D_T):
        raise InputError(f"there are {len(data_D)} datums and logprobs of {len(values_D_T)}; they must match")
    parts = [np.zeros(0)]
    for index, (datum, values) in enumerate(zip(data_D, values_D_T, strict=True)):
        mask_T, values_T = datum.loss_fn_inputs["mask"].to_numpy(), np.asarray(values, dtype=np.float64)
        if mask_T.shape != values_T.shape:
            raise InputError(f"datum {index} has {mask_T.size} targets and {values_T.size} logprobs; they must match")
        parts.append(values_T[mask_T > 0])
    return np.concatenate(parts)

"""Pairs measured without training on them: requested at once, read later.

Legend: P pairs, D datums, T positions.
"""

from collections.abc import Awaitable, Callable, Sequence

from cookhouse.settings import PairLossSettings
from cookhouse.training.clients.client import TrainingClient
from cookhouse.workflows.preference.custom import pair_logprobs, pair_metrics
from cookhouse.workflows.preference.dataset import Pair, interleaved
from cookhouse.workflows.preference.losses import PAIR_LOSSES
from cookhouse.workflows.preference.reference import Reference

_CHUNK = 32


def measure_pairs(
    client: TrainingClient, pairs: Sequence[Pair], reference: Reference, settings: PairLossSettings
) -> Callable[[], Awaitable[dict[str, float]]]:
    """Requests logprobs under the present weights by `forward`, which leaves no gradient. What is returned reads them:
    `pair_metrics` over all pairs.
    """
    chunks = [pairs[start : start + _CHUNK] for start in range(0, len(pairs), _CHUNK)]
    asked = [client.forward(interleaved(chunk), "cross_entropy") for chunk in chunks]

    async def read() -> dict[str, float]:
        reference_P2 = await reference.logprobs(pairs)
        outputs = [fields for pending in asked for fields in (await pending).loss_fn_outputs]
        logprobs_D_T = [fields["logprobs"].to_torch() for fields in outputs]
        loss = PAIR_LOSSES.find(settings.loss_fn)
        found = pair_logprobs(interleaved(pairs), logprobs_D_T, reference_P2)
        return pair_metrics(loss, settings, found, float(loss.function(found, settings).mean()))

    return read

"""Rules of the hosted service about the data of a pass."""

import asyncio
from collections.abc import Iterator

import numpy as np

from cookhouse.engine.contract import ForwardBackward
from cookhouse.server.access.hosted_rules import EMPTY_CHUNK, NON_FINITE, PROMPT_TOO_LONG, Breach, HostedRules
from cookhouse.server.requests.fair_lock import FairLock
from cookhouse.server.sessions.sessions import Model
from cookhouse.server.wire import TrainingHead, has_empty_chunk

_INLINE_BYTES = 64 * 2**10


class DataRules:
    """Lives on the event loop."""

    def __init__(self, rules: HostedRules, reading: FairLock) -> None:
        self._rules = rules
        self._reading = reading

    async def check(self, model: Model, context: int, head: TrainingHead, request: ForwardBackward) -> str | None:
        """Why the future of a pass is to fail, in the hosted service's words; None: it is to run. `context`: tokens
        that the base model takes.

        Raises:
            AsHostedError: the pass is refused.
        """
        if request.num_bytes <= _INLINE_BYTES:
            found = self._broken(context, head, request)
        else:
            async with self._reading.hold(model.owner):
                found = await asyncio.to_thread(self._broken, context, head, request)
        self._rules.enforce(model.session_id, found)
        failing = next((breach for breach in found if breach.rule.status is None), None)
        return failing.text if failing is not None and self._rules.is_strict else None

    def _broken(self, context: int, head: TrainingHead, request: ForwardBackward) -> list[Breach]:
        found = [EMPTY_CHUNK.broken()] if has_empty_chunk(head) else []
        found += _too_long(request, context)
        if self._rules.is_strict:  # else the engine refuses it, in words of its own
            found += _not_finite(request)
        return found


def _too_long(request: ForwardBackward, context: int) -> Iterator[Breach]:
    for index, datum in enumerate(request.data_D):
        if (tokens := len(datum.tokens_T)) > context:
            yield PROMPT_TOO_LONG.broken(what=f"datum {index}", tokens=tokens, context=context)
            return


def _not_finite(request: ForwardBackward) -> Iterator[Breach]:
    for index, datum in enumerate(request.data_D):
        for name, values in datum.loss_fn_inputs.items():
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                yield NON_FINITE.broken(what=f"{name} of datum {index}")
                return

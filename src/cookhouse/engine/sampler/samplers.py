"""The samplers of an engine, and the memory that their caches and packed weights take."""

import logging
import math
from collections import UserDict
from collections.abc import Callable, Collection
from functools import partial

from cookhouse.engine.budget import Budget
from cookhouse.engine.contract import CacheUse, SampleOutput
from cookhouse.engine.engine import SampleFailure
from cookhouse.engine.host_memory import show_bytes
from cookhouse.engine.memory import cache_bytes
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.sampler.native import DecodeKernel
from cookhouse.engine.sampler.sampler import Sampler
from cookhouse.engine.switches import is_on

_PACKED_SHARE = 0.5
"""Of the memory that is spare, the most that packed weights may take in addition to their originals."""
_log = logging.getLogger(__name__)


class Samplers(UserDict[str, Sampler]):
    """Samplers by what they sample from: a base model, or a snapshot of all weights.

    What the cache of each will still take is promised to it as long as it is here. Those without work make way.
    """

    def __init__(self, budget: Budget, max_cache_bytes: int | None) -> None:
        """`max_cache_bytes` bounds the key-value cache of each; None: by the memory that is free as it grows."""
        self._budget = budget
        self._max_cache_bytes = max_cache_bytes
        self._step_bytes: dict[str, int] = {}
        """Of each, one of which steps at a time."""
        step_bytes = self._step_bytes  # without the samplers: a cycle would keep those that are dropped
        budget.watch("pass", f"samplers {id(self)}", lambda: max(step_bytes.values(), default=0))
        super().__init__()

    def __setitem__(self, key: str, sampler: Sampler) -> None:
        super().__setitem__(key, sampler)
        self._step_bytes[key] = sampler.step_bytes(sampler.base)
        self._budget.watch("cache", _promise_key(key), lambda: sampler.unused_bytes)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._step_bytes.pop(key, None)
        self._budget.release(_promise_key(key))

    def of(self, key: str, base: BaseModel) -> Sampler:
        """The sampler of a key, made over these weights where there is none."""
        if key not in self:
            self._pack(base)
            limit = partial(self._cache_bytes, base)
            is_copied = base.device.type != "cpu" and is_on("growing_cache")
            grows = is_copied or base.device.type == "cpu"
            self[key] = Sampler(base, limit(0), limit=limit if grows else None, is_copied=is_copied)
        return self[key]

    @property
    def cache_uses(self) -> tuple[CacheUse, ...]:
        """Of each cache. From any thread."""
        return tuple(sampler.cache_use for sampler in tuple(self.data.values()))

    @property
    def idle_bytes(self) -> int:
        """Bytes that caches of samplers without work take, or may take."""
        uses = [sampler.cache_use for sampler in self.values() if not sampler.has_work]
        return sum(use.max_blocks * use.block_bytes for use in uses)

    @property
    def has_work(self) -> bool:
        """True if `step` has anything to do."""
        return any(sampler.has_work for sampler in self.values())

    def cancel(self, request_id: str) -> None:
        """Drop a request, whoever has it; unknown ids are ignored."""
        for sampler in self.values():
            sampler.cancel(request_id)

    def step(self) -> list[SampleOutput | SampleFailure]:
        """One step of each sampler that has work."""
        outputs: list[SampleOutput | SampleFailure] = []
        for sampler in self.values():
            if sampler.has_work:
                try:
                    outputs += sampler.step()
                except Exception as error:  # requests of other base models are not to blame
                    outputs += sampler.fail_all(error)
        return outputs

    def drop_idle(self, living: Collection[str]) -> None:
        """Free those that are not among the living and have no work."""
        for key in [key for key, sampler in self.items() if key not in living and not sampler.has_work]:
            del self[key]

    def make_way(self, is_short: Callable[[], bool]) -> None:
        """Free caches and packed weights of samplers without work, as long as memory is short."""
        for key in [key for key, sampler in self.items() if not sampler.has_work]:
            if is_short():
                self.pop(key).base.packed.drop()

    def _pack(self, base: BaseModel) -> None:
        """Pack a base model's weights in addition to their originals, if that is faster and there is memory for it."""
        if base.packed.are_made or not DecodeKernel.gains_from_packing(base):
            return
        num_bytes, spare = base.packed.num_bytes, self._budget.spare_bytes()
        if num_bytes <= spare * _PACKED_SHARE:
            base.packed.make()
        else:
            _log.warning(
                "sampling from %s goes at about half its speed: packed weights take %s, and may take half of the %s "
                "that are spare",
                base.name,
                show_bytes(num_bytes),
                show_bytes(spare),
            )

    def _cache_bytes(self, base: BaseModel, held: int) -> int:
        """Bytes that the cache of a base model may take by now, so many of which it holds."""
        bytes_per_token = base.cache_shape.num_features * base.dtype.itemsize
        bytes_per_sequence = bytes_per_token * base.info.max_context_tokens + 2 * base.state_bytes
        # Asked for every request: what the heap keeps must not go back each time.
        spare = self._budget.spare_bytes(2 * bytes_per_sequence if held else math.inf)
        not_promised = Sampler.step_bytes(base) - max(self._step_bytes.values(), default=0)
        spare = max(spare - max(not_promised, 0), 0)
        if held and base.device.type != "cpu":
            held //= 2  # it is copied, one half after the other
        return cache_bytes(base.device, spare + held, bytes_per_sequence, self._max_cache_bytes)


def _promise_key(key: str) -> str:
    return f"sampler {key}"

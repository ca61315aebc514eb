"""Where a command goes: models by how many a worker has, samples by weights, prompt and load.

A model stays where it was put until that worker is lost or leaves. Samples may be drawn anywhere, with the same tokens:
the worker is chosen that has least to do until the sample is done, counted in tokens.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from cookhouse.engine.contract import SampleRequest
from cookhouse.server.workers.member import Member

_FETCH_TOKENS = 2048
"""What it counts that a worker has to fetch weights first."""
_PREFIX_TOKENS = 64
"""A prompt's beginning, by which its prefix is known again."""
_MAX_PREFIXES = 4096
"""Remembered of each worker; its cache forgets them too."""

Prefix = tuple[str, str, bytes]


class Placement:
    def __init__(self) -> None:
        self._models: dict[str, Member] = {}
        self._held: dict[Member, dict[str, None]] = {}
        """Models, by worker."""
        self._prefixes: dict[Member, OrderedDict[Prefix, None]] = {}

    def member_of(self, model_id: str) -> Member | None:
        return self._models.get(model_id)

    def put_model(self, model_id: str, member: Member) -> None:
        self.drop_models([model_id])
        self._models[model_id] = member
        self._held.setdefault(member, {})[model_id] = None

    def drop_models(self, model_ids: Iterable[str]) -> None:
        for model_id in model_ids:
            member = self._models.pop(model_id, None)
            if member is not None:
                del self._held[member][model_id]

    def models_of(self, member: Member) -> Sequence[str]:
        return list(self._held.get(member, ()))

    def num_models(self) -> Counter[Member]:
        return Counter({member: len(held) for member, held in self._held.items()})

    def for_model(self, members: Iterable[Member]) -> Sequence[Member]:
        """Workers that may train a new model, the best first: those that are up, with the fewest models, with the least
        to do.
        """
        number = self.num_models()
        can_train = [member for member in members if member.plan.trains and not member.is_leaving]
        return sorted(can_train, key=lambda one: (not one.is_up, number[one], one.num_tokens, one.plan.index))

    def for_sample(self, members: Iterable[Member], request: SampleRequest) -> Member | None:
        """The worker that draws a sample; None: there is none that samples."""
        prefix = _prefix(request)

        def cost(member: Member) -> tuple[bool, int, int]:
            has_weights = request.snapshot_id is None or request.snapshot_id in member.snapshots
            has_prefix = prefix in self._prefixes.get(member, ())
            tokens = member.num_tokens + (0 if has_weights else _FETCH_TOKENS)
            tokens += 0 if has_prefix else int(request.prompt_T.size)
            return not member.is_up, tokens, member.plan.index

        can_sample = [member for member in members if member.plan.samples and not member.is_leaving]
        chosen = min(can_sample, key=cost, default=None)
        if chosen is not None and len(can_sample) > 1:
            self._remember(chosen, prefix)
        return chosen

    def for_fetch(self, members: Iterable[Member]) -> Member | None:
        """The worker that reads weights first which several may ask for."""
        can_sample = [member for member in members if member.plan.samples and not member.is_leaving]
        return min(can_sample, key=lambda one: (not one.is_up, one.num_tokens, one.plan.index), default=None)

    def forget(self, member: Member) -> None:
        """A worker was lost, or has left."""
        self._prefixes.pop(member, None)
        self.drop_models(self.models_of(member))
        self._held.pop(member, None)

    def _remember(self, member: Member, prefix: Prefix) -> None:
        known = self._prefixes.setdefault(member, OrderedDict())
        known[prefix] = None
        known.move_to_end(prefix)
        if len(known) > _MAX_PREFIXES:
            known.popitem(last=False)


def _prefix(request: SampleRequest) -> Prefix:
    return request.snapshot_id or request.base_model, request.owner, request.prompt_T[:_PREFIX_TOKENS].tobytes()

"""Where a command goes: rather to a worker that is up, then to one that has memory for it, then where it costs least.

The cost is counted in tokens, as what a worker has to do: those of the commands that are with it, so many for each of
its models, and for what it would have to load, fetch or compute first. Of two that cost the same it is the one with the
smaller number, so that equal inputs give equal places.

A model stays where it was put until that worker is lost or leaves. Samples may be drawn anywhere, with the same tokens.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from cookhouse.engine.contract import SampleRequest
from cookhouse.server.workers.member import Member
from cookhouse.server.workers.needs import Need

_MODEL_TOKENS = 2**16
"""What a model counts that a worker has: a large batch, since more will come for as long as it is there."""
_LOAD_TOKENS = 2**18
"""What it counts that a worker has to load a base model first: as much as four models, so that one which has it is
passed over only where it is much busier."""
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

    def for_model(self, members: Iterable[Member], need: Need) -> Sequence[Member]:
        """Workers that may train a new model, the best first."""
        number = self.num_models()

        def cost(member: Member) -> tuple[bool, bool, int, int]:
            tokens = member.num_tokens + _MODEL_TOKENS * number[member] + _load_tokens(member, need)
            return not member.is_up, member.lacks_room(need), tokens, member.plan.index

        return sorted((one for one in members if one.plan.trains and not one.is_leaving), key=cost)

    def for_sample(self, members: Iterable[Member], request: SampleRequest, need: Need) -> Member | None:
        """The worker that draws a sample; None: there is none that samples."""
        prefix = _prefix(request)

        def cost(member: Member) -> tuple[bool, bool, int, int]:
            snapshot_id = request.snapshot_id
            has_weights = (
                member.has_base_model(need.base_model) if snapshot_id is None else snapshot_id in member.snapshots
            )
            tokens = member.num_tokens + _load_tokens(member, need)
            tokens += 0 if has_weights or snapshot_id is None else _FETCH_TOKENS
            tokens += 0 if prefix in self._prefixes.get(member, ()) else int(request.prompt_T.size)
            return not member.is_up, not has_weights and member.lacks_room(need), tokens, member.plan.index

        can_sample = [member for member in members if member.plan.samples and not member.is_leaving]
        chosen = min(can_sample, key=cost, default=None)
        if chosen is not None and len(can_sample) > 1:
            self._remember(chosen, prefix)
        return chosen

    def for_fetch(self, members: Iterable[Member], need: Need) -> Member | None:
        """The worker that reads weights first which several may ask for."""

        def cost(member: Member) -> tuple[bool, bool, int, int]:
            tokens = member.num_tokens + _load_tokens(member, need)
            return not member.is_up, member.lacks_room(need), tokens, member.plan.index

        return min((one for one in members if one.plan.samples and not one.is_leaving), key=cost, default=None)

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


def _load_tokens(member: Member, need: Need) -> int:
    return 0 if member.has_base_model(need.base_model) else _LOAD_TOKENS


def _prefix(request: SampleRequest) -> Prefix:
    return request.snapshot_id or request.base_model, request.owner, request.prompt_T[:_PREFIX_TOKENS].tobytes()

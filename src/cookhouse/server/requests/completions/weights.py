"""Weights by the names that a request for an answer has for them.

cookhouse/tiny               a base model that the server offers
tinker://RUN/KIND/NAME       a checkpoint that the tenant may read
BASE;tinker://RUN/KIND/NAME  the same, which has to be of this base model
sums@3, sums@production      a registered model, where the server was given a registry
runs/first                   a run of the operator's, where the server was given it under this name
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from cookhouse.engine.contract import BaseModelInfo
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.registry import ModelRegistry, Query
from cookhouse.server.refusals import NotFoundError
from cookhouse.server.requests.offered_models import OfferedModels
from cookhouse.server.requests.sampling import SamplingRequests
from cookhouse.server.sequencer.sample_queue import SampleQueue
from cookhouse.server.sessions.sessions import SamplerWeights
from cookhouse.server.storage.checkpoints.checkpoint import StoredCheckpoint
from cookhouse.server.storage.storage import Storage

_TINKER = "tinker://"
_OF_BASE = f";{_TINKER}"
_MAX_LISTED = 1000
_MAX_LOADED = 256
"""Of checkpoints, the most whose weights are at hand; of the rest the files are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedWeights:
    """Weights that a request named."""

    name: str
    """As the answer says it: a registered model with its version."""
    base_model: str
    """As clients call it."""
    info: BaseModelInfo
    snapshot: SamplerWeights | None = None
    """None: the bare base model."""
    renderer_name: str | None = None
    """Of the run that trained them, where it said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """A name that a tenant can ask for."""

    name: str
    created_at: float
    """Since when what it names has been there."""
    max_context_tokens: int


class WeightNames:
    """Looks names up, for one tenant at a time; what belongs to another does not exist."""

    def __init__(
        self,
        *,
        base_models: OfferedModels,
        sampling: SamplingRequests,
        samples: SampleQueue,
        storage: Storage,
        registry: ModelRegistry | None = None,
        runs: Mapping[str, str] | None = None,
    ) -> None:
        """`runs` has `tinker://` paths by the names that they may be asked for by."""
        self._base_models = base_models
        self._checkpoints = storage.checkpoints
        self._sampling = sampling
        self._samples = samples
        self._store = storage.store
        self._began_at = time.time()
        self._registry = registry
        self._runs = runs or {}
        self._loaded: OrderedDict[tuple[str, str], SamplerWeights] = OrderedDict()

    @property
    def default(self) -> str:
        """The base model of requests that name none: the first that is offered."""
        return self._base_models.names[0]

    def listed(self, owner: str) -> list[ListedModel]:
        """The names that a tenant can ask for. Blocking."""
        models = [self._listed(name, name, self._began_at) for name in self._base_models.names]
        registered = () if self._registry is None else self._registry.find(Query())
        for name in (*self._runs, *(version.id for version in registered)):
            with suppress(InputError):
                models.append(self.described(name, owner))
        rows, _ = self._store.checkpoints(owner, limit=_MAX_LISTED)
        for row in rows:
            with suppress(UnknownNameError):  # of a base model that is not offered any more
                if row.kind != "external_weights":
                    models.append(self._listed(row.path, row.base_model, row.created_at))
        return list({model.name: model for model in models}.values())

    def described(self, name: str, owner: str) -> ListedModel:
        """One name, as the answer says it. Blocking; raises as `find`."""
        try:
            return self._listed(name, name, self._began_at)
        except UnknownNameError:
            resolved, kept = self._kept(name, owner)
            return self._listed(resolved, kept.row.base_model, kept.row.created_at)

    def _listed(self, name: str, base_model: str, created_at: float) -> ListedModel:
        context = self._base_models.named(base_model).max_context_tokens
        return ListedModel(name=name, created_at=created_at, max_context_tokens=context)

    async def find(self, name: str, owner: str) -> NamedWeights:
        """The weights of a name.

        Raises:
            NotFoundError: it names none, or another tenant's.
            InputError: they cannot be sampled from.
        """
        try:
            info = self._base_models.named(name)
        except UnknownNameError:
            pass
        else:
            return NamedWeights(name=name, base_model=name, info=info)
        resolved, kept = await asyncio.to_thread(self._kept, name, owner)
        base_model = kept.row.base_model
        return NamedWeights(
            name=resolved,
            base_model=base_model,
            info=self._base_models.named(base_model),
            snapshot=self._snapshot(kept, owner),
            renderer_name=_renderer_name(kept),
        )

    def _kept(self, name: str, owner: str) -> tuple[str, StoredCheckpoint]:
        """A name as the answer says it, and its checkpoint. Blocking."""
        base_model, separator, path = name.partition(_OF_BASE)
        if separator:
            return self._kept_of(base_model, f"{_TINKER}{path}", owner)
        resolved, path = name, self._runs.get(name, name)
        if not path.startswith(_TINKER) and self._registry is not None:
            try:
                version = self._registry.get(name)
            except InputError:  # whose message would name others
                pass
            else:
                resolved, path = version.id, version.weights_to_sample.path
        try:
            if path.startswith(_TINKER):
                return resolved, self._checkpoints.find_loadable(path, owner)
        except NotFoundError:
            pass
        names = [*self._base_models.names, *self._runs]
        if self._registry is not None:
            names.append("a registered model as NAME@VERSION or NAME@STAGE")
        raise NotFoundError(
            f"there is no model {name!r} here; name {', '.join(names)}, or the {_TINKER} path of a checkpoint of yours"
        )

    def _kept_of(self, base_model: str, path: str, owner: str) -> tuple[str, StoredCheckpoint]:
        """A checkpoint that a name gives with its base model."""
        resolved, kept = self._kept(path, owner)
        if not self._base_models.are_same(base_model, kept.row.base_model):
            raise InputError(f"{path} is of base model {kept.row.base_model!r}, not of {base_model[:200]!r}")
        return resolved, kept

    def _snapshot(self, kept: StoredCheckpoint, owner: str) -> SamplerWeights:
        """The weights of a checkpoint, which begin to load with the first that asks for them."""
        key = owner, kept.row.checkpoint_id
        snapshot = self._loaded.get(key)
        if snapshot is None or snapshot.error is not None:
            snapshot = self._loaded[key] = self._sampling.load_snapshot(kept)
        self._loaded.move_to_end(key)
        while len(self._loaded) > _MAX_LOADED:
            _, oldest = self._loaded.popitem(last=False)
            self._samples.free_snapshot(oldest)
        return snapshot


def _renderer_name(kept: StoredCheckpoint) -> str | None:
    """Renderer named by its own metadata, else by those of its run."""
    for metadata in (kept.row.user_metadata, kept.run_metadata):
        if isinstance(name := metadata.get("renderer_name"), str):
            return name
    return None

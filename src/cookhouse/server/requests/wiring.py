"""Requests of clients and operators, by kind, wired."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from tinker import types

from cookhouse.server.access.hosted_rules import HostedRules
from cookhouse.server.pool.meter import Meter, Metering
from cookhouse.server.pool.supervisor import Supervisor
from cookhouse.server.requests.completions.completions import Answers
from cookhouse.server.requests.completions.weights import WeightNames
from cookhouse.server.requests.fair_lock import FairLock
from cookhouse.server.requests.intake import Intake, Kind, Read
from cookhouse.server.requests.offered_models import OfferedModels
from cookhouse.server.requests.recordings import Recordings
from cookhouse.server.requests.sampling import SamplingRequests
from cookhouse.server.requests.saving import SaveRequests
from cookhouse.server.requests.training import TrainingRequests
from cookhouse.server.requests.workers import WorkerRequests
from cookhouse.server.sequencer.queues import LOAD
from cookhouse.server.sequencer.sequencer import Sequencer
from cookhouse.server.sessions.sessions import Sessions
from cookhouse.server.settings import ServiceOptions
from cookhouse.server.storage.storage import Storage


class Requests:
    """Lives on the event loop."""

    def __init__(
        self,
        *,
        meter: Meter,
        options: ServiceOptions,
        rules: HostedRules,
        sequencer: Sequencer,
        sessions: Sessions,
        storage: Storage,
        supervisor: Supervisor,
    ) -> None:
        settings = options.settings
        self.base_models = OfferedModels()
        self.futures = sequencer.futures
        self.reading = FairLock()
        """Of the thread that reads large bodies."""
        recordings = Recordings(storage.store, storage.journal, max_bytes=settings.max_decoded_bytes)
        self.training = TrainingRequests(
            base_models=self.base_models,
            reading=self.reading,
            recordings=recordings,
            rules=rules,
            sessions=sessions,
            settings=settings,
            storage=storage,
        )
        saving = SaveRequests(base_models=self.base_models, rules=rules, sessions=sessions, storage=storage)
        self.intake = Intake(
            futures=self.futures,
            journal=storage.journal,
            kinds=_kinds(self.training, saving),
            max_decoded_bytes=settings.max_decoded_bytes,
            rules=rules,
            sequencer=sequencer,
            sessions=sessions,
        )
        self.sampling = SamplingRequests(
            base_models=self.base_models,
            pool=supervisor.pool,
            recordings=recordings,
            rules=rules,
            sequencer=sequencer,
            sessions=sessions,
            settings=settings,
            storage=storage,
        )
        weights = WeightNames(
            base_models=self.base_models,
            registry=options.registry,
            runs=options.runs,
            sampling=self.sampling,
            samples=sequencer.samples,
            storage=storage,
        )
        self.answers = Answers(weights, sequencer.samples)
        self.workers = WorkerRequests(supervisor, sequencer.state_bytes, has_journal=storage.journal is not None)
        self.metering = Metering(meter, storage.store)


def _kinds(training: TrainingRequests, saving: SaveRequests) -> Mapping[str, Kind]:
    """Kinds of requests that change models, by the name of their route."""
    return {
        "create_model": Kind(read=_json(types.CreateModelRequest), plan=training.create_model, find=training.needed),
        LOAD: Kind(read=_json(types.LoadWeightsRequest), plan=training.load_weights, find=training.found),
        "forward_backward": Kind(read=training.read_pass, plan=training.forward_backward, find=training.refusal),
        "optim_step": Kind(read=_json(types.OptimStepRequest), plan=training.optim_step),
        "save_weights": Kind(
            read=_json(types.SaveWeightsRequest), plan=saving.save_state, find=partial(saving.taken, "weights")
        ),
        "save_weights_for_sampler": Kind(
            read=_json(types.SaveWeightsForSamplerRequest),
            plan=saving.save_for_sampler,
            find=partial(saving.taken, "sampler_weights"),
        ),
        "save_weights_external": Kind(
            read=_json(types.SaveWeightsExternalRequest),
            plan=saving.save_external,
            find=partial(saving.taken, "external_weights"),
        ),
    }


def _json(kind: Any) -> Read:
    async def read(_owner: str, body: bytes | bytearray) -> Any:
        return kind.model_validate_json(bytes(body))

    return read

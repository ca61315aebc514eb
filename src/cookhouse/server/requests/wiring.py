"""Requests of clients and operators, by kind, wired."""

from cookhouse.server.pool.meter import Meter
from cookhouse.server.pool.supervisor import Supervisor
from cookhouse.server.requests.completions.completions import Answers
from cookhouse.server.requests.completions.weights import WeightNames
from cookhouse.server.requests.fair_lock import FairLock
from cookhouse.server.requests.intake import Intake
from cookhouse.server.requests.metering import Metering
from cookhouse.server.requests.offered_models import OfferedModels
from cookhouse.server.requests.recordings import Recordings
from cookhouse.server.requests.sampling import SamplingRequests
from cookhouse.server.requests.saving import SaveRequests
from cookhouse.server.requests.training import TrainingRequests
from cookhouse.server.requests.workers import WorkerRequests
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
            sessions=sessions,
            settings=settings,
            storage=storage,
        )
        self.intake = Intake(
            futures=self.futures,
            journal=storage.journal,
            saving=SaveRequests(base_models=self.base_models, sessions=sessions, storage=storage),
            sequencer=sequencer,
            sessions=sessions,
            settings=settings,
            training=self.training,
        )
        self.sampling = SamplingRequests(
            base_models=self.base_models,
            pool=supervisor.pool,
            recordings=recordings,
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

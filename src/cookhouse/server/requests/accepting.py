"""The kinds of requests that change models: how each is read from its body, and planned.

route ── content ──► draw ──► plan ──► Intake ──► request id
journal ── body ──► content ──────────► plan ──► run again, as it was drawn
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tinker import types

from cookhouse.server.access.bodies import body_of
from cookhouse.server.refusals import StorageBusyError
from cookhouse.server.requests.saving import SaveRequests
from cookhouse.server.requests.training import TrainingRequests
from cookhouse.server.sequencer.futures import Result
from cookhouse.server.sequencer.intake import Arrived, Intake
from cookhouse.server.sequencer.plans import Drawn, Plan, draw
from cookhouse.server.sequencer.turn import Turn
from cookhouse.server.sessions.sessions import Sessions
from cookhouse.server.settings import Settings
from cookhouse.server.storage.journal import Entry, JournalReader

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0

Read = Callable[[str, bytes | bytearray], Awaitable[Any]]
"""The content of a tenant's body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    read: Read
    plan: Callable[[str, Any, Drawn], Plan]
    find: Callable[[str, Any], Awaitable[Mapping[str, Any]]] | None = None
    """What to draw beside what is drawn for every request."""


class Accepting:
    """Lives on the event loop."""

    def __init__(
        self,
        intake: Intake,
        training: TrainingRequests,
        saving: SaveRequests,
        sessions: Sessions,
        settings: Settings,
    ) -> None:
        self._intake = intake
        self._sessions = sessions
        self._settings = settings
        self._kinds: Mapping[str, Kind] = {
            "create_model": Kind(
                read=_json(types.CreateModelRequest), plan=training.create_model, find=training.needed
            ),
            "load_weights": Kind(read=_json(types.LoadWeightsRequest), plan=training.load_weights, find=training.found),
            "forward_backward": Kind(read=training.read_pass, plan=training.forward_backward, find=training.refusal),
            "optim_step": Kind(read=_json(types.OptimStepRequest), plan=training.optim_step),
            "save_weights": Kind(read=_json(types.SaveWeightsRequest), plan=saving.save_state),
            "save_weights_for_sampler": Kind(
                read=_json(types.SaveWeightsForSamplerRequest), plan=saving.save_for_sampler
            ),
            "save_weights_external": Kind(read=_json(types.SaveWeightsExternalRequest), plan=saving.save_external),
        }

    async def accept(self, owner: str, content: Any, arrived: Arrived) -> tuple[str, str]:
        """Take a request; returns its id, and its model's.

        Raises:
            InputError: it is refused.
            StorageError: it cannot be written down, and was not accepted.
        """
        kind = self._kinds[arrived.kind]
        drawn = draw()
        if kind.find is not None:
            drawn.update(await kind.find(owner, content))
        plan = kind.plan(owner, content, drawn)
        return await self._intake.accept(plan, arrived, drawn), plan.model.model_id

    async def plan(self, entry: Entry, reader: JournalReader) -> Plan:
        """What is planned for a request of the journal: the same as when it was accepted."""
        kind = self._kinds[entry.kind]
        body = await asyncio.to_thread(self._body, entry, reader)
        content = await kind.read(entry.owner, body)
        with self._sessions.unheard():
            return kind.plan(entry.owner, content, entry.drawn)

    async def run(self, entry: Entry, reader: JournalReader, turn: Turn) -> Result:
        """Do in its turn what a request of the journal asks for. Waits for a journal that cannot be read now."""
        while True:
            try:
                plan = await self.plan(entry, reader)
                break
            except StorageBusyError as error:
                _log.error("a request cannot be read again: %s; trying again", error)
                await asyncio.sleep(_RETRY_SECONDS)
        return await plan.run(turn)

    def _body(self, entry: Entry, reader: JournalReader) -> bytes | bytearray:
        body = reader.body(entry.request_id)
        return body_of(bytearray(body), entry.encoding, self._settings.max_decoded_bytes).read()


def _json(kind: Any) -> Read:
    async def read(_owner: str, body: bytes | bytearray) -> Any:
        return kind.model_validate_json(bytes(body))

    return read

"""The turn of a request."""

import time
from collections.abc import Callable

from cookhouse.engine.contract import Amount, ModelCommand, Output
from cookhouse.errors import InputError
from cookhouse.server.refusals import LostError
from cookhouse.server.sequencer.calls import Calls
from cookhouse.server.sessions.sessions import Model


class Turn:
    """From `send` on, the next request of the model has its own turn."""

    def __init__(
        self,
        calls: Calls,
        model: Model,
        *,
        is_current: Callable[[], bool],
        on_sent: Callable[[ModelCommand], None],
        end: Callable[[], None],
    ) -> None:
        """`is_current`: whether the worker of which the turn is has not been lost since; `on_sent` may send more."""
        self._calls = calls
        self._model = model
        self.is_current = is_current
        self._on_sent = on_sent
        self._end = end
        self.sent_at: float | None = None
        self.answered_at: float | None = None
        """When the worker was done with it; on the clock of `time.monotonic`."""
        self.spent: list[Amount] = []
        """What the worker used for it."""

    async def send(self, command: ModelCommand) -> Output:
        """Submit the command, and wait for its answer.

        Raises:
            InputError: the caller is to blame, or the model's session has ended.
            ServiceError: the engine failed, or was lost.
        """
        if self._model.is_dropped:
            raise InputError(f"session {self._model.session_id} has ended")
        if not self.is_current():
            raise LostError("the engine was lost")
        if self._model.loss is not None:
            raise LostError(self._model.loss)
        self.sent_at = time.monotonic()
        answer = self._calls.send(command, spent=self.spent)
        self._on_sent(command)
        self._end()
        output = await answer
        self.answered_at = time.monotonic()
        return output

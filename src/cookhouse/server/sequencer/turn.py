"""The turn of a request."""

import time
from collections.abc import Callable

from cookhouse.engine.contract import Amount, Create, Load, ModelCommand, Output
from cookhouse.errors import InputError
from cookhouse.server.pool.pool import Pool
from cookhouse.server.refusals import LostError
from cookhouse.server.sequencer.patience import Patience
from cookhouse.server.sessions.sessions import Model


class Turn:
    """From `send` on, the next request of the model has its own turn."""

    def __init__(
        self,
        pool: Pool,
        model: Model,
        *,
        patience: Patience | None,
        is_current: Callable[[], bool],
        on_sent: Callable[[ModelCommand], None],
        end: Callable[[], None],
    ) -> None:
        """`patience` makes a model that must come back; None: what cannot be made now fails. `is_current`: whether the
        worker of which the turn is has not been lost since; `on_sent` may send more.
        """
        self._pool = pool
        self._model = model
        self._patience = patience
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
        self._check()
        if self._patience is not None and isinstance(command, Create | Load):
            # The next one of the model has its turn once there is a model: it may take long.
            output = await self._patience.send(command, self._check, self.spent)
            self.sent_at = self.answered_at = time.monotonic()
            self._on_sent(command)
            self._end()
            return output
        self.sent_at = time.monotonic()
        answer = self._pool.send(command, spent=self.spent)
        self._on_sent(command)
        self._end()
        output = await answer
        self.answered_at = time.monotonic()
        return output

    def _check(self) -> None:
        """Raise why the turn is over, if it is."""
        if self._model.is_dropped:
            raise InputError(f"session {self._model.session_id} has ended")
        if not self.is_current():
            raise LostError("the engine was lost")
        if self._model.loss is not None:
            raise LostError(self._model.loss)

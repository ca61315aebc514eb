"""Tools of a request that cannot be offered: they are left out, and each kind is said once in the log."""

import logging

_log = logging.getLogger(__name__)
_MAX_KINDS = 100
_MAX_LETTERS = 64
_said: set[str] = set()


def leave_out(kind: str) -> None:
    """Say once in the log that tools of a kind are left out of what the model is offered."""
    shown = kind[:_MAX_LETTERS]
    if shown not in _said and len(_said) < _MAX_KINDS:
        _said.add(shown)
        _log.warning("tools of type %r cannot be offered to a model here; they are left out of requests", shown)

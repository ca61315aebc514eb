"""Rules of the hosted service that this server is milder than, as data; with `--as-hosted` it refuses as they say.

A rule is broken where a request is accepted, never where one runs again: what has been accepted stays so.

    broken ──as hosted──► AsHostedError, in the hosted service's words and with its status
       └─────else──────► the request goes on; a line in the log, once for each session and rule, and a counter
"""

import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from cookhouse.server.refusals import AsHostedError, ForeignError, NoSessionError

_log = logging.getLogger(__name__)
_MAX_TOLD = 4096
"""Pairs of a session and a rule that are remembered."""
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_NEWEST_REFUSED_SDK = (0, 22, 3)
"""The newest that the hosted service is known to have refused, on 8 June 2026."""


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    """Label of its counter."""
    status: int | None
    """None: the request is accepted, and its future fails."""
    text: str
    """The hosted service's, where it is known; values in braces."""

    def broken(self, **values: object) -> "Breach":
        return Breach(self, self.text.format(**values))


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that a request breaks, with what the hosted service answers."""

    rule: Rule
    text: str


LOAD_NOT_FIRST = Rule("load_not_first", 400, "LoadWeights is not permitted with seq_id {seq_id}")
RANK_NOT_POSITIVE = Rule("rank_not_positive", 400, "lora_config.rank must be positive")
RANK_NOT_POWER_OF_TWO = Rule("rank_not_power_of_two", 400, "lora_config.rank must be a power of 2")
RETIRED_MODEL = Rule("retired_model", 400, "{model} has been retired; use {successor}")
SAMPLER_PATH_LOADED = Rule(
    "sampler_path_loaded", 400, "{path} has the weights of a sampler; load a checkpoint of save_state()"
)
STATE_PATH_SAMPLED = Rule(
    "state_path_sampled", 400, "{path} is a training state; sample from a checkpoint of save_weights_for_sampler()"
)
NAME_EXISTS = Rule("name_exists", 409, "{path} exists; save under another name, or delete it")
CONTEXT_EXCEEDED = Rule(
    "context_exceeded",
    400,
    "Prompt length plus max_tokens exceeds the model's context window: {prompt} prompt tokens + {max_tokens} "
    "max_tokens > {context}.",
)
PROMPT_TOO_LONG = Rule("prompt_too_long", None, "PromptTooLong: {what} has {tokens} tokens, of at most {context}")
NON_FINITE = Rule("non_finite", None, "NonFiniteInTensor: {what} holds NaN or infinity")
EMPTY_CHUNK = Rule("empty_chunk", 400, "model_input has a text chunk without tokens; leave it out")
BARE_CHECKPOINT_ID = Rule(
    "bare_checkpoint_id", 400, "checkpoint id {name!r} has no kind; give weights/{name} or sampler_weights/{name}"
)
OLD_SDK = Rule("old_sdk", 400, "Your Tinker SDK version is no longer supported. Please upgrade to the latest version.")
UNKNOWN_SESSION = Rule("unknown_session", 403, "Invalid session_id")
FOREIGN = Rule("foreign", 403, "You do not have access to this model")

RULES = (
    *(LOAD_NOT_FIRST, RANK_NOT_POSITIVE, RANK_NOT_POWER_OF_TWO, RETIRED_MODEL, SAMPLER_PATH_LOADED, STATE_PATH_SAMPLED),
    *(NAME_EXISTS, CONTEXT_EXCEEDED, PROMPT_TOO_LONG, NON_FINITE, EMPTY_CHUNK, BARE_CHECKPOINT_ID, OLD_SDK),
    *(UNKNOWN_SESSION, FOREIGN),
)
_OTHERWISE_REFUSED = ((NoSessionError, UNKNOWN_SESSION), (ForeignError, FOREIGN))
"""Refusals that this server has too, with another status."""


class HostedRules:
    """Lives on the event loop."""

    def __init__(self, *, is_strict: bool) -> None:
        self.is_strict = is_strict
        self.counts: Counter[str] = Counter({rule.name: 0 for rule in RULES})
        """Count of refusals by the name of the rule."""
        self._told: OrderedDict[tuple[str, str], None] = OrderedDict()

    def enforce(self, session_id: str, breaches: Iterable[Breach]) -> None:
        """Refuse a request of a session that breaks rules, or note what it breaks.

        Raises:
            AsHostedError: as the hosted service does, with `--as-hosted`.
        """
        for breach in breaches:
            self.refuse(breach)
            self.note(session_id, breach)

    def refuse(self, breach: Breach) -> None:
        """Raises as `enforce`; without `--as-hosted` does nothing."""
        if self.is_strict and breach.rule.status is not None:
            self.count(breach)
            raise AsHostedError(breach.text, breach.rule.status)

    def count(self, breach: Breach) -> None:
        self.counts[breach.rule.name] += 1

    def note(self, session_id: str, breach: Breach) -> None:
        """Count what was accepted against a rule, or fails, and say so in the log the first time in its session."""
        name = breach.rule.name
        self.count(breach)
        if self.is_strict or (session_id, name) in self._told:
            return
        self._told[session_id, name] = None
        if len(self._told) > _MAX_TOLD:
            self._told.popitem(last=False)
        _log.warning(
            "session %s: the hosted service would have refused this: %s (%s; serve --as-hosted refuses it too)",
            session_id,
            breach.text,
            name,
        )

    def as_answered(self, error: Exception) -> Exception:
        """The error that a client gets for one of ours."""
        rule = next((rule for kind, rule in _OTHERWISE_REFUSED if isinstance(error, kind)), None)
        if rule is None or not self.is_strict:
            return error
        breach = rule.broken()
        self.count(breach)
        return AsHostedError(breach.text, rule.status or 400)


def rank_breaches(rank: int) -> list[Breach]:
    if rank <= 0:
        return [RANK_NOT_POSITIVE.broken()]
    return [] if rank & (rank - 1) == 0 else [RANK_NOT_POWER_OF_TWO.broken()]


def sdk_breaches(version: str) -> list[Breach]:
    """`version`: as a client gives it; a text that is none breaks nothing."""
    found = _VERSION.match(version)
    is_old = found is not None and tuple(map(int, found.groups())) <= _NEWEST_REFUSED_SDK
    return [OLD_SDK.broken()] if is_old else []

"""The base models of an engine: loaded on first use, within a budget of memory."""

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from transformers.utils import logging as transformers_logging

from cookhouse.engine.contract import BaseModelInfo, NoMemoryError
from cookhouse.engine.host_memory import show_bytes
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.model.pretrained import describe, num_weight_bytes, read_config
from cookhouse.errors import InputError

_log = logging.getLogger(__name__)


class BaseModels(Mapping[str, BaseModel]):
    """Loaded base models by name, least recently used first.

    `max_bytes` bounds their weights, and what is reserved for runs that train all weights; None bounds nothing.
    """

    def __init__(
        self,
        device: torch.device,
        dtype: torch.dtype,
        max_bytes: int | None,
        *,
        max_activation_bytes: int | None = None,
        pass_bytes: Callable[[float], int] | None = None,
        check: Callable[[BaseModel], None] | None = None,
    ) -> None:
        """For `max_activation_bytes` and `pass_bytes` see `Activations`. `check` refuses a model that was loaded, by an
        `InputError`.
        """
        self._max_activation_bytes = max_activation_bytes
        self._pass_bytes = pass_bytes
        self._check = check
        self._device = device
        self._dtype = dtype
        self._max_bytes = max_bytes
        self._loaded: dict[str, BaseModel] = {}
        self._known: dict[str, tuple[BaseModelInfo, int]] = {}
        self._reserved: dict[str, int] = {}

    def __getitem__(self, name: str) -> BaseModel:
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded)

    def __len__(self) -> int:
        return len(self._loaded)

    @property
    def infos(self) -> tuple[BaseModelInfo, ...]:
        """Every model described so far, loaded or not."""
        return tuple(info for info, _ in self._known.values())

    def describe(self, name: str) -> BaseModelInfo:
        """Facts about a model that are known without its weights.

        Raises:
            InputError: there is no such model here, it is of a kind this engine cannot run, or larger than the budget.
        """
        if name not in self._known:
            config = read_config(name)
            num_bytes = num_weight_bytes(name, self._dtype)
            if self._max_bytes is not None and num_bytes > self._max_bytes:
                raise InputError(
                    f"base model {name!r} takes {show_bytes(num_bytes)} and max_base_bytes is "
                    f"{show_bytes(self._max_bytes)}; raise it, or use a smaller model"
                )
            self._known[name] = replace(describe(name, config), num_bytes=num_bytes), num_bytes
        return self._known[name][0]

    def must_evict(self, name: str) -> bool:
        """True if a described model fits only in place of another."""
        return self._num_missing(self._known[name][1]) > 0

    def victims(self, name: str, users: Callable[[str], str]) -> list[str]:
        """Models that must go before this one fits; see `room_for`."""
        self.describe(name)
        return self.room_for(f"base model {name!r}", self._known[name][1], users)

    def room_for(self, what: str, num_bytes: int, users: Callable[[str], str]) -> list[str]:
        """Models that must go before something fits: the least recently used of those that nothing uses.

        `users` says what uses a loaded model, or nothing.

        Raises:
            NoMemoryError: what is in use leaves too little; the message says by whom it is.
        """
        missing = self._num_missing(num_bytes)
        chosen: list[str] = []
        for other in self._loaded:
            if self._num_bytes(chosen) < missing and not users(other):
                chosen.append(other)
        if self._num_bytes(chosen) < missing:
            held = [f"{n} ({show_bytes(self._num_bytes([n]))}: {users(n)})" for n in self._loaded if users(n)]
            if self._reserved:
                held.append(f"full fine-tuning ({show_bytes(sum(self._reserved.values()))})")
            raise NoMemoryError(
                f"{what} takes {show_bytes(num_bytes)} of max_base_bytes {show_bytes(self._max_bytes or 0)}, which is "
                f"held by {', '.join(held) or 'nothing else'}; delete those, or raise it"
            )
        return chosen

    def reserve(self, key: str, num_bytes: int) -> None:
        """Count memory that others take, under a key."""
        self._reserved[key] = num_bytes

    def release(self, key: str) -> bool:
        """Stop counting; whether there was something under the key."""
        return self._reserved.pop(key, None) is not None

    def load(self, name: str) -> None:
        """Load a model that is not, or mark one that is as used last."""
        self.describe(name)
        if name in self._loaded:
            self._loaded[name] = self._loaded.pop(name)
            return
        transformers_logging.disable_progress_bar()  # the log of a server is no terminal
        base = self._read(name)
        if isinstance(base, InputError):
            del self._known[name]
            gc.collect()  # modules refer to each other in circles
            raise base
        self.bound(base)
        self._loaded[name] = base
        _log.info("loaded %s on %s in %s", name, self._device, self._dtype)

    def _read(self, name: str) -> BaseModel | InputError:
        """A refusal is without what caused it, whose frames would keep the weights."""
        try:
            base = BaseModel.load(name, self._device, self._dtype)
            if self._check is not None:
                self._check(base)
        except InputError as error:
            _log.debug("refused %s", name, exc_info=True)
            return InputError(str(error))
        return base

    def bound(self, base: BaseModel) -> None:
        """Bound the memory of a model's passes."""
        base.activations.max_bytes = self._max_activation_bytes
        if self._pass_bytes is not None:
            base.activations.pass_bytes = self._pass_bytes

    def num_bytes(self, name: str) -> int:
        """Bytes that the weights of a model take, loaded or not."""
        self.describe(name)
        return self._known[name][1]

    def drop(self, name: str) -> None:
        """Free a model; the caller holds nothing of it any more."""
        del self._loaded[name]
        gc.collect()  # modules refer to each other in circles
        _log.info("dropped %s", name)

    def _num_missing(self, num_bytes: int) -> int:
        """Bytes that must go before these fit."""
        if self._max_bytes is None:
            return 0
        return self._num_bytes([*self._loaded]) + sum(self._reserved.values()) + num_bytes - self._max_bytes

    def _num_bytes(self, names: list[str]) -> int:
        return sum(self._known[name][1] for name in names)

"""Facts of a setting besides its value: declared at its field, and looked up by the class of the config.

    critic_model: str | None = chz.field(default=None, doc="…", metadata=facts(weights=NamesWeights()))

A class that gives a field of its parent another default keeps what the parent says of it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

import chz

from cookhouse.naming import names_in
from cookhouse.weights.names import RegisteredWeights, find_weights

_KEY = "cookhouse"


@dataclass(frozen=True, kw_only=True)
class NamesWeights:
    """Its text names weights. The name of a run becomes its folder, a registered model its version, and the run's own
    engine is given the base models, PEFT folders and other runs it has to serve.
    """

    purpose: Literal["sampling", "training"] = "sampling"
    """training: the run starts from them, which no base model is named for."""
    in_own_format: bool = False
    """They read what the run writes, so that they are to have been trained in its chat format."""
    several: bool = False
    """Whether it may hold several names, separated by commas."""
    port: str | None = None
    """The port whose adapter, where there is one, has the model instead of the run's service; see `PORTS`."""
    address: str | None = None
    """The setting that names another service, where that has the model."""

    def names(self, value: str) -> Sequence[str]:
        """The names in a value."""
        return names_in(value) if self.several else [value]

    def renamed(self, value: str, rename: Callable[[str], str]) -> str:
        """A value in which every name is another."""
        return ",".join(rename(name) for name in self.names(value))

    def is_base_model_served(self, config: Any, ports: Collection[str]) -> bool:
        """True if the run's own service has to have a base model that is named here; `ports` have an adapter."""
        is_elsewhere = self.port in ports or (self.address is not None and getattr(config, self.address) is not None)
        return self.purpose == "sampling" and not is_elsewhere


@dataclass(frozen=True, kw_only=True)
class Alias:
    """A name that another system has for a setting, or for several."""

    name: str
    doc: str = ""
    """Whose name it is."""
    means: tuple[str, ...] = ()
    """The settings that it stands for; none: the one that it stands at."""
    beside: tuple[str, ...] = ()
    """Further settings that a recipe must have for the name to mean this there."""
    convert: Callable[[Any], Mapping[str, Any]] | None = None
    """From the alias's value to those of the settings; None: it is the value of the one setting."""
    over: str | None = None
    """A setting of the same alias that is not meant where a recipe has both, which is then said. Without it the alias
    is refused there.
    """


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts about a setting."""

    weights: NamesWeights | None = None
    free_on_resume: bool = False
    of_launch: bool = False
    """It is of one launch alone: a resume that does not set it has its default again."""
    is_list: bool = False
    """Its text may hold several names or numbers, separated by commas."""
    aliases: tuple[Alias, ...] = ()


def facts(
    *,
    weights: NamesWeights | None = None,
    free_on_resume: bool = False,
    of_launch: bool = False,
    is_list: bool = False,
    aliases: Sequence[Alias | str] = (),
) -> dict[str, Any]:
    """Facts about a setting, for `metadata` of its field.

    Args:
        weights: that it names weights.
        free_on_resume: it does not change what is trained, so that a resumed run may set it anew.
        of_launch: it is of one launch alone: a resume that does not set it has its default again.
        is_list: its text may hold several names or numbers, separated by commas: one value in a sweep.
        aliases: names that other systems have for it.
    """
    named = tuple(Alias(name=alias) if isinstance(alias, str) else alias for alias in aliases)
    how = {"free_on_resume": free_on_resume or of_launch, "of_launch": of_launch}
    several = is_list or (weights is not None and weights.several)
    return {_KEY: Facts(weights=weights, is_list=several, aliases=named, **how)}


@cache
def facts_of(config_class: type) -> Mapping[str, Facts]:
    """Facts about each setting of a config class."""
    return MappingProxyType({name: _facts(config_class, name) for name in chz.chz_fields(config_class)})


def _facts(config_class: type, name: str) -> Facts:
    """As the class says that says it, or the nearest above it: a bare default in a class of one's own says nothing."""
    specs = [spec for spec in config_class.__mro__ if chz.is_chz(spec)]
    said = [field.metadata or {} for spec in specs if (field := chz.chz_fields(spec).get(name)) is not None]
    return next((metadata[_KEY] for metadata in said if _KEY in metadata), Facts())


def weights_settings(config_class: type) -> Mapping[str, NamesWeights]:
    """The settings that name weights."""
    return {name: known.weights for name, known in facts_of(config_class).items() if known.weights is not None}


def free_on_resume(config_class: type) -> frozenset[str]:
    """The settings that a resumed run may set anew."""
    return frozenset(name for name, known in facts_of(config_class).items() if known.free_on_resume)


def of_launch(config_class: type) -> frozenset[str]:
    """The settings that a resumed run does not take over from the launch before."""
    return frozenset(name for name, known in facts_of(config_class).items() if known.of_launch)


def list_settings(config_class: type) -> frozenset[str]:
    """The settings whose text may hold several names or numbers, separated by commas."""
    return frozenset(name for name, known in facts_of(config_class).items() if known.is_list)


def known_aliases(config_class: type) -> Mapping[str, Sequence[Alias]]:
    """Meanings of each alias among the settings of a config class; where it is one of them itself, it is none."""
    settings = facts_of(config_class)
    found: dict[str, list[Alias]] = {}
    for setting, known in settings.items():
        for alias in known.aliases:
            whole = replace(alias, means=alias.means or (setting,))
            if alias.name not in settings and all(name in settings for name in (*whole.means, *alias.beside)):
                found.setdefault(alias.name, []).append(whole)
    return found


@dataclass(frozen=True, kw_only=True)
class NamedWeights:
    """A name of weights, and the setting that has it."""

    setting: str
    name: str
    known: NamesWeights

    @property
    def is_registered(self) -> bool:
        """True if it is the name of a registered model."""
        return isinstance(find_weights(self.name), RegisteredWeights)


def named_weights(config: Any) -> list[NamedWeights]:
    """The weights that the settings of a config name."""
    values = {setting: getattr(config, setting) for setting in weights_settings(type(config))}
    return [
        NamedWeights(setting=setting, name=name, known=known)
        for setting, known in weights_settings(type(config)).items()
        if isinstance(values[setting], str)
        for name in known.names(values[setting])
    ]

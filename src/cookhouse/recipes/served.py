"""Model that a run trains at a service, as that offers it today; and what it takes for that."""

import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import chz

from cookhouse.adapters import Service, ServiceAddress, is_hosted
from cookhouse.assets import TINY_MODEL
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.extras import has_engine, require_engine
from cookhouse.losses.pair_losses import BUILT_IN_PAIR_LOSSES
from cookhouse.models.catalog.retired import AS_OF, offered_as, successor_among, successors
from cookhouse.models.names import published_name
from cookhouse.settings import AdapterSettings, ModelSettings, PairLossSettings, RunSettings, published_model_of
from cookhouse.settings.rates import RateDefault
from cookhouse.settings.spending import SpendingSettings

C = TypeVar("C", bound=RunSettings)

logger = logging.getLogger(__name__)


def model_of_service(
    config_class: type[RunSettings], service: Service, base_url: str | None, given: Collection[str]
) -> Mapping[str, Any]:
    """The model of a recipe at a service where nobody names one, as `model_name`; none where it is as elsewhere.

    At the hosted service that is what the recipe was published with, or its successor. Rates that were published are
    kept with a successor, as the run then says. A service that has one model has that one trained.

    `given` are the settings that somebody named, or that are recorded.

    Raises:
        InputError: the service has several others.
    """
    if "model_name" in given or not _takes_default(config_class):
        return {}
    address = _address(service, base_url)
    if address is None:
        return {}
    hosted, published = is_hosted(service, os.environ, base_url), published_model_of(config_class)
    offered = _offered(address)
    wanted = published if hosted else TINY_MODEL
    if wanted is None:
        return {}
    if offered is None:
        return _by_table(config_class, wanted, given) if hosted else {}
    for name in dict.fromkeys(name for name in (wanted, published) if name is not None):
        if (found := offered_as(name, offered)) is not None:
            return {} if found == TINY_MODEL else {"model_name": found}
        if (found := successor_among(name, offered)) is not None:
            logger.warning("%s is retired; its successor there is %s", name, found)
            return _successor(config_class, found, given)
    if len(offered) == 1 and (published_name(offered[0]) is not None or Path(offered[0]).is_dir()):
        logger.warning("the service has one model, %s: it is taken in the place of %s", offered[0], wanted)
        return {"model_name": offered[0]}
    raise _not_offered(wanted, offered, address)


def check_model(config: RunSettings, service: Service) -> None:
    """Refuse a model that the service of a run does not offer, where that is to make a new adapter of it.

    Raises:
        InputError: it has others; the message names a successor, or those of similar names.
    """
    if not isinstance(config, AdapterSettings) or getattr(config, "load_checkpoint_path", None) is not None:
        return
    address = _address(service, config.base_url)
    offered = None if address is None else _offered(address)
    if address is not None and offered is not None and offered_as(config.model_name, offered) is None:
        raise _not_offered(config.model_name, offered, address)


def check_pair_loss(config: RunSettings, service: Service) -> None:
    """Refuse a loss over pairs that would be computed here, with torch, where that is missing: no session is opened for
    it.

    Raises:
        InputError: the service does not compute it, and torch is not installed.
    """
    if not isinstance(config, PairLossSettings) or has_engine(["torch"]):
        return
    known, address = BUILT_IN_PAIR_LOSSES.get(config.pair_loss), _address(service, config.base_url)
    place = "no service computes"
    if known is not None and not known.compares_batch:
        from cookhouse.service.offer import pair_losses_offered

        offered = None if address is None else pair_losses_offered(address)
        if address is None or offered is None or config.pair_loss in offered:
            return
        place = f"{address.base_url or 'the hosted service'} does not compute"
    require_engine(f"pair_loss={config.pair_loss}, which {place},", ["torch"])


def priced(config: C, service: Service) -> tuple[C, str | None]:
    """A config with the prices of the hosted service, where it runs there and nobody named others; and where they come
    from, in words.
    """
    is_open = isinstance(config, SpendingSettings) and config.price_per_million is None
    if not is_open or not is_hosted(service, os.environ, config.base_url):
        return config, None
    from cookhouse.service.offer import prices_of

    found = prices_of(config.model_name)
    if found is None:
        return config, f"the price of {config.model_name} is not known; price_per_million tells it"
    return chz.replace(config, price_per_million=found.text), f"{found.text} for {config.model_name}, {found.source}"


def _takes_default(config_class: type[RunSettings]) -> bool:
    """True if the model is that of the recipe, and none that other settings decide."""
    default = chz.chz_fields(config_class)["model_name"]._munger
    plain = chz.chz_fields(ModelSettings)["model_name"]._munger
    return published_model_of(config_class) is not None or default is plain


def _address(service: Service, base_url: str | None) -> ServiceAddress | None:
    from cookhouse.service.connection import chosen_service

    return None if callable(service) else chosen_service(service, os.environ, base_url)


def _offered(address: ServiceAddress) -> tuple[str, ...] | None:
    from cookhouse.service.offer import models_offered

    return models_offered(address) or None


def _by_table(config_class: type[RunSettings], wanted: str, given: Collection[str]) -> Mapping[str, Any]:
    later = successors(wanted)
    if not later:
        return {"model_name": wanted}
    logger.warning(
        "the service does not say what it offers; %s was retired by %s, and %s is taken in its place",
        *(wanted, AS_OF, later[-1]),
    )
    return _successor(config_class, later[-1], given)


def _successor(config_class: type[RunSettings], model: str, given: Collection[str]) -> Mapping[str, Any]:
    defaults = {name: field._munger for name, field in chz.chz_fields(config_class).items() if name not in given}
    rates = {name: default.published for name, default in defaults.items() if isinstance(default, RateDefault)}
    return {"model_name": model, **rates}


def _not_offered(model: str, offered: Collection[str], address: ServiceAddress) -> InputError:
    place = address.base_url or "the hosted service"
    successor = successor_among(model, offered)
    if successor is not None:
        return InputError(
            f"{model} is not offered at {place}; its successor there is {successor}: set model_name to it"
        )
    return UnknownNameError(f"model at {place}", model, offered, way_out="set model_name to one that it offers")

"""The adapters of a run, by port."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from cookhouse.adapters.ports import PORTS, check_adapter, check_ports, is_synthetic
from cookhouse.adapters.service import EmbeddedEngine, Service, ServiceAddress

if TYPE_CHECKING:
    from cookhouse.blobs import BlobStore
    from cookhouse.data import DatasetStore
    from cookhouse.evals import EvaluatorBuilder
    from cookhouse.models.hub import HubClient
    from cookhouse.registry import ModelRegistry
    from cookhouse.rl import MessageCompleter
    from cookhouse.telemetry import Sink
    from cookhouse.training import Connect

Ask: TypeAlias = Callable[[str], str]
"""Given a question about an existing run directory, returns delete, resume or raise; for the config's `ask` alone."""
OpenCompleter: TypeAlias = "Callable[[str], MessageCompleter]"
"""Opens a completer of the model of that name."""


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Adapters that fill the ports; a port that is None is not there."""

    service: Service = None
    """Trains and samples."""
    teacher: "Connect | None" = None
    """Opens a connection to the service that a teacher's weights are asked at; None: where `teacher_base_url` says,
    else the run's own.
    """
    completer: "OpenCompleter | None" = None
    """Opens completers of the models that answer or play in environments; None: the service samples from them."""
    hub: "HubClient | None" = None
    """Where models and tokenizers are looked up by name; None: the Hugging Face hub."""
    blobs: "BlobStore | None" = None
    """Where the files of a run are put when it ends; None: where `artifact_store` says, if it says anything."""
    evaluators: "Mapping[str, EvaluatorBuilder] | None" = None
    """Evaluators of the weights every `eval_every` steps, besides those that the settings name."""
    registry: "ModelRegistry | None" = None
    """Where models are registered, and named from; None: the one that the settings name, where one is needed."""
    sinks: "Sequence[Sink] | None" = None
    """Where telemetry goes besides the run directory; None: to the terminal."""
    datasets: "DatasetStore | None" = None
    """Opens data sets by id; None: those of the Hugging Face hub, and folders laid out as they are."""
    ask: Ask | None = None
    """Asks the user about an existing run directory; without it, `behavior_if_log_dir_exists=ask` is refused."""
    program: str | None = None
    """How the user calls cookhouse, for the command that continues a run; None: `cookhouse`."""
    name: str | None = None
    """What that command has behind `--adapters`, for ports that are not the command line's own."""

    @classmethod
    def local(cls, **ports: Any) -> "Adapters":
        """Everything on this machine: the local engine, whatever the environment names; and what is given.

        Raises:
            UnknownNameError: there is no such port.
        """
        return _with(cls(service=EmbeddedEngine()), ports)

    @classmethod
    def hosted(cls, *, api_key: str | None = None, base_url: str | None = None, **ports: Any) -> "Adapters":
        """The hosted service, or the one at an address (or in TINKER_BASE_URL), with a key (or that of TINKER_API_KEY);
        and what is given.

        Raises:
            UnknownNameError: there is no such port.
        """
        return _with(cls(service=ServiceAddress(base_url=base_url, api_key=api_key)), ports)

    @classmethod
    def noop(cls, *, seed: int = 0, **ports: Any) -> "Adapters":
        """Adapters that make everything up, the same for the same seed, and say so; and what is given.

        Raises:
            UnknownNameError: there is no such port.
        """
        from cookhouse.blobs import NoopBlobStore
        from cookhouse.data import NoopDatasetStore
        from cookhouse.evals import noop_evaluator
        from cookhouse.models.hub import NoopHub
        from cookhouse.registry import NoopRegistry
        from cookhouse.rl import noop_completer
        from cookhouse.training import NoopService

        service = NoopService(seed)
        made_up = cls(
            service=service,
            teacher=service,
            completer=noop_completer(seed),
            hub=NoopHub(),
            blobs=NoopBlobStore(),
            registry=NoopRegistry(),
            datasets=NoopDatasetStore(),
            evaluators={"noop": noop_evaluator(seed)},
        )
        return _with(made_up, ports)

    @property
    def ports(self) -> frozenset[str]:
        """Names of the ports that are there."""
        return frozenset(PORTS) & self._filled

    @property
    def synthetic(self) -> tuple[str, ...]:
        """Names of the ports whose adapters make things up, in alphabetical order."""
        return tuple(sorted(port for port in self.ports if is_synthetic(getattr(self, port))))

    def overridden_by(self, other: "Adapters") -> "Adapters":
        """These, but for what is there in the other: that is as it is there."""
        return replace(self, **{name: getattr(other, name) for name in other._filled})

    @property
    def _filled(self) -> frozenset[str]:
        return frozenset(each.name for each in fields(self) if getattr(self, each.name) is not None)


def _with(preset: Adapters, ports: Mapping[str, Any]) -> Adapters:
    own = {name: adapter for name, adapter in ports.items() if name not in ("ask", "program", "name")}
    check_ports(own)
    for port, adapter in own.items():
        check_adapter(port, adapter, "the preset")
    return preset.overridden_by(Adapters(**ports))

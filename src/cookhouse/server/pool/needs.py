"""What a command needs memory for, as far as that is told apart when workers are chosen."""

from dataclasses import dataclass, replace

from cookhouse.engine.contract import Create, Fetch, Load, LoraSpec


@dataclass(frozen=True, slots=True)
class Need:
    base_model: str
    lora: LoraSpec | None = None
    """Of the weights beside it, whatever their seed; None: there are none."""
    trains: bool = False

    @classmethod
    def of(cls, command: Create | Load | Fetch) -> "Need":
        shape = replace(command.lora, seed=0)
        return cls(command.base_model, shape, trains=not isinstance(command, Fetch))

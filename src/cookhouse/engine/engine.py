"""Protocol of an engine, as a worker's loop calls it: implemented with torch, and by tests.

An engine knows models (one trained adapter each, or all weights), snapshots (immutable weights that sampling reads) and
samples in flight. Its methods block, and are called from one thread; only `memory_use`, which changes nothing, and what
`copy_state` and `copy_snapshot` return may run in another, since what they write never changes.

Every method raises `InputError` when the caller is to blame, and has then changed nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cookhouse.engine.contract import (
    AdamStep,
    BaseModelInfo,
    ForwardBackward,
    ForwardBackwardOutput,
    LoraSpec,
    MemoryUse,
    Room,
    SampleOutput,
    SampleRequest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFailure:
    """A sampling request failed while it ran."""

    request_id: str
    error: Exception


class Engine(Protocol):
    """Trains adapters over shared frozen base models and samples from snapshots of them."""

    def describe(self) -> str:
        """Device and precision, in words."""

    def memory_use(self) -> MemoryUse:
        """Memory of its caches and its GPU. From any thread, also while another method runs."""

    def base_models(self) -> Sequence[BaseModelInfo]:
        """Models loaded so far or named at start."""

    def room(self) -> Room:
        """Bytes that a new model may take, and base models that are loaded. Asks the machine: not for every token."""

    def create_model(self, model_id: str, base_model: str, lora: LoraSpec) -> None:
        """Add a run that leaves the base model's output unchanged; equal specs give equal adapters.

        Rank 0 trains a copy of all weights, in passes of its own: one run at a time per base model, refused with
        figures where memory does not suffice.
        """

    def delete_model(self, model_id: str) -> None:
        """Free a run's weights, gradient and optimizer state."""

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | Exception]:
        """Run several requests, in order, in as few passes as pay.

        One that is refused (`InputError`) or fails otherwise leaves no gradient behind, and the others as they are.
        """

    def optim_step(self, model_id: str, step: AdamStep) -> Mapping[str, float]:
        """Apply and clear the summed gradient. Metrics hold `grad_norm`, taken before clipping."""

    def save_state(self, model_id: str, folder: Path, *, with_optimizer: bool, with_gradient: bool = False) -> None:
        """Write weights, and with an optimizer its moments and step count, into a new folder, atomically.

        With a gradient: what passes have added up since the last step as well.
        """

    def copy_state(
        self, model_id: str, *, with_optimizer: bool, with_gradient: bool = False
    ) -> Callable[[Path], None] | None:
        """A copy of what `save_state` would write now, as a function that writes it. Safe in another thread.

        None where memory does not suffice for a copy.
        """

    def save_external(self, model_id: str, folder: Path, *, base_name: str) -> None:
        """Write weights into a new folder, atomically, in the form of the hosted service's external weights;
        `base_name` is what others call the base model.
        """

    def load_state(
        self,
        model_id: str,
        base_model: str,
        lora: LoraSpec,
        folder: Path,
        *,
        with_optimizer: bool,
        with_gradient: bool = False,
    ) -> None:
        """Create `model_id`, or overwrite it, from a folder that `save_state` or `copy_snapshot` wrote.

        With a gradient: to the bit what it was, whatever the values; the gradient is zero where the folder holds none.

        Raises `DamagedError` where the folder is to blame, as does `load_snapshot`.
        """

    def snapshot(self, model_id: str, snapshot_id: str) -> None:
        """Fix a model's present weights under an id, for sampling. A copy in memory, no disk."""

    def copy_snapshot(self, snapshot_id: str, *, is_durable: bool) -> Callable[[Path], None]:
        """A function that writes a snapshot into a new folder, atomically; durable: on the disk on return.

        Safe in another thread, and after the snapshot has been deleted.
        """

    def load_snapshot(self, snapshot_id: str, base_model: str, lora: LoraSpec, folder: Path) -> None:
        """Read weights into a snapshot from a folder that `save_state` or `copy_snapshot` wrote."""

    def snapshot_bytes(self, snapshot_id: str) -> int:
        """Memory that a snapshot takes."""

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Free a snapshot once the samples that read it are done."""

    def submit_sample(self, request: SampleRequest) -> None:
        """Queue a request; one that can never fit is refused at once."""

    def cancel_sample(self, request_id: str) -> None:
        """Drop a request and free what it holds; unknown or finished ids are ignored."""

    def has_samples(self) -> bool:
        """True if `step_samples` has anything to do."""

    def step_samples(self) -> Sequence[SampleOutput | SampleFailure]:
        """Admit what fits, advance every running sequence by one token, and return what finished or failed.

        Before these stand the tokens of the step, of each request that is streamed.
        """

"""Viewer of the status: a tenant, and how it sees others."""

from dataclasses import dataclass

from cookhouse.server.access.auth import KeyRing


@dataclass(frozen=True, slots=True)
class Viewer:
    """A tenant. That of the server's first key is its operator, who sees all; the others see themselves, and sums."""

    owner: str
    keys: KeyRing

    @property
    def is_operator(self) -> bool:
        return self.owner == self.keys.operator

    def sees(self, owner: str) -> bool:
        return self.is_operator or owner == self.owner

    def label(self, owner: str) -> str | None:
        """Label of a tenant, also in `/metrics`; None: it is another."""
        return self.keys.label_of(owner) if self.sees(owner) else None

"""Who asks, and what of others is told."""

from dataclasses import dataclass

from cookhouse.server.access.auth import KeyRing

_LABEL_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class Viewer:
    """A tenant. That of the server's first key is its operator, who sees all; the others see themselves, and sums."""

    owner: str
    is_operator: bool

    @classmethod
    def of(cls, owner: str, keys: KeyRing) -> "Viewer":
        return cls(owner, owner == keys.operator)

    def sees(self, owner: str) -> bool:
        return self.is_operator or owner == self.owner

    def label(self, owner: str) -> str | None:
        """What a tenant is called, also in `/metrics`; None: it is another."""
        return label_of(owner) if self.sees(owner) else None


def label_of(owner: str) -> str:
    """The beginning of the digest of a tenant's key."""
    return owner[:_LABEL_CHARACTERS]

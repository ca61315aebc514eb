"""Seeds of sampling requests, a pure function of where they stand in a rollout."""

import hashlib


def derive_seed(group_seed: int, turn: int, member: int, attempt: int = 0) -> int:
    """63 bits of SHA-256 over the four numbers: never negative, and within what the SDK and an int64 carry.

    Members that share a request share the seed of the first of them; sample i of a request is the service's to seed
    apart. A later attempt draws other tokens, since the same ones would fail the same way.
    """
    digest = hashlib.sha256(f"{group_seed}/{turn}/{member}/{attempt}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1

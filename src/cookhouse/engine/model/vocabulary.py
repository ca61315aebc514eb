"""The check of tokens against the vocabulary of a model."""

import numpy as np
from numpy.typing import NDArray

from cookhouse.errors import InputError


def check_tokens(name: str, tokens: NDArray[np.generic], vocab_size: int) -> None:
    """Raise InputError if a token is negative or not in the vocabulary."""
    is_bad = (tokens < 0) | (tokens >= vocab_size)  # type: ignore[operator]
    if is_bad.any():
        where = int(np.argwhere(is_bad)[0][0])
        raise InputError(
            f"{name} holds token {tokens[is_bad][0]} at position {where}; the vocabulary is 0 to {vocab_size - 1}"
        )

"""Query of an address: its numbers and texts, checked."""

import math

from starlette.requests import Request

from cookhouse.errors import InputError

_MAX_TEXT = 1000


def whole(request: Request, name: str, default: int | None, *, most: int = 10**12) -> int | None:
    """A whole number from 0 on.

    Raises:
        InputError: it is none.
    """
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise InputError(f"{name}={text[:80]} is no whole number from 0 on")
    return min(int(text), most)


def real(request: Request, name: str, default: float) -> float:
    """A number.

    Raises:
        InputError: it is none.
    """
    text = request.query_params.get(name, "").strip()
    try:
        value = float(text or default)
    except ValueError as error:
        raise InputError(f"{name}={text[:80]} is no number") from error
    if math.isnan(value):
        raise InputError(f"{name}={text[:80]} is no number")
    return value


def words(request: Request, name: str) -> str:
    """A text; empty where there is none.

    Raises:
        InputError: it is too long.
    """
    text = request.query_params.get(name, "")
    if len(text) > _MAX_TEXT:
        raise InputError(f"{name} has {len(text):,} characters; at most {_MAX_TEXT:,} are looked for")
    return text


def one_of(request: Request, name: str, allowed: tuple[str, ...]) -> str:
    """One of some words; without one, the first.

    Raises:
        InputError: another one.
    """
    text = request.query_params.get(name, "") or allowed[0]
    if text not in allowed:
        raise InputError(f"{name}={text[:80]} is not known; it is one of {', '.join(allowed)}")
    return text

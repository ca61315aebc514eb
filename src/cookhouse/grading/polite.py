"""Whether a request is polite, by rule."""

import re

_POLITE = re.compile(r"(?:could|would|can|will) you please (?P<what>.+)\?", re.IGNORECASE)


async def polite(answer: str, expected: str) -> float:
    """1 for a question such as "Could you please ...?" that asks for what the expected one asks for, else 0; as text,
    but for case and white space at the ends. An expected answer that is no such question asks for anything.
    """
    given, wanted = (_POLITE.fullmatch(text.strip()) for text in (answer, expected))
    if given is None:
        return 0.0
    return float(wanted is None or given["what"].casefold() == wanted["what"].casefold())

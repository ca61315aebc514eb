"""The last message of a prompt, without what a chat template puts around it."""

import re

_AROUND = re.compile(
    r"<[|｜][^<>]{1,40}[|｜]>|</?(?:s|bos|eos|think|start_of_turn|end_of_turn|begin_of_text)>|\[/?INST\]"
    r"|^(?:Human|User|System|Assistant|AI|Question|Answer) *:",
    re.MULTILINE,
)
"""Marks of a message's ends: special tokens of common templates, and roles at the beginning of a line."""
_ROLE = re.compile(r"\s*(?:user|human|system|assistant|model|tool)\s*(?:\n|$)", re.IGNORECASE)
"""The name of a role behind such a mark."""


def last_message(prompt: str) -> str:
    """The last message of a prompt; the whole prompt where nothing in it is known to be a mark."""
    parts = [_ROLE.sub("", part, count=1) if _ROLE.match(part) else part for part in _AROUND.split(prompt)]
    return next((part.strip() for part in reversed(parts) if part.strip()), prompt.strip())

"""`~` in words of the command line that no shell expanded: behind `=`, in quotes, or typed for a program."""

import re
from collections.abc import Sequence
from pathlib import Path

_WITH_PROMPTS = ("sample",)
"""Commands of which a word may be any text."""


def with_home(words: Sequence[str]) -> list[str]:
    """The words, where `~` alone or before a `/` is the home in places, and in values of options; settings, as
    `log_path=~/runs`, are read where they are known.
    """
    is_place = not any(word in _WITH_PROMPTS for word in words[:1])
    begins = r"^(--[\w-]+=|)" if is_place else r"^(--(?!prompt)[\w-]+=)"
    return [re.sub(rf"{begins}~(?=/|$)", lambda found: found[1] + str(Path.home()), word) for word in words]

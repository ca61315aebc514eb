"""Modules that run next to a solution in a sandbox; of most only the texts are used here.

Members:
    plain        values as JSON, so that nothing but plain data leaves a solution's process
    solution     a solution's process: load it with the names that judges give, call a function of it
    judge        a judge's process: tests whose calls go to a solution in another process
    numerals     mathematical answers that are one number, and the unit beside it
    spelling     one spelling for what is written in several, Unicode as LaTeX
    extraction   comparison of mathematical answers by notation and structure; also used outside, as it is quick
    mathematics  the same with algebra
"""

import functools
from importlib.resources import files


@functools.cache
def harness_modules(*names: str) -> dict[str, str]:
    """Sources by the name under which programs import them, in the order given: each after those it imports."""
    folder = files(__name__)
    return {f"harness.{name}": (folder / f"{name}.py").read_text(encoding="utf-8") for name in names}

"""Marks that an answer bears. Each check takes time in proportion to the answer's length, which a model chose."""

import json
import re

_CONSTRAINED = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
# White space before a bullet stays within its line: lines without one are then passed over once.
_STAR_BULLET = re.compile(r"^[^\S\n]*\*[^*].*$", re.MULTILINE)
_DASH_BULLET = re.compile(r"^[^\S\n]*-.*$", re.MULTILINE)
_EMPHASIS = re.compile(r"\*[^\n*]*\*")
_STRONG = re.compile(r"\*\*[^\n*]*\*\*")
_FENCES = ("```json", "```Json", "```JSON", "```")
_POSTSCRIPTS = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}


def has_placeholders(answer: str, num_placeholders: int) -> bool:
    """At least so many, [such as this], each within a line."""
    return sum(map(_num_placeholders, answer.split("\n"))) >= num_placeholders


def has_postscript(answer: str, postscript_marker: str) -> bool:
    """The marker occurs, wherever; within P.S. and P.P.S there may be a space."""
    marker = postscript_marker.strip()
    return bool(re.search(_POSTSCRIPTS.get(marker, re.escape(marker.lower())), answer.lower()))


def has_constrained_response(answer: str) -> bool:
    """One of the three answers that the prompt offers occurs."""
    return any(option in answer for option in _CONSTRAINED)


def is_json(answer: str) -> bool:
    """The whole is JSON, in a fence or not."""
    text = answer.strip()
    for fence in _FENCES:
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def has_sections(answer: str, section_spliter: str, num_sections: int) -> bool:
    """At least so many places where the mark, such as "Section", stands before a number."""
    mark = re.escape(section_spliter.strip())
    return sum(1 for _ in re.finditer(rf"{mark}\s?\d+", answer)) >= num_sections


def has_bullets(answer: str, num_bullets: int) -> bool:
    """Exactly so many lines that begin with * or -; a rule of dashes is one, a rule of stars is none."""
    return len(_STAR_BULLET.findall(answer)) + len(_DASH_BULLET.findall(answer)) == num_bullets


def has_highlights(answer: str, num_highlights: int) -> bool:
    """At least so many, *such* or **such**."""
    single = sum(bool(found.strip("*").strip()) for found in _EMPHASIS.findall(answer))
    double = sum(bool(found.strip("*").strip()) for found in _STRONG.findall(answer))
    return single + double >= num_highlights


def has_title(answer: str) -> bool:
    """<<Something>> within a line."""
    return any(map(_is_title, answer.split("\n")))


def _num_placeholders(line: str) -> int:
    count, start = 0, line.find("[")
    while start >= 0 and (end := line.find("]", start)) >= 0:
        count, start = count + 1, line.find("[", end)
    return count


def _is_title(line: str) -> bool:
    start, end = line.find("<<"), line.rfind(">>")
    return 0 <= start < end and bool(line[start:end].lstrip("<").rstrip(">").strip())

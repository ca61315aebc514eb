"""The language of an answer, by the library `langdetect`, which the published checks use."""

from functools import cache
from typing import Any

from cookhouse.errors import InputError
from cookhouse.extras import install_command


def is_in_language(answer: str, language: str) -> bool:
    """True if `language`, a code such as "en", is the likeliest; of text without a letter any language is.

    The same for the same text: the library draws at random, here always from the same seed. Raises `InputError` where
    it is not installed.
    """
    detector = _library("the language of an answer").create()
    from langdetect.lang_detect_exception import LangDetectException

    detector.append(answer)
    try:
        return bool(detector.detect() == language)
    except LangDetectException:
        return True


def require_language(language: str, instruction: str) -> None:
    """Raise `InputError` unless this can find out whether an answer is in a language, which an instruction asks."""
    known = _library(f"instruction {instruction}").get_lang_list()
    if language not in known:
        raise InputError(
            f"instruction {instruction}: cannot tell language {language!r}, only {', '.join(sorted(known))}"
        )


def _library(what: str) -> Any:
    try:
        return _detectors()
    except ImportError as error:
        raise InputError(f"{what} needs langdetect, to tell languages: {install_command('ifeval')}") from error


@cache
def _detectors() -> Any:
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    factory.seed = 0
    return factory

"""Checks of what an answer has or lacks: words, sentences, paragraphs, marks, capitals, a beginning and an end.

Each check takes time in proportion to the answer's length, which a model chose. Capitals of words and letters do not
matter.
"""

import json
import re
from collections.abc import Sequence

from cookhouse.grading.ifeval.language import is_in_language

_AFTER = r""")";}\]*:@'({[!?"""
# The word before a mark, at most so long: what a model writes without white space is not read again and again.
_END = re.compile(rf"(?P<mark>[.?!]+)(?=[{_AFTER}]|\s+\S)")
_CLOSING = re.compile(r"""["')\]}]+(?=\s|--|$)""")
_WORD_BEFORE = re.compile(r"""[^\s)";}\]*:@({[!?&\#\-,`]*$""")
_WORD_AFTER = re.compile(rf"[^\s{_AFTER}.,&\#`\-]+")
_SEEN = 80

_ABBREVIATED = """
    a.c a.d a.g a.m adm ala apr ariz aug ave b.c b.v bros c calif capt cie co col colo conn corp cos ct d d.c
    dec dr e f feb fla fri ft g ga gen h ill inc jan jr k kan ky l lt ltd m m.b.a maj messrs mg mich minn mr
    mrs ms mt n.c n.j n.v n.y nev nov oct ok okla ore p p.a p.m pa ph.d prof r rep reps rev s s.a s.c sen sep
    sept sr st sw t tenn tues tex u.k u.n u.s u.s.a v va vs vt w w.va wash wed wis yr
"""
_STARTING = """
    a according after all also although an and another as at because but by can do each even first for from he
    her here his how however i if in indeed instead it its last many meanwhile moreover most my nevertheless
    nonetheless of on one or our perhaps she similarly since so some that the their then there therefore these
    they this those though thus under we what when where which while who will with yet you your
"""
_ABBREVIATIONS = frozenset(_ABBREVIATED.split())
_STARTERS = frozenset(_STARTING.split())
"""Written small unless they begin a sentence."""
_NUMBER = re.compile(r"[-+]?\d[\d.,]*")
# A comma or a colon before a digit, and a hyphen, stand within a word.
_WORDS = re.compile(r"(?:[^\s;@#$%&?!()\[\]{}<>\"“”‘’«»—–…,:]|[,:](?=\d))+")
_DASHES = re.compile(r"--|\.\.+")
_PARTED = re.compile(r"(?i)(?<=[^'])(?='(?:[smd]|ll|re|ve)$)|(?<=.)(?=n't$)")
_JOINED = re.compile(r"(?i)(?:(can)(not)|(gim|lem)(me)|(gon)(na)|(got)(ta)|(wan)(na)|(d)('ye)|('t)(is|was))")


def split_sentences(text: str) -> list[str]:
    """Sentences in order, without the white space around them."""
    pieces, start = [], 0
    for found in _END.finditer(text):
        if found.end() > start and _is_end(text, found):
            closing = _CLOSING.match(text, found.end())
            end = closing.end() if closing else found.end()
            pieces.append(text[start:end])
            start = end
    return [piece.strip() for piece in [*pieces, text[start:]] if piece.strip()]


def _is_end(text: str, found: re.Match[str]) -> bool:
    if "?" in found["mark"] or "!" in found["mark"]:
        return True
    before = _WORD_BEFORE.search(text[max(0, found.start() - _SEEN) : found.start()])
    after = _WORD_AFTER.search(text, found.end(), found.end() + _SEEN)
    word, following = (match[0] if match else "" for match in (before, after))
    is_starter = following[:1].isupper() and following.lower() in _STARTERS
    if word.lower() in _ABBREVIATIONS:
        return is_starter
    if len(found["mark"]) > 1:
        return following[:1].isupper()
    if len(word) == 1 and word.isalpha() and following[:1].isalpha():
        return is_starter
    return not (_NUMBER.fullmatch(word) and following[:1].islower())


def split_words(text: str) -> list[str]:
    """The words of a text, in order, without the marks that stand alone."""
    return [part for found in _WORDS.findall(text) for word in _DASHES.split(found) for part in _parts(word) if part]


def _parts(word: str) -> list[str]:
    word = word.strip("'").rstrip(".")
    joined = _JOINED.fullmatch(word)
    return [part for part in joined.groups() if part] if joined else _PARTED.split(word)


RELATIONS = ("less than", "at least")
_STARS = "******"
_WORD = re.compile(r"\w+")
_DIVIDER = "***"
_AFTER_FIRST_WORD = re.compile(r"[.,?!'\"]")
_CONSTRAINED = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
# White space before a bullet stays within its line: lines without one are then passed over once.
_STAR_BULLET = re.compile(r"^[^\S\n]*\*[^*].*$", re.MULTILINE)
_DASH_BULLET = re.compile(r"^[^\S\n]*-.*$", re.MULTILINE)
_EMPHASIS = re.compile(r"\*[^\n*]*\*")
_STRONG = re.compile(r"\*\*[^\n*]*\*\*")
_FENCES = ("```json", "```Json", "```JSON", "```")
_POSTSCRIPTS = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}


def holds(count: int, relation: str, number: int) -> bool:
    """True if `count` is, as the relation says, less than the number or at least it."""
    return count < number if relation == "less than" else count >= number


def has_keywords(answer: str, keywords: Sequence[str]) -> bool:
    """Every one occurs, within other words too."""
    return all(_pattern(keyword).search(answer) for keyword in keywords)


def has_keyword_frequency(answer: str, keyword: str, frequency: int, relation: str) -> bool:
    """Counts what does not overlap, within other words too."""
    return holds(len(_pattern(keyword.strip()).findall(answer)), relation, frequency)


def lacks_words(answer: str, forbidden_words: Sequence[str]) -> bool:
    """None occurs as a word of its own."""
    return not any(re.search(rf"\b{re.escape(word)}\b", answer, re.IGNORECASE) for word in forbidden_words)


def has_letter_frequency(answer: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    return holds(answer.lower().count(letter.lower()), let_relation, let_frequency)


def lacks_commas(answer: str) -> bool:
    return "," not in answer


def _pattern(keyword: str) -> re.Pattern[str]:
    return re.compile(re.escape(keyword), re.IGNORECASE)


def has_capital_words(answer: str, capital_frequency: int, capital_relation: str) -> bool:
    """Counts words without a small letter; "I" is one, also that of "I'm"."""
    return holds(sum(word.isupper() for word in split_words(answer)), capital_relation, capital_frequency)


def is_english_capital(answer: str) -> bool:
    return answer.isupper() and is_in_language(answer, "en")


def is_english_lowercase(answer: str) -> bool:
    return answer.islower() and is_in_language(answer, "en")


def repeats_prompt(answer: str, prompt_to_repeat: str) -> bool:
    """It begins with the request; capitals do not matter."""
    return answer.strip().lower().startswith(prompt_to_repeat.strip().lower())


def has_two_responses(answer: str) -> bool:
    """Two different ones on the sides of six stars; nothing between two such marks is refused."""
    responses = [response.strip() for response in answer.split(_STARS)]
    if not all(responses[1:-1]):
        return False
    written = [response for response in responses if response]
    return len(written) == 2 and written[0] != written[1]


def ends_with(answer: str, end_phrase: str) -> bool:
    """The last words are these, but for quotation marks; capitals do not matter."""
    return answer.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def is_quoted(answer: str) -> bool:
    """The whole stands between double quotation marks."""
    text = answer.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def has_words(answer: str, num_words: int, relation: str) -> bool:
    """Counts runs of letters, digits and underscores: what an apostrophe or a hyphen parts is two."""
    return holds(sum(1 for _ in _WORD.finditer(answer)), relation, num_words)


def has_sentences(answer: str, num_sentences: int, relation: str) -> bool:
    return holds(len(split_sentences(answer)), relation, num_sentences)


def has_paragraphs(answer: str, num_paragraphs: int) -> bool:
    """Exactly so many between lines of ***; none within may be empty."""
    first, *others = (bool(paragraph.strip()) for paragraph in answer.split(_DIVIDER))
    if not others:
        return int(first) == num_paragraphs
    *inner, last = others
    return all(inner) and first + len(inner) + last == num_paragraphs


def has_first_word(answer: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Exactly so many between empty lines, of which the nth begins with a word."""
    paragraphs = answer.split("\n\n")
    num_written = sum(1 for paragraph in paragraphs if paragraph.strip())
    if num_written != num_paragraphs or nth_paragraph > num_written:
        return False
    words = paragraphs[nth_paragraph - 1].split(maxsplit=1)
    if not words:
        return False
    word = words[0].lstrip("'").lstrip('"')
    return _AFTER_FIRST_WORD.split(word, maxsplit=1)[0].lower() == first_word.lower()


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

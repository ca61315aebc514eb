"""Sentences and words of a text.

Sentences are split as NLTK's Punkt tokenizer splits English (Kiss and Strunk, 2006), by rules in place of its data. A
mark ends a sentence where white space or a mark of `_AFTER` follows. A period after an abbreviation, an initial or a
number, and an ellipsis, do so only before certain words. Line breaks alone end nothing.

Words are those of the Penn Treebank: marks stand alone, and so does what follows the apostrophe of "it's".
"""

import re

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

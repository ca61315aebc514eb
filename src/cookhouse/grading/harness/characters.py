"""Unicode's characters of mathematics as LaTeX, and those of other scripts as ASCII."""

import re
import unicodedata

GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"),
    *("nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱˣʸ", "0123456789+-=()nixy")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₙₐₑₓᵢₖₘ", "0123456789+-=()naexikm")
# What each character of the second text stands for.
_CHARACTERS = (
    ("-", "−–‒—―‐‑﹣"),
    ("\\times ", "×✕⨯"),
    ("\\cdot ", "·⋅∙•"),
    ("/", "∕⁄÷"),
    (",", "、，﹐､"),
    (".", "。｡"),
    ('"', "”“„「」『』"),
    ("'", "′’‘´"),
    ("°", "˚º∘"),
    ("|", "∣｜"),
    (" ", "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000\u0009\u000a\u000d"),
    ("", "\u200b\u200c\u200d\u2060\ufeff\ufe0f\u2061\u2062"),
    (":", "∶："),
    ("\\ldots ", "…⋯"),
    ("\\infty ", "∞"),
    ("\\pm ", "±"),
    ("\\mp ", "∓"),
    ("\\le ", "≤⩽"),
    ("\\ge ", "≥⩾"),
    ("\\ne ", "≠"),
    ("\\approx ", "≈"),
    ("\\cup ", "∪"),
    ("\\cap ", "∩"),
    ("\\in ", "∈"),
    ("\\emptyset ", "∅⌀"),
    ("\\mathbb{R}", "ℝ"),
    ("\\mathbb{Z}", "ℤ"),
    ("\\mathbb{N}", "ℕ"),
    ("\\mathbb{Q}", "ℚ"),
    ("\\mathbb{C}", "ℂ"),
    ("\\lfloor ", "⌊"),
    ("\\rfloor ", "⌋"),
    ("\\lceil ", "⌈"),
    ("\\rceil ", "⌉"),
    ("\\angle ", "∠"),
    ("\\triangle ", "△"),
    ("\\to ", "→"),
    ("(", "【"),
    (")", "】"),
    ("\\langle ", "⟨"),
    ("\\rangle ", "⟩"),
    ("\\sum ", "∑"),
    ("\\int ", "∫"),
    ("\\sqrt ", "√"),
    ("\\sqrt[3]", "∛"),
    ("\\sqrt[4]", "∜"),
    ("m^2", "㎡"),
    ("cm^2", "㎠"),
    ("km^2", "㎢"),
    ("m^3", "㎥"),
    ("cm^3", "㎤"),
    ("¥", "￥"),
    ("i", "ı"),
    ("\\permil ", "‰"),
)
_CHARACTER_TABLE = {ord(one): plain for plain, those in _CHARACTERS for one in those}
_BAR, _DOT = "\u0305\u0304", "\u0307"  # combining, behind a digit


def in_latex(text: str) -> str:
    """Characters beyond ASCII as LaTeX where it has them; what else there is stays."""
    if text.isascii():
        return re.sub(r"[\t\n\r]", " ", text)
    text = re.sub(f"((?:\\d[{_BAR}])+)", lambda match: f"\\overline{{{re.sub(f'[{_BAR}]', '', match[1])}}}", text)
    text = re.sub(f"(\\d){_DOT}", r"\\dot{\1}", text)
    text = re.sub("([⁰¹²³⁴-⁹]+)[⁄/∕]([₀-₉]+)", lambda match: f"\\frac{{{_low(match[1])}}}{{{_low(match[2])}}}", text)
    text = re.sub("[⁰¹²³⁴-ⁿⁱˣʸ]+", lambda match: f"^{{{match[0].translate(_SUPERSCRIPTS)}}}", text)
    text = re.sub("[₀-₎ₐₑₓᵢₖₘₙ]+", lambda match: f"_{{{match[0].translate(_SUBSCRIPTS)}}}", text)
    return "".join(map(_latex, text.translate(_CHARACTER_TABLE)))


def _low(text: str) -> str:
    return text.translate(_SUPERSCRIPTS).translate(_SUBSCRIPTS)


def _latex(character: str) -> str:
    if character.isascii():
        return character
    if unicodedata.category(character) == "Nd":
        return str(unicodedata.digit(character))
    kind = unicodedata.decomposition(character).partition(" ")[0]
    if kind == "<fraction>":
        top, _, low = unicodedata.normalize("NFKC", character).partition("\u2044")
        return f"\\frac{{{top}}}{{{low}}}" if top and low else character
    if kind in ("<wide>", "<narrow>", "<font>", "<square>", "<circle>", "<compat>"):
        plain = unicodedata.normalize("NFKC", character)
        return plain if plain.isascii() or len(plain) > 1 else _greek(plain) or plain
    return _greek(character) or character


def _greek(character: str) -> str | None:
    name = unicodedata.name(character, "").replace("LAMDA", "LAMBDA").replace("FINAL ", "")
    words = re.fullmatch(r"GREEK (?:(SMALL|CAPITAL) LETTER )?(\w+)(?: SYMBOL)?", name) or re.fullmatch(
        "(MICRO) (SIGN)", name
    )
    if words is None:
        return None
    letter = "mu" if words[1] == "MICRO" else words[2].lower()
    if letter not in GREEK:
        return None
    return f"\\{letter.capitalize() if words[1] == 'CAPITAL' else letter} "

r"""One spelling for what is written in several: Unicode, plain text and variants of LaTeX, as LaTeX.

`√2`, `sqrt(2)` and `\sqrt2` come out as `\sqrt{2}`, `x**12` as `x^{12}`, `（1，2）` as `(1,2)`. Words in `\text{...}`
stay as they are.
"""

import re
import unicodedata

from .numerals import CJK, CJK_SCALES

_CURVES = (
    *("arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln"),
    "exp",
)
_FUNCTIONS = (*_CURVES, "min", "max", "gcd", "lcm", "det")
_GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"),
    *("nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
)
_SYMBOL = rf"[A-Za-z\d]|\\(?:{'|'.join(_GREEK)})(?![A-Za-z])"
_GROUP = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_SYNTAX = (
    (
        r"(?<=\d)(?:,? ?\\!|\{,\}|\\,|\\thinspace)+ ?(?=\d{3}(?!\d))",
        "",
    ),  # digit groups; a bare comma may separate items
    (r"\\(?:left|right|displaystyle|textstyle|[bB]ig{1,2}[lrm]?|middle)(?![a-zA-Z])\.?", ""),
    (r"(?<!\\)\\(?:!|limits(?![a-zA-Z]))", ""),
    (r"(?<!\\)\\[,;: ]|~|\\(?:q?quad|enspace|thinspace|nobreakspace)(?![a-zA-Z])", " "),
    (r"\\(?:[dtc]|nice|s)frac(?![a-zA-Z])", r"\\frac"),
    (r"\\[dt]binom(?![a-zA-Z])", r"\\binom"),
    (rf"\\(frac|binom)(?![A-Za-z]) ?({_SYMBOL})", r"\\\1{\2}"),
    (rf"\\(frac|binom) ?({_GROUP}) ?({_SYMBOL})", r"\\\1\2{\3}"),
    (r"\{ ?([^{}]+?) ?\\choose(?![a-zA-Z]) ?([^{}]+?) ?\}", r"\\binom{\1}{\2}"),
    (r"\\cosec(?![a-zA-Z])", r"\\csc"),
    (r"\{ ?([^{}]+?) ?\\over(?![a-zA-Z]) ?([^{}]+?) ?\}", r"\\frac{\1}{\2}"),
    (r"^ ?([^{}]+?) ?\\over(?![a-zA-Z]) ?([^{}]+?) ?$", r"\\frac{\1}{\2}"),
    (r"\\mathbf ?\{ ?([RZNQC]) ?\}", r"\\mathbb{\1}"),
    (
        r"\\(?:text(?:bf|rm|it|sf|tt|normal|up)|math(?:rm|bf|sf|tt)|[mh]box|operatorname\*?)(?![a-zA-Z])",
        r"\\text",
    ),
    (r"\{ ?\\(?:rm|bf|it|sf)(?![a-zA-Z]) ?([^{}]*)\}", r"\\text{\1}"),
    (r"\\(?:[bf]?box(?:ed)?|underline|boldsymbol|bm|math(?:it|normal|bin|ord)|(?:text)?color ?\{\w+\}) ?(?=\{)", ""),
    (r"\\var(phi|epsilon|theta|rho|sigma)(?![a-zA-Z])", r"\\\1"),
    (r"\\(?:geqslant|geq)(?![a-zA-Z])", r"\\ge"),
    (r"\\(?:leqslant|leq)(?![a-zA-Z])", r"\\le"),
    (r"\\neq(?![a-zA-Z])", r"\\ne"),
    (r"\\(?:dots|cdots|ldots|dotsc)(?![a-zA-Z])|\.{3,}", r"\\ldots "),
    (r"\\bigcup(?![a-zA-Z])", r"\\cup"),
    (r"\\(?:backslash|smallsetminus)(?![a-zA-Z])", r"\\setminus"),
    (r"(?<![\d.])\\(?:text|overline) ?\{ ?([0-9A-Za-z]*\d[0-9A-Za-z]*) ?\} ?(?=_)", r"\1"),
    (rf"\^ ?(\\frac ?{_GROUP} ?{_GROUP})", r"^{\1}"),
    (r"_ ?\{? ?(?:\\text ?\{ ?)?base[ -]?(\d{1,2}) ?\}{1,2}", r"_{\1}"),
    (r"(?<![A-Za-z])per cent(?![A-Za-z])", "percent"),
    (r"\\(?:varnothing|O)(?![a-zA-Z])", r"\\emptyset"),
    (r"\\(?:R(?![a-zA-Z])|(?:mathbb|Bbb|mathds) ?(?:\{ ?R ?\}|R))", r"\\mathbb{R}"),
    (r"\\lg(?![a-zA-Z])", r"\\log_{10}"),
    (r"\\%|\\text ?\{ ?%+ ?\}", "%"),
    (r"\\(?:lbrace(?![a-zA-Z])|\{)", r"\\{"),
    (r"\\(?:rbrace(?![a-zA-Z])|\})", r"\\}"),
    (r"(?<!\\)\\[()\[\]]", " "),
    (r"\\text ?\{ ?(e|i|d) ?\}(?= ?[\^_(\\]|$)", r"\1"),
    (rf"\\text ?\{{ ?({'|'.join(_FUNCTIONS)}) ?\}}(?= ?(?:[\^_({{]|\\(?!text)))", r"\\\1"),
    (rf"(?<=[\d)}}%])( ?)\\text ?\{{ ?([{CJK}/]+) ?\}}", r"\1\2"),
    (r"\s+", " "),
)
# Outside `\text{...}`, where there is anything but words. A unit such as `sec` takes no argument.
_ARGUMENT = r"(?= ?[({^_\\\d]| [A-Za-z](?![A-Za-z]))"
_PLAIN = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\*\*", "^"),
        (r"^ ?<([^<>]*,[^<>]*)> ?$", r"\\langle \1\\rangle "),
        (r"<=", r"\\le "),
        (r">=", r"\\ge "),
        (r"(?<![\d)n])!=", r"\\ne "),
        (r"\+ ?/ ?-", r"\\pm "),
        (r"(?<![\\A-Za-z])(?:[Ii]nfinity|inf|infty|oo)(?![A-Za-z])", r"\\infty "),
        (r"(?<![\\A-Za-z])union(?![A-Za-z])", r"\\cup "),
        (r"(?<![\\A-Za-z])a(?=(?:sin|cos|tan) ?[(\d])", "arc"),
        (r"(?<![\\A-Za-z])log_?(\d+)(?= ?\()", r"\\log_{\1}"),
        (rf"(?<![\\A-Za-z])lg{_ARGUMENT}", r"\\log_{10} "),
        (r"(?<![\\A-Za-z])cosec(?![A-Za-z])", "csc"),
        (r"(?<![\w./^{(])(\d+)/(\d+) (?=\\?[A-Za-z])", r"\\frac{\1}{\2} "),
        (r"^([-+]? ?)\(([-+]?\d+)\) ?/ ?(?=[\d(])", r"\1\2/"),
        (r"(?<=\d)/ ?\((\d+)\)$", r"/\1"),
        (r"^(\d+) ?/ ?\(- ?(\d+)\)$", r"-\1/\2"),
        (r"^([A-Za-z]) in (?=[\[(\\])", r"\1 \\in "),
        (r"(?<![\\A-Za-z\d])(\d+|[A-Za-z]) choose (\d+|[A-Za-z])(?![A-Za-z\d])", r"\\binom{\1}{\2}"),
        (r"(?<![\\A-Za-z])(?:Pi|PI)(?![A-Za-z])", r"\\pi "),
        (r"/ ?(\d+) i(?![A-Za-z])", r"/\1\\cdot i"),
        (r"(?<![\d./])(?<!/ )([\d.]*\d) ?\* ?(?=[A-Za-z\\])", r"\1"),  # `1/2*x` is no `1/2x`
        (r"(?<![\\A-Za-z])(?:binom(?:ial)?|comb|nCr) ?\(([^(),]+),([^(),]+)\)", r"\\binom{\1}{\2}"),
        (rf"(?<![\\A-Za-z])sqrt{_ARGUMENT}", r"\\sqrt "),
        (r"(?<![\\A-Za-z])cbrt(?= ?\()", r"\\sqrt[3]"),
        (rf"(?<![\\A-Za-z])({'|'.join(_CURVES)}){_ARGUMENT}", r"\\\1 "),
        (rf"(?<![\\A-Za-z])({'|'.join(_GREEK)})(?![A-Za-z])", r"\\\1 "),
        (r"(?<![\w.])0[xX]([0-9A-Fa-f]+)(?![\w.])", r"\1_{16}"),
        (r"(?<![\w.])0[bB]([01]+)(?![\w.])", r"\1_{2}"),
        (r"(?<![\w.])0[oO]([0-7]+)(?![\w.])", r"\1_{8}"),
        (r"\^ ?([-+]? ?\d{2,}|[-+] ?\d|- ?[A-Za-z](?![A-Za-z]))", r"^{\1}"),
    )
)
_CALLS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\\exp ?(?=\()"), "e^{%s}"),
    (re.compile(r"\\sqrt ?(?P<index>\[\d+\])? ?(?=\()"), "\\sqrt%s{%s}"),
    (re.compile(r"\^ ?(?=\()"), "^{%s}"),
    (re.compile(r"(?<![\\A-Za-z])abs ?(?=\()"), "|%s|"),
    (re.compile(r"(?<![\\A-Za-z])floor ?(?=\()"), "\\lfloor %s\\rfloor "),
    (re.compile(r"(?<![\\A-Za-z])ceil ?(?=\()"), "\\lceil %s\\rceil "),
    (re.compile(r"(?<![\\A-Za-z])factorial ?(?=\()"), "(%s)!"),
)
_ROOT = re.compile(r"\\sqrt ?(\[\d+\])? ?(\d+(?:\.\d+)?|[A-Za-z]|\\[A-Za-z]+(?![A-Za-z]| ?\{))")
_PHRASES = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"(?:the )?(?:set of )?(?:all )?(?:the )?real(?:s| numbers)|(?:全体|所有)?实数集?", r"\\mathbb{R}"),
        (r"(?:the )?(?:empty|null) ?set|空集|\\?\{ ?\\?\}", r"\\emptyset"),
        (r"dne|does(?: not|n't) exist|不存在", r"\\text{does not exist}"),
        (r"(?:there (?:is|are) )?no solutions?|无解|無解", r"\\text{no solution}"),
        (r"(?:there (?:is|are) )?no real solutions?|无实数解", r"\\text{no real solution}"),
        (r"(?:positive|plus) infinity|正无穷大?", r"\\infty"),
        (r"(?:negative|minus) infinity|负无穷大?", r"-\\infty"),
        (r"undefined|(?:is )?not defined", r"\\text{undefined}"),
    )
)
_LEAD = re.compile(
    r"(?:(?:\\text ?\{ ?)?(?:the )?(?:final |correct )?answer(?: is)? ?[:=]? ?(?:\}| )"
    r"|(?:故|所以)?(?:正确)?(?:答案|选项?|答)[是为:]*"
    r"|(?:approximately|approx\.?|about|roughly) (?=[-\d\\(])) ?(?=\S)",
    re.IGNORECASE,
)
_CHINESE = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"百分之 ?(\d+(?:\.\d+)?)", r"\1%"),
        (r"(\d+) ?分之 ?(\d+)", r"\\frac{\2}{\1}"),
        (r"(?<=\d) ?比 ?(?=\d)", ":"),
        (r"负(?=\d)", "-"),
        (r"约(?=\d)", ""),
        (r"(?<=[\d)}]) ?(?:或者?|和|与|及) ?(?=[-\dA-Za-z(\\])", ", "),
        (rf"(?<=\d) ?({'|'.join(CJK_SCALES)})(?![米克瓦卡焦])", r" \1 "),
    )
)
_WORDS = re.compile(r"[A-Za-z][A-Za-z '.,-]*")
_MATHEMATICAL_WORDS = frozenset((*_GREEK, *_FUNCTIONS, "infinity", "inf", "infty", "sqrt", "union", "oo"))
_QUOTES = ("**", '"', "'", "`")
_SUCH_THAT = re.compile(
    r"\\?\{ ?[A-Za-z] ?(?:\\in ?\\mathbb ?\{R\} ?)?(?:\\mid|\||:|\\vert) ?(?P<what>[^{}]*?[<>=\\][^{}]*?) ?\\?\}"
)
_OR = re.compile(r" ?(?:(?<![A-Za-z\\])or(?![A-Za-z])|\\text ?\{ ?or ?\}|\\cup(?![a-z])|\\lor(?![a-z])) ?")
_INEQUALITY = re.compile(r"(?P<name>[A-Za-z]) ?(?P<how><|>|\\le(?![a-z]) ?|\\ge(?![a-z]) ?) ?(?P<bound>[^<>=,;]+)")
_SIDES = {"<": "(-\\infty,{})", "\\le": "(-\\infty,{}]", ">": "({},\\infty)", "\\ge": "[{},\\infty)"}
_OPEN_INTERVAL = re.compile(r"([\[\](])([^\[\]]*[,;][^\[\]]*)([\[\])])")
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


def spelled(text: str) -> str:
    """The text in one spelling; white space stays, as one blank."""
    text = _in_latex(re.sub(r"^\s*([A-J])、", r"\1) ", text)).strip()
    dollars = re.findall(r"(?<!\\)\$", text)
    text = re.sub(r"(?<!\\)\$", "" if len(dollars) % 2 == 0 else r"\\$", text)
    for pattern, replacement in _SYNTAX:
        text = re.sub(pattern, replacement, text)
    text = _LEAD.sub("", _unwrapped(text.strip()), count=1) if _LEAD.match(text.strip()) else _unwrapped(text.strip())
    for chinese, replacement in _CHINESE:
        text = chinese.sub(replacement, text)
    text = _plain(_phrase(text.rstrip(".,; ")))
    for call, form in _CALLS:
        text = _with_arguments(text, call, form)
    text = _ROOT.sub(lambda match: f"\\sqrt{match[1] or ''}{{{match[2]}}}", text)
    text = re.sub(r" +", " ", text).strip().rstrip(".,;").strip()
    text = re.sub(r"^(?:=|\\approx(?![a-z])) ?", "", text)
    return _union(re.sub(r"^([-\d./]+) ?= ?([A-Za-z])$", r"\2 = \1", text))


def _unwrapped(text: str) -> str:
    """Without what marks the whole as bold, a quotation or code."""
    for quote in _QUOTES:
        inner = text.removeprefix(quote).removesuffix(quote)
        if len(inner) == len(text) - 2 * len(quote) and quote not in inner:
            text = inner.strip()
    return text


def _phrase(text: str) -> str:
    words = re.fullmatch(r"\\text ?\{([^{}]*)\}", text)
    said = (words[1] if words else text).strip().rstrip(".")
    for pattern, replacement in _PHRASES:
        if match := pattern.fullmatch(said):
            return match.expand(replacement)
    return text


def _plain(text: str) -> str:
    if _WORDS.fullmatch(text) and not _MATHEMATICAL_WORDS.issuperset(re.findall(r"[a-z]{3,}", text.lower())):
        return text
    parts = re.split(r"(\\text ?\{[^{}]*\}|\\(?:begin|end) ?\{\w+\})", text)
    for place in range(0, len(parts), 2):
        for pattern, replacement in _PLAIN:
            parts[place] = pattern.sub(replacement, parts[place])
    return "".join(parts)


def _with_arguments(text: str, call: re.Pattern[str], form: str) -> str:
    """Rewrite what stands in parentheses behind each call."""
    start = 0
    while match := call.search(text, start):
        depth = 0
        for end in range(match.end(), len(text)):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            if depth == 0:
                break
        else:
            return text
        inner = text[match.end() + 1 : end]
        values = (match.groupdict().get("index") or "", inner) if "index" in match.groupdict() else (inner,)
        text = text[: match.start()] + form % values + text[end + 1 :]
        start = match.start() + 1
    return text


def _union(text: str) -> str:
    r"""`x<1` or `x>3` as `(-\infty,1)\cup(3,\infty)`."""
    parts = [_INEQUALITY.fullmatch(part) for part in _OR.split(text)]
    if len(parts) < 2 or None in parts or len({part["name"] for part in parts if part}) > 1:
        return _interval(text)
    sides = ((part["how"].strip(), part["bound"]) for part in parts if part)
    return "\\cup ".join(_SIDES[how].format(bound) for how, bound in sides)


def _interval(text: str) -> str:
    r"""`]1,2[` as `(1,2)`, and `\{x \mid x>2\}` as its condition."""
    if such_that := _SUCH_THAT.fullmatch(text):
        return such_that["what"]
    match = _OPEN_INTERVAL.fullmatch(text)
    if match and (match[1] == "]" or match[3] == "["):
        return f"{'(' if match[1] in '](' else '['}{match[2]}{')' if match[3] in '[)' else ']'}"
    return text


def _in_latex(text: str) -> str:
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
    if letter not in _GREEK:
        return None
    return f"\\{letter.capitalize() if words[1] == 'CAPITAL' else letter} "

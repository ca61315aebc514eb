"""Notations of mathematics: for a whole number, how it or something made of it is written, and the plain LaTeX of that.

What one writes of a number is right for the same number and near to others, for which it must earn nothing.
"""

from collections.abc import Callable, Iterator

Notation = Callable[[int], tuple[str, str]]
_WIDE = str.maketrans("0123456789,()", "０１２３４５６７８９，（）")
_ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
NUMBERS = (2, 7, 13, 46, 120, 385)


def _grouped(number: int, separator: str) -> str:
    return f"{number * 1_000_000 + 4321:,}".replace(",", separator)


def _in_base(number: int, base: int) -> str:
    return (_in_base(number // base, base) if number >= base else "") + str(number % base)


def _period(number: int) -> str:
    return f"{number}/{10 ** len(str(number)) - 1}"


# Numbers, sets and words: decided without algebra.
NUMERALS: dict[str, Notation] = {
    "wide": lambda n: (f"{n}".translate(_WIDE), f"{n}"),
    "arabic": lambda n: (f"{n}".translate(_ARABIC), f"{n}"),
    "yuan": lambda n: (f"{n}元", f"{n}"),
    "area": lambda n: (f"{n}平方厘米", f"{n}\\text{{ cm}}^2"),
    "ten thousands": lambda n: (f"{n}万", f"{n}0000"),
    "ten thousand people": lambda n: (f"{n} 万人", f"{n}0000"),
    "million": lambda n: (f"{n} million dollars", f"{n}000000"),
    "percent": lambda n: (f"百分之{n}", f"{n}\\%"),
    "share": lambda n: (f"{n + 1}分之{n}", f"\\frac{{{n}}}{{{n + 1}}}"),
    "groups by blanks": lambda n: (_grouped(n, " "), f"{n}004321"),
    "groups by apostrophes": lambda n: (_grouped(n, "'"), f"{n}004321"),
    "groups by points": lambda n: (_grouped(n, "."), f"{n}004321"),
    "groups by thin blanks": lambda n: (_grouped(n, "\u202f"), f"{n}004321"),
    "half": lambda n: (f"{n}½", f"{2 * n + 1}/2"),
    "fraction slash": lambda n: (f"{n}⁄{n + 2}", f"\\frac{{{n}}}{{{n + 2}}}"),
    "minus in front": lambda n: (f"-({n}/{n + 1})", f"-\\frac{{{n}}}{{{n + 1}}}"),
    "over": lambda n: (f"{n} \\over {n + 2}", f"\\frac{{{n}}}{{{n + 2}}}"),
    "raised power": lambda n: (f"{n}×10⁻³", f"{n / 1000:.3f}"),
    "power in plain text": lambda n: (f"{n}.02 x 10^12", f"{n}.02 \\times 10^{{12}}"),
    "period in brackets": lambda n: (f"0.({n})", _period(n)),
    "period under a bar": lambda n: (f"0.\\overline{{{n}}}", _period(n)),
    "period before dots": lambda n: (f"0.{f'{n}' * 3}...", _period(n)),
    "period under a combining bar": lambda n: ("0." + "".join(f"{digit}\u0305" for digit in str(n)), _period(n)),
    "base": lambda n: (f"{_in_base(n, 7)}_7", f"{_in_base(n, 7)}_{{7}}"),
    "base in words": lambda n: (f"{_in_base(n, 8)} (base 8)", f"{_in_base(n, 8)}_8"),
    "lowered base": lambda n: (f"{_in_base(n, 9)}₉", f"{_in_base(n, 9)}_{{\\text{{nine}}}}"),
    "hexadecimal": lambda n: (f"0x{n + 16:x}", f"{n + 16:X}_{{16}}"),
    "pair": lambda n: (f"({n},5)".translate(_WIDE), f"({n},5)"),
    "set": lambda n: (f"{{{n}；5}}", f"\\{{5,{n}\\}}"),
    "or": lambda n: (f"x=3或x={n}", f"{n}, 3"),
    "open interval": lambda n: (f"]0; {n}[", f"(0, {n})"),
    "infinite interval": lambda n: (f"(-infinity, {n}]", f"(-\\infty,{n}]"),
    "choice": lambda n: (f"\\textbf{{({'ABCDEFGHIJ'[n % 10]})}}\\ {n}", "ABCDEFGHIJ"[n % 10]),
    "text of a choice": lambda n: (f"C) {n}", f"{n}"),
    "frame": lambda n: (f"So \\fbox{{{n}}}.", f"{n}"),
    "box without braces": lambda n: (f"So $\\boxed {n}$.", f"{n}"),
    "box behind a blank": lambda n: (f"\\boxed {{{n}}}", f"{n}"),
    "currency behind": lambda n: (f"{n} €", f"{n}"),
    "ordinal": lambda n: (f"{n}th", f"{n}"),
    "approximately": lambda n: (f"x ≈ {n}.5", f"{n}.5"),
    "matrix in plain text": lambda n: (f"[[1,{n}],[3,4]]", f"\\begin{{pmatrix}}1&{n}\\\\3&4\\end{{pmatrix}}"),
}
# Expressions: what differs, algebra must tell apart.
EXPRESSIONS: dict[str, Notation] = {
    "root": lambda n: (f"√{n}", f"\\sqrt{{{n}}}"),
    "root of a sum": lambda n: (f"(1+sqrt({n}+x))/2", f"\\frac{{1+\\sqrt{{x+{n}}}}}{{2}}"),
    "cube root": lambda n: (f"∛{n}", f"\\sqrt[3]{{{n}}}"),
    "raised": lambda n: (f"x{f'{n}'.translate(_RAISED)}+1", f"x^{{{n}}}+1"),
    "stars": lambda n: (f"2**{n}", f"2^{{{n}}}"),
    "bare power": lambda n: (f"x^{n}", f"x^{{{n}}}"),
    "pi": lambda n: (f"{n}*pi/11", f"\\frac{{{n}\\pi}}{{11}}"),
    "exp": lambda n: (f"exp({n})-1", f"e^{{{n}}}-1"),
    "logarithm": lambda n: (f"log_{n + 1}(3)", f"\\log_{{{n + 1}}} 3"),
    "function": lambda n: (f"arctan(1/{n})", f"\\tan^{{-1}}\\frac{{1}}{{{n}}}"),
    "lowered": lambda n: (f"x{f'{n}'.translate(_LOWERED)}+1", f"x_{{{n}}}+1"),
    "at most": lambda n: (f"x ≤ {n}", f"x \\leqslant {n}"),
    "greek": lambda n: (f"{n}θ", f"{n}\\theta"),
    "tiny factorial": lambda n: (f"1/{n + 30}!", f"\\frac{{1}}{{{n + 30}!}}"),
    "tiny power": lambda n: (f"2^(-{n + 70})", f"\\frac{{1}}{{2^{{{n + 70}}}}}"),
    "tiny exponential": lambda n: (f"e^(-{n + 50})", f"e^{{-{n + 50}}}"),
    "sum with a base": lambda n: (f"{_in_base(n, 7)}_7 + x", f"x + {_in_base(n, 7)}_{{7}}"),
}


def near_misses(notations: dict[str, Notation]) -> Iterator[tuple[str, str, str]]:
    """(notation, what is written of one number, the plain form of another near to it)."""
    for name, notation in notations.items():
        for number in NUMBERS:
            written, plain = notation(number)
            near = (number + 1, number - 1, number * 10, int(str(number)[::-1]), number + 10)
            others = dict.fromkeys(notation(other)[1] for other in near)
            yield from ((name, written, other) for other in others if other != plain)

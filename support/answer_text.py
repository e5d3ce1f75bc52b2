r"""The text of an answer: one spelling for each thing, and the numbers that are written out.

`clean` takes away what only changes the look (`\dfrac`, `\left`, spacing, unicode) and gives each
sign one character (≤, ∪, ±, °). `read_literal` reads a number that needs no arithmetic:
7,425,000 · 2.50 · 1 1/4 · 2\frac{1}{2} · 1.2\times10^{5} · 0.\overline{3}, with a unit, a percent,
dollar or degree sign. `literals_equal` compares two of them as fractions, never as floats.

Nothing here needs sympy, and nothing grows with what a number means, only with the length of its
text: safe in the main process.

Conventions: a percent sign is a unit, and 10% is 0.1 too; a missing unit is forgiven, a different
known one is not; a decimal stands for a number that no decimal can write (1/3) within a relative
1e-6, and for nothing else. 2\frac{3}{2} is no mixed number.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

FUNCTIONS = set(
    "sin cos tan cot sec csc asin acos atan sinh cosh tanh exp ln log lg abs sqrt cbrt floor ceil"
    " arcsin arccos arctan".split()
)
HAS_FUNCTION = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(sorted(FUNCTIONS))})(?![a-z])")

_UNICODE = str.maketrans({
    "−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "÷": "/", "π": "\\pi ", "√": "\\sqrt ",
    "∞": "∞", "≦": "≤", "≧": "≥", "∪": "∪", "θ": "\\theta ", "α": "\\alpha ", "β": "\\beta ",
    "²": "^2", "³": "^3", "½": "\\frac{1}{2}", "¼": "\\frac{1}{4}", "¾": "\\frac{3}{4}",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "（": "(", "）": ")", "，": ",", "’": "'",
    "∈": "∈", "⟨": "(", "⟩": ")", "∅": "∅", "\n": " ", "\t": " ", "\r": " ",
})  # fmt: skip
_COMMANDS = {
    "dfrac": "\\frac", "tfrac": "\\frac", "cfrac": "\\frac",
    "dbinom": "\\binom", "tbinom": "\\binom",
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "pm": "±", "mp": "∓", "infty": "∞",
    "le": "≤", "leq": "≤", "leqslant": "≤", "ge": "≥", "geq": "≥", "geqslant": "≥", "lt": "<",
    "gt": ">", "ne": "≠", "neq": "≠", "in": "∈", "cup": "∪", "cap": "∩", "emptyset": "∅",
    "varnothing": "∅", "land": "∧", "wedge": "∧", "lor": "∨", "vee": "∨", "setminus": "∖",
    "backslash": "∖", "langle": "(", "rangle": ")", "lbrace": "\\{", "rbrace": "\\}", "lbrack": "[",
    "rbrack": "]", "lvert": "|", "rvert": "|", "vert": "|", "mid": "|", "prime": "'", "colon": ":",
    "quad": " ", "qquad": " ", "left": "", "right": "", "displaystyle": "", "textstyle": "",
    "limits": "", "degree": "°", "circ": "∘", "dots": "…", "ldots": "…", "cdots": "…",
    "lparen": "(", "rparen": ")", "imath": "i", "ell": "l", "to": "→", "iff": "=",
    "approx": "≈", "simeq": "≈",
    "varphi": "\\phi", "varepsilon": "\\epsilon", "arcsin": "\\asin", "arccos": "\\acos",
    "arctan": "\\atan", "tg": "\\tan", "ctg": "\\cot", "lg": "\\lg", "nolimits": "",
    "bigl": "", "bigr": "", "Bigl": "", "Bigr": "", "big": "", "Big": "", "bigg": "", "Bigg": "",
    "biggl": "", "biggr": "", "Biggl": "", "Biggr": "", "middle": "", "hfill": "", "rm": "",
}  # fmt: skip
_FONT = re.compile(
    r"\\(text|mbox|hbox|textbf|textit|textrm|texttt|textsf|textnormal|mathrm|mathbf|mathit|mathsf"
    r"|mathcal|boldsymbol|bm|operatorname|mathbb|emph|underline)(?![A-Za-z])\*?\s*(?:\{([^{}]*)\}|([A-Za-z]))"
)
_BASIS = {"i": "\\bi ", "j": "\\bj ", "k": "\\bk "}


def _font(match: re.Match) -> str:
    """Upright or bold maths becomes plain maths, words become \\text{...}."""
    kind, inner = match.group(1).strip(), match.group(2) or match.group(3) or ""
    word = re.sub(r"~|\\[,;: ]", " ", inner).strip()
    if kind == "mathbb":
        return {"R": "ℝ", "Z": "ℤ", "N": "ℕ", "Q": "ℚ", "C": "ℂ"}.get(word, inner)
    if kind in ("mathbf", "boldsymbol", "bm") and word in _BASIS:
        return _BASIS[word]
    is_maths = kind in ("mathit", "mathbf", "mathcal", "boldsymbol", "bm", "underline")
    if is_maths or not re.search("[A-Za-z]", word):
        return f" {inner} "
    if kind in ("mathrm", "operatorname", "mathsf") and not inner.startswith(("~", " ", "\\")):
        if (len(word) == 1 and word not in "mgshLNJVW") or word in FUNCTIONS:
            return f"\\{word} " if len(word) > 1 else word
    if word.strip(" ,;") in ("and", "or"):
        return " ∧ " if "and" in word else " ∨ "
    if word.lower() in ("degrees", "degree"):
        return "°"
    if word.lower() in ("percent", "per cent"):
        return "%"
    return f"\\text{{{word}}}"


@lru_cache(maxsize=8192)
def clean(text: str) -> str:
    """The same answer with one spelling for each thing. Keeps everything that has a meaning."""
    s = text.strip().translate(_UNICODE)
    while True:  # outer maths delimiters and a box in a box
        outer = re.fullmatch(
            r"\$+([^$]*[^$\\])\$+|\\\((.*)\\\)|\\\[(.*)\\\]|\\boxed\{([^{}]*)\}", s
        )
        if not outer:
            break
        s = next(g for g in outer.groups() if g is not None).strip()
    s = s.replace("\\\\", "⏎").replace("\\$", "$").replace("\\%", "%").replace("\\_", "_")
    s = re.sub(r",\s*\\!\s*|\{,\}", ",", s).replace("\\!", "").replace("\\#", "#")
    s = re.sub(r"\\([hv])space\*?\{[^{}]*\}|\\phantom\s*(?:\{[^{}]*\}|[^\\{])", " ", s)
    s = re.sub(r"(\d)(?:\\,|\\ |~)(?=\d{3}(?!\d))", r"\1,", s)  # 10\,000
    s = re.sub(r"\\(?:hat|vec)\s*\{?\s*\\?([ij])math\s*\}?|\\(?:hat|vec)\s*\{?\s*([ijk])\s*\}",
               lambda m: _BASIS[m.group(1) or m.group(2)], s)  # fmt: skip
    for _ in range(3):
        s, before = _FONT.sub(_font, s), s
        if s == before:
            break
    s = re.sub(r"\\[,;:> ]|~", " ", s).replace("\\|", "‖").replace("\\&", "&")
    s = re.sub(
        r"\\([A-Za-z]+) ?",
        lambda m: _COMMANDS.get(m.group(1), f"\\{m.group(1)} "),
        s,
    )
    s = re.sub(r"\^\s*(?:\{\s*∘\s*\}|∘)", "°", s).replace("∘", "°")
    s = re.sub(r"\^\s*\{\s*('+)\s*\}|\^\s*('+)", r"\1\2", s)
    s = re.sub(r"<=|=<", "≤", s).replace(">=", "≥").replace("!=", "≠").replace("**", "^")
    s = re.sub(r"(?<![A-Za-z])(?:np|math|sympy)\.(?=[a-z])", "", s)  # np.sqrt
    s = s.replace("==", "=").replace(":=", "=").replace("\\text {", "\\text{")
    s = re.sub(r"(\\text\{[^{}]*\})|,?\s*(?<![A-Za-z\\])(and|or)(?![A-Za-z])\s*",
               lambda m: m.group(1) or {"and": " ∧ ", "or": " ∨ "}[m.group(2)], s)  # fmt: skip
    s = re.sub(r"(?<=\d)\s*(?:percent|per cent)\b", "%", s)
    s = re.sub(r"(?<=[\d)}])\s*deg(?:rees?)?\b", "°", s)
    s = re.sub(r"(?<![A-Za-z\\{])(?:oo|inf|infty|infinity)(?![A-Za-z}])", "∞", s)
    s = re.sub(r"\^\s*\{?\s*\\text\{(?:st|nd|rd|th)\}\s*\}?", "", s)  # the 3rd
    s = re.sub(r"(\.\d*?)(\d)\2\2+\s*(?:\.\.\.|…)", r"\1\\overline{\2}", s)  # 0.333...
    s = re.sub(r"\s+", " ", s).strip()
    return s.rstrip(" .,;⏎") if not s.endswith("…") else s


_SPACE = re.compile(r"(?<![A-Za-z0-9]) | (?![A-Za-z0-9])")  # 1 1/4 is not 11/4
_LIST_COMMA = re.compile(r"(?<=\d), (?=\d{3}(?!\d))")  # 12, 345 is not 12,345


def same_text(gold: str, prediction: str) -> bool:
    """Equal but for spacing and spelling of the LaTeX. A False says nothing."""
    if len(gold) > 2000 or len(prediction) > 2000:
        return False
    a, b = (_SPACE.sub("", _LIST_COMMA.sub(";", clean(s))) for s in (gold, prediction))
    return bool(a) and a == b


# --- rational literals --------------------------------------------------------------------


class Literal(NamedTuple):
    """A number that is written out: its value, its unit, and whether it was a decimal."""

    value: Fraction
    unit: str
    decimal: bool


_NUM = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)"
_LITERAL = re.compile(
    rf"""(?P<sign>[-+]?)\s*(?:
      (?P<num>{_NUM}|\d{{1,3}}(?:[ ]\d{{3}})+)
      (?:[eE](?P<e>[-+]?\d+)|\s*[*x]\s*10\s*\^\s*(?:\{{\s*(?P<p>[-+]?\s*\d+)\s*\}}|(?P<q>[-+]?\d+)))?
    | (?P<power>10)\s*\^\s*(?:\{{\s*(?P<pp>[-+]?\s*\d+)\s*\}}|(?P<pq>[-+]?\d+))
    | (?P<whole>\d+)?\s*\\frac\s*(?:\{{\s*(?P<a>[-+]?\s*{_NUM})\s*\}}|(?P<a1>\d))\s*
        (?:\{{\s*(?P<b>-?\s*{_NUM})\s*\}}|(?P<b1>\d))
    | (?:(?P<whole2>\d+)(?:\s+|\s*-\s*(?=\d+/)))?(?P<c>{_NUM})\s*/\s*(?P<d>-?{_NUM})
    | (?P<rep>\d*\.\d*)\s*\\overline\s*\{{\s*(?P<cycle>\d+)\s*\}}
    )""",
    re.VERBOSE,
)
_UNITS = {
    "cm": "centimeter centimetre", "mm": "millimeter millimetre", "km": "kilometer kilometre",
    "m": "meter metre", "in": "inch inche", "ft": "feet foot", "mi": "mile", "yd": "yard",
    "g": "gram", "kg": "kilogram", "lb": "pound", "oz": "ounce", "s": "sec second",
    "min": "minute", "h": "hr hour", "day": "day", "week": "week", "month": "month",
    "year": "yr year", "l": "liter litre", "ml": "milliliter millilitre", "$": "dollar usd buck",
    "cent": "cent", "unit": "unit", "mph": "mph", "km/h": "kmh kph", "rad": "radian",
    "m/s": "mps", "gal": "gallon", "point": "point pt", "acre": "acre", "n": "newton", "j": "joule",
}  # fmt: skip
_UNIT_NAME = {n: u for u, names in _UNITS.items() for n in [u, *names.split()]}
_PLAIN_UNITS = "|".join(
    sorted((n for n in _UNIT_NAME if len(n) > 1 and n.isalpha() and n != "in"), key=len)[::-1]
)
_ONE_UNIT = (
    r"(?:\\text\{[^{}]*\}|(?<![A-Za-z\\])(?:square |sq\.? |cubic |cu\.? )?"
    rf"(?:{_PLAIN_UNITS})s?(?![A-Za-z]))(?:\s*\^\s*(?:\{{-?\d+\}}|\d))?"
)
_UNIT_TAIL = re.compile(rf"\s*({_ONE_UNIT}(?:\s*(?:[/*]\s*)?{_ONE_UNIT})*)\s*$", re.IGNORECASE)
_LABEL = re.compile(
    r"\s*(?:\\?[A-Za-z]+\s*(?:_(?:\w|\{\w+\}))?'*|\\text\{[^{}]*\})\s*=(?!=)\s*(?=.*\S)"
)
_INTEGER = re.compile(r"-?\d+")


def read_literal(text: str, label: bool = False) -> Literal | None:
    """The rational number that `text` writes out, with its unit; None if it is anything else.

    label: also accept one label before it (`x = 11`).
    """
    if len(text) > 400:
        return None
    return _read_literal(text, label)


@lru_cache(maxsize=65536)
def _read_literal(text: str, label: bool) -> Literal | None:
    if _INTEGER.fullmatch(text):
        return Literal(Fraction(int(text)), "", False)
    body = clean(text)
    if label and body.count("=") == 1:
        body = _LABEL.sub("", body)
    body, unit = split_unit(body)
    while re.fullmatch(r"\([^(),]*\)|\{[^{}]*\}", body):
        body = body[1:-1].strip()
    value = _rational(body)
    if value is None:
        return None
    return Literal(value, unit, "." in body and "\\overline" not in body)


def split_unit(body: str) -> tuple[str, str]:
    """'15\\text{ cm}^2' -> ('15', 'cm^2'). The unit is spelled one way where it is known."""
    unit, sign = "", ""
    if body.startswith("$") or re.match(r"-\s*\$", body):
        body, unit = body.replace("$", "", 1).strip(), "$"
    tail = _UNIT_TAIL.search(body)
    hedge = tail and re.search(r"\b(?:or|and|not)\b|\\text\{[^}]*\d", tail[1])
    if tail and tail.start() > 0 and not hedge:
        body, unit = body[: tail.start()].strip(), _unit_name(tail.group(1))
    inside = body.endswith("°") and HAS_FUNCTION.search(body)
    if body.endswith(("%", "°", "$")) and len(body) > 1 and not inside:  # \tan 15° has no unit
        body, sign = body[:-1].strip(), {"%": "%", "°": "deg", "$": "$"}[body[-1]]
    return body, sign or unit


def _unit_name(text: str) -> str:
    s = re.sub(r"\\text\{([^{}]*)\}", r" \1 ", text).lower().replace("per", "/")
    power = "^2" if re.search(r"\b(square|sq)\b|\^\s*\{?2", s) else ""
    power = "^3" if re.search(r"\b(cubic|cu)\b|\^\s*\{?3", s) else power
    words = [w for w in re.findall(r"[a-z]+|/", s) if w not in ("square", "sq", "cubic", "cu")]
    known = [_UNIT_NAME.get(w) or _UNIT_NAME.get(w.removesuffix("s")) or w for w in words]
    return "".join(known) + power


def _rational(body: str) -> Fraction | None:
    m = _LITERAL.fullmatch(body)
    if not m:
        return None
    try:
        value = _value(m.groupdict())
    except (ValueError, ZeroDivisionError):
        return None
    return -value if value is not None and m["sign"] == "-" else value


def _value(m: dict) -> Fraction | None:
    number = lambda s: Fraction(re.sub(r"[,\s]", "", s).rstrip("."))  # noqa: E731
    if m["rep"] is not None:
        head, cycle = m["rep"], m["cycle"]
        digits = len(head.split(".")[1])
        start = Fraction(head + "0") if head != "." else Fraction(0)
        return start + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10**digits)
    if m["power"]:
        power = int(re.sub(r"\s", "", m["pp"] or m["pq"]))
        return Fraction(10) ** power if abs(power) <= 3000 else None
    if m["num"] is not None:
        power = int(re.sub(r"\s", "", m["e"] or m["p"] or m["q"] or "0"))
        return number(m["num"]) * Fraction(10) ** power if abs(power) <= 3000 else None
    top, bottom = m["a"] or m["a1"] or m["c"], m["b"] or m["b1"] or m["d"]
    value = number(top) / number(bottom)
    whole = m["whole"] or m["whole2"]
    if whole is None:
        return value
    return int(whole) + value if 0 < value < 1 else None  # 2\frac{3}{2} is a product


def literals_equal(gold: Literal, other: Literal) -> bool:
    """Exact, but for percentages, units and decimals that stand for endless ones."""
    a, b = gold.value, other.value
    if units_clash(gold.unit, other.unit):
        return False
    if numbers_close(a, b, gold.decimal, other.decimal):
        return True
    if (gold.unit == "%") != (other.unit == "%"):
        pct, plain = (a, b) if gold.unit == "%" else (b, a)
        return pct == 100 * plain
    return False


def units_clash(a: str, b: str) -> bool:
    signs = {"%", "deg"}
    if a == b or not a or not b:
        return False
    if a in signs or b in signs:
        return True
    base = lambda u: re.split(r"[/^]", u)[0]  # noqa: E731
    known = set(_UNITS)
    return base(a) in known and base(b) in known and "unit" not in (base(a), base(b))


def numbers_close(a: Fraction, b: Fraction, a_decimal: bool, b_decimal: bool) -> bool:
    """Equal; or one is a decimal, the other one that no decimal can write, within 1e-6."""
    if a == b or a_decimal == b_decimal:
        return a == b
    endless = b if a_decimal else a
    rest = endless.denominator
    for p in (2, 5):
        while rest % p == 0:
            rest //= p
    return rest > 1 and abs(a - b) * 10**6 <= abs(endless)


@lru_cache(maxsize=8192)
def looks_unevaluated(answer: str) -> bool:
    """Is it arithmetic that was not carried out (`17+5`, `7 \\cdot 8`, `\\sqrt{4}`)?"""
    s = clean(answer[:400])
    if read_literal(answer, label=True) is not None or not re.search(r"\d", s):
        return False
    rest = re.sub(r"\\(?:frac|sqrt|binom|pi)\b", "+", s)
    return not re.search(r"[A-Za-z,;∧∨=]", rest) and bool(
        rest != s or re.search(r"[-+*/^!(]", s.lstrip("+- "))
    )

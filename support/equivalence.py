r"""Do two maths answers mean the same? Exact where that is possible, math-verify for the rest.

`equivalent(gold, prediction)` works down a ladder and stops at the first step that knows:

1. the two texts, cleaned (`answer_text.py`)
2. rational literals, as fractions (`answer_text.py`)
3. words, base numbers (52_8), ratios and clock times
4. structure: labels and equations, lists, sets, tuples, vectors, matrices, intervals and
   inequalities; what is inside is compared by this same ladder
5. expressions, read whole and compared at 900 digits (`expressions.py`)
6. math-verify, when the gold cannot be read here or a sum, integral, product or limit occurs;
   gold always as `$\boxed{gold}$`, order (gold, prediction)

Only for a child process (`verifier_process.py`), which has a clock and can be killed. No eval,
sympify or parse_expr on a model's text: math-verify's plain-expression reader, which has one, is
left out of its configuration.

Conventions (ours): degrees are a unit, and name the same angle as radians where pi is written; a
base subscript is part of the number; multiplicity counts in a list, not between braces; order
counts in a tuple and in a list of differently labelled values, not in other lists; a tuple is no
set; the name of a function is free (f(x) = y), other names are not; an equation is the same after
multiplying by a constant.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from support.answer_text import (
    FUNCTIONS,
    clean,
    literals_equal,
    numbers_close,
    read_literal,
    same_text,
    split_unit,
    units_clash,
)
from support.expressions import (
    TooBig,
    Unreadable,
    is_real,
    numbers_equal,
    proportional,
    read,
    substitute,
    symbols,
    trees_equal,
    value_at,
)

__all__ = ["TooBig", "equivalent", "math_verify_says", "warm_up"]

# --- 3. words, bases, clocks -----------------------------------------------------------------

_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_WORD_COMMA = re.compile(r"[,;∧∨]|\band\b|\bor\b")


def _words(s: str, marked: bool = False) -> tuple[str, bool] | None:
    """(folded words, were they marked as text) if this is a word answer; None for maths.

    marked: read it as words wherever that is possible.
    """
    plain, forced, marked = _TEXT.sub(r" \1 ", s), marked, marked or "\\text" in s
    if not re.fullmatch(
        r"[\w\s()'’.,:;!?&/∧∨-]+" if marked else r"[A-Za-z\s()'’.-]+", plain.strip()
    ):
        return None
    outside = _TEXT.sub(" ", s)
    if not forced and marked and (re.search(r"\d", outside) or _has_function(outside)):
        return None
    if (
        not re.search("[A-Za-z]", plain)
        or plain.strip()[0] in "-+"
        or (marked and re.match(r"\s*[-\d.]+\s*\\text", s))
    ):
        return None
    parts = [re.sub(r"[\W_]", "", w.casefold()) for w in _WORD_COMMA.split(plain)]
    return ",".join(sorted(filter(None, parts))), marked


_EMPTY = {"∅", "\\{\\}", "\\{ \\}"}
_NO_SOLUTION = {"nosolution", "nosolutions", "emptyset", "norealsolution", "norealsolutions"}


def _same_words(g: str, p: str) -> bool | None:
    """Word answers, whatever their case; None when neither side must be one."""
    a, b = _words(g), _words(p)
    if g in _EMPTY or p in _EMPTY:
        empty = [s in _EMPTY or bool(w and w[0] in _NO_SOLUTION) for s, w in ((g, a), (p, b))]
        return all(empty) if all(empty) or a or b else None
    if a and a[1]:
        return (b := _words(p, marked=True)) is not None and a[0] == b[0]
    if b and b[1]:
        return (a := _words(g, marked=True)) is not None and a[0] == b[0]
    if re.fullmatch("[A-Z]{3,}", g):
        return g == p.strip("()")  # a name such as PQRS, not a product of letters
    if a and b:
        if len(a[0]) >= 3 and a[0] == b[0]:
            return True
        if any(re.search(r"[A-Za-z]{5}|[A-Za-z]{2}\s+[A-Za-z]{2}", x) for x in (g, p)):
            return False if not _has_function(g + p) else None
    return None


def _has_function(s: str) -> bool:
    return any(name in s for name in (*FUNCTIONS, "pi"))


_NUMBER_WORD = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
                "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "sixteen": 16}  # fmt: skip
_BASE = re.compile(
    r"\(?(-?(?:\d[\dA-Fa-f]*(?:\.[\dA-F]+)?|[A-Fa-f]+\d[\dA-Fa-f]*))\)?\s*"
    r"(?:_\s*(?:\{\s*\(?\s*(?:base\s*)?(\w+)\s*\)?\s*\}|(\d+))|\(?\s*(?:in )?base[\s-]*(\w+)\s*\)?)"
)


def base_number(s: str) -> tuple[str, str] | None:
    """('52', '8') for 52_8, 52_{\\text{eight}} and 52 \\text{ (base 8)}."""
    plain = _TEXT.sub(lambda m: m[1] if len(m[1]) < 3 else f" {m[1]} ", s)
    m = _BASE.fullmatch(re.sub(r"(?<=\w) (?=\w+\s*_)", "", plain.strip()))
    if not m:
        return None
    base = (m[2] or m[3] or m[4]).lower()
    return m[1].lstrip("0").upper() or "0", str(_NUMBER_WORD.get(base, base))


_COLON = re.compile(r"(\d+(?:\s*:\s*\d+)+)\s*(?:([ap])\.?\s*m\.?)?", re.IGNORECASE)


def _same_colon(g: str, p: str) -> bool | None:
    """Clock times (9:24 = 09:24, and never 3:8) and ratios (1:2 = 2:4 = 1/2)."""
    a, b = (
        _COLON.fullmatch(re.sub(r"(?<=\d)\s+to\s+(?=\d)", ":", _TEXT.sub(r" \1 ", s)).strip())
        for s in (g, p)
    )
    if not a:
        return False if b and read_literal(g) is None else None
    x = [int(n) for n in a[1].split(":")]
    y = [int(n) for n in b[1].split(":")] if b else []
    half_day = (a[2] or "").lower(), (b[2] or "").lower() if b else ""
    clock = bool(a[2]) or (re.fullmatch(r"\d?\d(:\d\d)+", a[1].replace(" ", "")) and x[0] < 25)
    if b and x == y:
        return not all(half_day) or half_day[0] == half_day[1]
    if clock or not all(x):
        return False
    if b is None:
        other = read_literal(p, label=True)
        return bool(other) and len(x) == 2 and other.value == Fraction(x[0], x[1])
    return len(x) == len(y) and all(u * y[0] == v * x[0] for u, v in zip(x, y))


# --- 4. structure ----------------------------------------------------------------------------

_PIECE = re.compile(r"\\begin ?\{\w+\*?\}|\\end ?\{\w+\*?\}|\\.|.", re.DOTALL)


def split_top(s: str, separators: str) -> list[str]:
    """Split at separators outside all brackets, braces and environments."""
    parts, depth, last = [], 0, 0
    for m in _PIECE.finditer(s):
        tok = m.group()
        if tok in ("(", "[", "{", "\\{") or tok.startswith("\\begin"):
            depth += 1
        elif tok in (")", "]", "}", "\\}") or tok.startswith("\\end"):
            depth -= 1
        elif depth == 0 and len(tok) == 1 and tok in separators:
            parts.append(s[last : m.start()].strip())
            last = m.end()
    return [*parts, s[last:].strip()]


def _items(s: str, merge: bool = True) -> list[str]:
    """The members of a list. merge: 1,234 is one number, 1, 234 are two."""
    if merge:
        s = re.sub(
            r"(?<![\d,.])[1-9]\d{0,2}(?:,\d{3})+(?!,?\d)",
            lambda m: m[0] if _depth(s, m.start()) else m[0].replace(",", ""),
            s,
        )
    parts = split_top(s, ",;∧∨")
    return [p for p in parts if p] or [s]


def _depth(s: str, at: int) -> int:
    """How many round or square brackets are open at a place."""
    before = s[:at]
    return sum(before.count(c) for c in "([") - sum(before.count(c) for c in ")]")


def _inside(s: str, opening: str = "([", closing: str = ")]") -> str | None:
    """What stands between one pair of brackets around all of s."""
    if len(s) < 2 or s[0] not in opening or s[-1] not in closing:
        return None
    if opening == "|":
        return s[1:-1].strip() if s.count("|") == 2 else None
    return s[1:-1].strip() if _is_one_group(s) else None


def _is_one_group(s: str) -> bool:
    """Does the bracket that opens s close only at its end?"""
    depth = 0
    for m in _PIECE.finditer(s):
        depth += (m[0] in ("(", "[", "{", "\\{")) - (m[0] in (")", "]", "}", "\\}"))
        if depth <= 0:
            return m.end() == len(s)
    return False


def _braced(s: str) -> str | None:
    """What stands between \\{ and \\} (or bare braces with a comma) around all of s."""
    if s.startswith("\\{") and s.endswith("\\}"):
        return s[2:-2].strip() if _is_one_group(s) else None
    return _inside(s, "{", "}") if "," in s else None


def _bracketed(s: str) -> list[str] | None:
    """Members of (a, b, ...) or [a, b, ...]; at least two."""
    inner = _inside(s)
    if inner is None:
        return None
    # (1,234) is a pair; in (1,000, 2,000) the spaced comma separates
    parts = _items(inner, merge=bool(re.search(r",\s", inner)))
    return parts if len(parts) > 1 and "∨" not in inner else None


_MATRIX = re.compile(
    r"(.*?)\\begin ?\{([pbBvV]?matrix|smallmatrix|array)\}(?: ?\{[lcr| ]*\})?(.*?)\\end ?\{\2\}(.*)"
)


def _matrix(s: str) -> list[list[str]] | None:
    """Rows of a matrix environment, with a factor before it and a transpose after it."""
    m = _MATRIX.fullmatch(s)
    if not m:
        return _nested_rows(s)
    factor, kind, body, after = (part.strip() for part in m.groups())
    if kind == "array":
        factor, after = factor.rstrip("([ "), after.lstrip(")] ")
    if kind in ("vmatrix", "Vmatrix") or "\\begin" in body or "\\begin" in after:
        return None
    rows = [[c.strip() for c in row.split("&")] for row in body.split("⏎") if row.strip()]
    if len({len(row) for row in rows}) != 1:
        return None
    if re.fullmatch(r"\^\s*\{?\s*(?:T|\\top|\\intercal)\s*\}?", after):
        rows, after = [list(col) for col in zip(*rows)], ""
    if after:
        return None
    if factor:
        factor = factor.rstrip("* ") if factor != "-" else "-1"
        rows = [[f"({factor})*({cell})" for cell in row] for row in rows]
    return rows


def _nested_rows(s: str) -> list[list[str]] | None:
    """[[1, 2], [3, 4]]"""
    inner = _inside(s, "[", "]")
    rows = split_top(inner, ",") if inner else []
    inside = [_inside(row, "[", "]") for row in rows]
    if not rows or None in inside:
        return None
    cells = [split_top(row, ",") for row in inside]
    return cells if len({len(row) for row in cells}) == 1 else None


def _basis_vector(s: str, length: int) -> list[str] | None:
    """3i - 2j + k, written with bold or hatted unit vectors, as components."""
    if not re.search(r"\\b[ijk]\b", s):
        return None
    units = ["\\bi", "\\bj", "\\bk"][:length]
    pattern = lambda keep: re.sub(  # noqa: E731
        r"\\b[ijk] ?", lambda m: "(1)" if m[0].strip() == keep else "(0)", s
    )
    return [pattern(unit) for unit in units]


def expand_signs(s: str) -> list[str]:
    """1 ± \\sqrt{5} is two values, ±a ± b four, a ± b ∓ c two."""
    count = s.count("±") + s.count("∓")
    if not count or count > 4:
        return [s]
    if "∓" in s:
        return [s.replace("±", "+").replace("∓", "-"), s.replace("±", "-").replace("∓", "+")]
    pieces, out = s.split("±"), []
    for signs in product("+-", repeat=count):
        out.append(pieces[0] + "".join(a + b for a, b in zip(signs, pieces[1:])))
    return out


_NAME = (
    r"(?:m\s*)?(?:\\angle\s*)?(?:\\?[A-Za-z]+(?:\s+[A-Z])*|\\(?:overline|bar|vec|hat|triangle)\s*\{?\s*\w+\s*\}?)"
    r"\s*(?:_\s*(?:\w+|\{[^{}]*\}))?'*(?:\^\s*(?:\{\s*-1\s*\}|-1))?'*"
)
_SIMPLE_LABEL = re.compile(rf"(?:{_NAME}|\\text\{{[^{{}}]*\}}|\([a-z], ?[a-z](?:, ?[a-z])?\))")
_CALL_LABEL = re.compile(
    rf"(?!\\(?:{'|'.join(FUNCTIONS)})(?![a-z]))({_NAME})\s*\(\s*([A-Za-z]|\\[a-z]+)\s*\)"
)
_VALUE_LABEL = re.compile(r"(?![-+])[^\d=<>≤≥]*(?:[({_][^=<>≤≥]*)?")


def _label(s: str) -> str | None:
    """The name on the left of an assignment, without spaces; None if it is an expression."""
    s = s.strip()
    named = _SIMPLE_LABEL.fullmatch(s) or _CALL_LABEL.fullmatch(s)
    if not named or s.removeprefix("\\").strip() in FUNCTIONS | {"pi", "e", "i"}:
        return None
    return re.sub(r"[\s{}]", "", s)


def _same_equation(g: str, p: str) -> bool | None:
    """Anything with an equals sign at the top level; None when there is none."""
    left, right = split_top(g, "="), split_top(p, "=")
    if len(left) == len(right) == 1:
        return None
    if not all(left) or not all(right):
        return False
    if len(left) == 1:  # a label that the gold does not have
        known = _label(right[0]) or (
            _VALUE_LABEL.fullmatch(right[0])
            and re.search("[A-Za-z]", right[0])
            and not symbols(_read_or(right[-1], ("sym", "?")))
        )
        chain = known or trees_equal(*(_read_or(s, ("sym", s)) for s in (right[0], right[-1])))
        return bool(chain) and same(g, right[-1])
    if len(left) > 1 and all(read_literal(x) for x in left):  # 0.56 = 56%
        named = _label(right[0]) or all(read_literal(x) for x in right)
        return bool(named) and any(same(x, right[-1]) for x in left)
    a = _label(left[0])
    if len(right) == 1:
        return a is not None and same(left[-1], p)
    b = _label(right[0])
    if a and a == b:
        return same(left[-1], right[-1])
    call_a, call_b = _CALL_LABEL.fullmatch(left[0]), _CALL_LABEL.fullmatch(right[0])
    if a and b and (call_a or call_b) and (call_a or call_b)[0]:
        # f(x) = ..., g(x) = ..., y = ...: the name of a function is free, and so is its letter
        plain = None if call_a and call_b else (b if call_a else a)
        if plain in (None, "y", "f", "g", "h", "z", "w", "u", "s") or f"{plain}(" in a + b:
            body = right[-1]
            if call_a and call_b and call_a[2] != call_b[2]:
                tree = _read_or(body, None)
                if tree is None or call_a[2] in symbols(tree):
                    return False
                tree = substitute(tree, call_b[2], ("sym", call_a[2]))
                return trees_equal(read_gold(left[-1]), tree)
            return same(left[-1], body)
    f = ("add", read_gold(left[0]), ("neg", read_gold(left[-1])))
    sides = _read_or(right[0], None), _read_or(right[-1], None)
    if None in sides:
        return False
    h = ("add", sides[0], ("neg", sides[1]))
    return bool(proportional(f, h)) or _solved_form(f, h) or _solved_form(h, f)


def _solved_form(f, h) -> bool:
    """f is y - E: is h = 0 the same line, as x y = 1 is y = 1/x?

    So it is when h vanishes at y = E and is linear in y.
    """
    if f[0] != "add" or f[1][0] != "sym" or f[1][1] in symbols(f[2]):
        return False
    name, value, zero = f[1][1], f[2][1], ("num", Fraction(0))
    if name not in symbols(h) or symbols(f) != symbols(h) or len(symbols(h)) < 2:
        return False
    at = lambda step: substitute(h, name, ("add", value, ("num", Fraction(step))))  # noqa: E731
    try:
        return (
            trees_equal(at(0), zero)
            and trees_equal(("mul", ("num", Fraction(2)), at(1)), at(2))
            and trees_equal(("mul", ("num", Fraction(3)), at(1)), at(3))
            and not trees_equal(at(1), zero)
        )
    except Unreadable:
        return False


def _read_or(s: str, default):
    try:
        return read(s)
    except Unreadable:
        return default


class GoldUnreadable(Exception):
    """The gold (or a sum or integral in the prediction) is for math-verify."""


_BIG = re.compile(r"\\(?:sum|prod|i*nt|o?int|lim|det|max|min|gcd|lcm|mod|pmod)\b")


def read_gold(s: str):
    """`read`, for the side that must not be wrong."""
    try:
        return read(s)
    except Unreadable as error:
        raise GoldUnreadable from error


# intervals, unions, inequalities in one letter: the same thing, a set of reals


class _Piece(NamedTuple):
    """From `low` to `high`; each is (value, tree), the tree None at infinity."""

    low: tuple
    low_in: bool
    high: tuple
    high_in: bool


_INF = float("inf")
_EVERYTHING = _Piece((-_INF, None), False, (_INF, None), False)
_SET_SIGNS = re.compile(r"[∪∩<>≤≥≠∈∖ℝ∅]|∞|^[\[(].*,.*[\])]$|^[a-z] ?(\(.*\]|\[.*\))$")
_FLIP = {"<": ">", ">": "<", "≤": "≥", "≥": "≤"}


_NAMED_INTERVAL = re.compile(r"([a-z])\s*(\(.*\]|\[.*\))")  # t(0, 4]


def _bound(s: str) -> tuple:
    if s.replace(" ", "") in ("∞", "+∞", "-∞", "\\inf", "inf", "oo"):
        return (-_INF if s.startswith("-") else _INF), None
    return _bound_tree(read(s))


def _bound_tree(tree) -> tuple:
    if symbols(tree):
        raise Unreadable("letters in a bound")
    try:
        value, scale, ev = value_at(tree, 40)
    except (ZeroDivisionError, ValueError) as error:
        raise Unreadable("no value") from error
    if not is_real(value, scale):
        raise Unreadable("not real")
    return ev.num(value).real, tree


def _order(a: tuple, b: tuple) -> int:
    """-1, 0, 1; equal means equal exactly."""
    if a[1] is None or b[1] is None or a[0] != b[0]:
        near = a[1] and b[1] and abs(a[0] - b[0]) <= abs(a[0]) * 1e-25
        if not near:
            return (a[0] > b[0]) - (a[0] < b[0])
    if trees_equal(a[1], b[1]):
        return 0
    (x, _, ev), (y, _, _) = value_at(a[1], 900), value_at(b[1], 900)
    return 1 if ev.num(x).real > ev.num(y).real else -1


def _join(pieces: list[_Piece]) -> list[_Piece]:
    """Sorted, empty ones left out, touching ones made one."""
    pieces = [
        x for x in pieces
        if _order(x.low, x.high) < 0 or (_order(x.low, x.high) == 0 and x.low_in and x.high_in)
    ]  # fmt: skip
    out: list[_Piece] = []
    for x in sorted(pieces, key=lambda x: (x.low[0], not x.low_in)):
        touch = _order(x.low, out[-1].high) if out else 1
        if touch < 0 or (touch == 0 and (x.low_in or out[-1].high_in)):
            last = out.pop()
            further = _order(x.high, last.high)
            low_in = last.low_in or (x.low_in and _order(x.low, last.low) == 0)
            high = x if further > 0 else last
            high_in = (x.high_in or last.high_in) if further == 0 else high.high_in
            out.append(_Piece(last.low, low_in, high.high, high_in))
        else:
            out.append(x)
    return out


def _meet(a: list[_Piece], b: list[_Piece]) -> list[_Piece]:
    """The intersection."""
    out = []
    for x, y in product(a, b):
        low, high = _order(x.low, y.low), _order(x.high, y.high)
        low_in = (x.low_in and y.low_in) if low == 0 else (x if low > 0 else y).low_in
        high_in = (x.high_in and y.high_in) if high == 0 else (x if high < 0 else y).high_in
        low_end, high_end = (x if low >= 0 else y).low, (x if high <= 0 else y).high
        out.append(_Piece(low_end, low_in, high_end, high_in))
    return _join(out)


def real_set(s: str, names: set[str]) -> list[_Piece]:
    """The set of reals that s describes; the letter it uses goes into `names`.

    Raises Unreadable when it describes none.
    """
    s = s.strip()
    if (inner := _braced(s)) is not None:
        builder = re.fullmatch(r"([A-Za-z])\s*(?:∈\s*ℝ)?\s*[|:]\s*(.*)", inner)
        if builder:
            return real_set(builder[2], names)
        return _join([_Piece(b, True, b, True) for b in map(_bound, _items(inner))])
    if m := re.fullmatch(r"([A-Za-z]|\\[a-z]+ ?|[a-z]\([a-z]\))\s*∈\s*(.*)", s):
        names.add(m[1].strip())
        return real_set(m[2], names)
    if m := _NAMED_INTERVAL.fullmatch(s):
        names.add(m[1])
        return real_set(m[2], names)
    for sign in "∨∪":
        if len(parts := split_top(s, sign)) > 1:
            return _join([x for part in parts for x in real_set(part, names)])
    if len(parts := split_top(s, "∧∩")) > 1:
        out = [_EVERYTHING]
        for part in parts:
            out = _meet(out, real_set(part, names))
        return out
    if len(parts := split_top(s, "∖")) == 2:
        holes = real_set(parts[1], names)
        if any(_order(x.low, x.high) for x in holes):
            raise Unreadable("only points are taken out")
        out = real_set(parts[0], names)
        for x in holes:
            out = _meet(out, _without(x.low))
        return out
    if s == "ℝ":
        return [_EVERYTHING]
    if s == "∅":
        return []
    ends = _inside(s)
    if ends is not None and len(parts := _items(ends, merge=bool(re.search(r",\s", ends)))) == 2:
        low, high = _bound(parts[0]), _bound(parts[1])
        if _order(low, high) > 0:
            raise Unreadable("a pair, not an interval")
        return _join([_Piece(low, s[0] == "[", high, s[-1] == "]")])
    if len(parts := split_top(s, ",;")) > 1:  # x > 2, x < 5 are both; x < 2, x > 5 are either
        sets = [real_set(part, names) for part in parts]
        both = sets[0]
        for other in sets[1:]:
            both = _meet(both, other)
        return both or _join([x for part in sets for x in part])
    return _relation_set(s, names)


def _without(point: tuple) -> list[_Piece]:
    low, high = _EVERYTHING.low, _EVERYTHING.high
    return [_Piece(low, False, point, False), _Piece(point, False, high, False)]


def _relation_set(s: str, names: set[str]) -> list[_Piece]:
    sides, ops = split_top(s, "<>≤≥≠"), re.findall("[<>≤≥≠]", s)
    if len(sides) != len(ops) + 1 or not 1 <= len(ops) <= 2 or not all(sides):
        raise Unreadable("no inequality")
    if len(ops) == 1 and ops[0] in "<≤" and (inner := _inside(sides[0], "|", "|")):
        bound = f"({sides[1]})"  # |x| < 5
        sides, ops = [f"-{bound}", inner, bound], ops * 2
    out = [_EVERYTHING]
    for left, op, right in zip(sides, ops, sides[1:]):
        out = _meet(out, _one_relation(left, op, right, names))
    return out


def _one_relation(left: str, op: str, right: str, names: set[str]) -> list[_Piece]:
    letter, shift = _unknown(left), None
    if letter is None:
        letter, left, right, op = _unknown(right), right, left, _FLIP.get(op, op)
    if letter is not None and not symbols(read_or_inf(right)):
        shift = _bound(right)
    else:  # linear in one letter: solve left - right = 0
        tree = ("add", read(left), ("neg", read(right)))
        if len(found := symbols(tree)) != 1:
            raise Unreadable("not one letter")
        (letter,) = found
        at = [substitute(tree, letter, ("num", Fraction(k))) for k in range(3)]
        slope = ("add", at[1], ("neg", at[0]))
        if not trees_equal(slope, ("add", at[2], ("neg", at[1]))):
            raise Unreadable("not linear")
        rise = _bound_tree(slope)[0]
        if not rise:
            raise Unreadable("no letter left")
        shift = _bound_tree(("neg", ("div", at[0], slope)))
        op = _FLIP.get(op, op) if rise < 0 else op
    names.add(letter)
    if op == "≠":
        return _without(shift)
    if op in "<≤":
        return [_Piece(_EVERYTHING.low, False, shift, op == "≤")]
    return [_Piece(shift, op == "≥", _EVERYTHING.high, False)]


def read_or_inf(s: str):
    """`read`, where infinity is a number without letters."""
    return ("num", Fraction(0)) if "∞" in s else read(s)


def _unknown(s: str) -> str | None:
    if re.fullmatch(r"[A-Za-z]|\\[a-z]+|[a-zA-Z]\s*\(\s*[a-z]\s*\)|[a-zA-Z]_\w", s.strip()):
        return None if s.strip() in ("\\pi", "e", "i") else s.replace(" ", "")
    return None


def _same_set(g: str, p: str) -> bool | None:
    """Sets of reals; None when the gold describes none."""
    if not all(_SET_SIGNS.search(s) or _braced(s) for s in (g, p)):
        return None
    if not re.search(r"[∪∩<>≤≥≠∈∖ℝ∅∞]", g + p) and not _NAMED_INTERVAL.fullmatch(g):
        return None  # two plain brackets: pairs, compared as such
    names_g, names_p = set(), set()
    try:
        a = real_set(g, names_g)
    except Unreadable:
        return _same_relation(g, p)
    try:
        b = real_set(p, names_p)
    except Unreadable:
        return False
    if names_g and names_p and names_g != names_p:
        return False
    return len(a) == len(b) and all(
        (x.low_in, x.high_in) == (y.low_in, y.high_in)
        and _order(x.low, y.low) == 0 == _order(x.high, y.high)
        for x, y in zip(a, b)
    )


def _same_relation(g: str, p: str) -> bool | None:
    """One inequality in several letters, up to a factor: y > 2x + 3 is 2x - y < -3."""
    found = []
    for s in (g, p):
        sides, ops = split_top(s, "<>≤≥≠"), re.findall("[<>≤≥≠]", s)
        if len(sides) != 2 or len(ops) != 1 or not all(sides):
            return None if s is g else False
        found.append((sides, ops[0]))
    (left, op_g), (right, op_p) = found
    f = ("add", read_gold(left[0]), ("neg", read_gold(left[1])))
    sides = [_read_or(s, None) for s in right]
    if None in sides:
        return False
    sign = proportional(f, ("add", sides[0], ("neg", sides[1])))
    return bool(sign) and op_p == (op_g if sign > 0 else _FLIP.get(op_g, op_g))


# lists, tuples, matrices


def _same_list(g: str, p: str) -> bool | None:
    """Lists and sets; None when neither side is one."""
    set_g, set_p = _braced(g), _braced(p)
    a, b = _members(g, set_g), _members(p, set_p)
    if set_g is None and set_p is None and len(a) == len(b) == 1:
        return None
    if len(a) == 1 and set_g is None and (ordered := _sequence(g)):
        # a tuple against a list without brackets keeps its order, against a set it is wrong
        return set_p is None and _all_same(ordered, _values(b))
    if len(b) == 1 and set_p is None and (ordered := _sequence(p)):
        if set_g is None and len(a) > 1 and not any(_sequence(x) for x in a):
            return _all_same(_values(a), ordered)
        return _match(a, b) if len(a) == 1 else False
    if set_g is not None and set_p is not None:
        a, b = _distinct(a), _distinct(b)
    if _same_members(a, b):
        return True
    loose = _members(p, set_p, merge=False)  # 100,200 for the list 100, 200
    return len(loose) != len(b) and len(a) > 1 and _same_members(a, loose)


def _members(s: str, inner: str | None, merge: bool = True) -> list[str]:
    parts = _items(s if inner is None else inner, merge)
    return [x for part in parts for x in expand_signs(part)]


def _distinct(parts: list[str]) -> list[str]:
    out: list[str] = []
    for part in parts:
        if not any(same(x, part) for x in out):
            out.append(part)
    return out


def _values(parts: list[str]) -> list[str]:
    return [split_top(x, "=")[-1] if _label(split_top(x, "=")[0]) else x for x in parts]


def _names(parts: list[str]) -> list[str | None]:
    return [_label(split_top(x, "=")[0]) if len(split_top(x, "=")) > 1 else None for x in parts]


def _same_members(a: list[str], b: list[str]) -> bool:
    if len(a) != len(b) or len(a) > 60:
        return False
    names_a, names_b = _names(a), _names(b)
    own_a, own_b = (None not in n and len(set(n)) == len(n) > 1 for n in (names_a, names_b))
    if own_a and own_b:
        if set(names_a) != set(names_b):
            return False
        return _all_same(_values(a), [_values(b)[names_b.index(n)] for n in names_a])
    if own_a:  # x = 1, y = 2 against 1, 2: the order is all that is left
        return set(names_b) == {None} and _all_same(_values(a), b)
    if own_b:
        return set(names_a) == {None} and _match(a, _values(b))
    free = {n for n in names_a if n}, {n for n in names_b if n}
    if len(free[0]) <= 1 and len(free[1]) <= 1 and (free[0] == free[1] or not all(free)):
        a, b = _values(a), _values(b)
    return _match(a, b)


def _match(a: list[str], b: list[str]) -> bool:
    """Each member of one has its own in the other."""
    left = list(b)
    for x in a:
        found = next((y for y in left if x == y), None) or next(
            (y for y in left if same(x, y)), None
        )
        if found is None:
            return False
        left.remove(found)
    return not left


def _all_same(a: list[str], b: list[str]) -> bool:
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))


def _sequence(s: str) -> list[str] | None:
    """The members of a tuple, row or column vector, in order."""
    rows = _matrix(s)
    if rows is None:
        return _bracketed(re.sub(r"\s*\^\s*\{?\s*(?:T|\\top)\s*\}?$", "", s))
    if len(rows) == 1:
        return rows[0]
    return [row[0] for row in rows] if len(rows[0]) == 1 else None


def _same_sequence(g: str, p: str) -> bool | None:
    """Matrices, vectors and tuples; None when the gold is none."""
    rows_g, rows_p = _matrix(g), _matrix(p)
    a, b = _sequence(g), _sequence(p)
    if rows_g is None and a is None:
        if (rows_p or b) is not None and (vector := _basis_vector(g, len(b or []))):
            return b is not None and _all_same(vector, b)
        return False if rows_p is not None and "\\begin" not in g else None
    if rows_p is None and b is None and a is not None:
        vector = _basis_vector(p, len(a))
        return bool(vector) and _all_same(a, vector)
    if rows_g is not None and rows_p is not None:
        return len(rows_g) == len(rows_p) and all(_all_same(x, y) for x, y in zip(rows_g, rows_p))
    if a is None or b is None:
        return False
    if rows_g is None and rows_p is None and len(a) == 2 and (g[0], g[-1]) != (p[0], p[-1]):
        return False  # [-3, 2] is closed, (-3, 2) is open
    return _all_same(a, b)


_CASES = re.compile(r"(?:\\\{)? ?\\begin ?\{(?:cases|aligned)\}([^&]*)\\end ?\{(?:cases|aligned)\}")
_TUPLE_LABEL = re.compile(r"\(([^()]*)\)\s*=\s*(\(.*\))")
_WHOLE = re.compile(r"[,(]?\s*(?:\\text\{(?:where|for|with)\})?\s*[a-z]\s*∈\s*[ℤℕ]\s*\)?$")


def _bare(s: str) -> str:
    """Without what says nothing about the value: 'k ∈ ℤ', an approximation added, cases."""
    s = s.strip()
    if (words := _words(s)) and words[0] in ("allrealnumbers", "realnumbers", "allreals"):
        return "ℝ"
    if m := _CASES.fullmatch(s):
        s = ", ".join(row.strip(" ,") for row in m[1].split("⏎") if row.strip())
    if (m := _TUPLE_LABEL.fullmatch(s)) and (values := _bracketed(m[2])):  # (x, y) = (1, 2)
        names = m[1].split(",")
        if len(names) == len(values):
            s = ", ".join(f"{n}={v}" for n, v in zip(names, values))
    if len(ends := split_top(s, "≈")) == 2:  # x ≈ 3.14, \sqrt{2} ≈ 1.41
        s = ends[1] if not ends[0] or _label(ends[0]) else ends[0]
    return _WHOLE.sub("", s).strip() if "∈" in s[2:] else s


# --- the ladder ------------------------------------------------------------------------------


def same(g: str, p: str) -> bool:
    """Steps 2 to 5 for two cleaned answers. Raises GoldUnreadable for step 6."""
    g, p = _bare(g), _bare(p)
    if not g or not p:
        return False
    a, b = read_literal(g), read_literal(p, label=True)
    if a and b:
        return literals_equal(a, b)
    base_g, base_p = base_number(g), base_number(p)
    if base_g or base_p:
        if base_p and base_p[1] == "10" and not base_g:
            return same(g, base_p[0])
        return base_g == base_p
    for step in (_same_colon, _same_words, _same_set, _same_list, _same_equation, _same_sequence):
        verdict = step(g, p)
        if verdict is not None:
            return verdict
    return _same_expression(g, p)


def _same_expression(g: str, p: str) -> bool:
    (g, unit_g), (p, unit_p) = split_unit(g), split_unit(p)
    if units_clash(unit_g, unit_p) and "pi" not in g + p:
        return False
    if "∞" in g or "∞" in p:
        return g.replace("+", "").replace(" ", "") == p.replace("+", "").replace(" ", "")
    tree_g = read_gold(g)
    try:
        tree_p = read(p)
    except Unreadable:
        if _BIG.search(p):
            raise GoldUnreadable from None
        return False
    if (unit_g == "deg") != (unit_p == "deg") and _has_pi(tree_p if unit_g else tree_g):
        half_turn = ("div", ("pi",), ("num", Fraction(180)))
        if unit_g == "deg":
            tree_g = ("mul", tree_g, half_turn)
        else:
            tree_p = ("mul", tree_p, half_turn)
    if trees_equal(tree_g, tree_p):
        return True
    if ("°" in g) != ("°" in p) and not _has_function(g + p):  # 180° - x and 180 - x
        return trees_equal(read(g.replace("°", "")), read(p.replace("°", "")))
    return _decimal_of(g, tree_p) or _decimal_of(p, tree_g)


def _has_pi(tree) -> bool:
    return tree == ("pi",) or any(_has_pi(t) for t in tree if isinstance(t, tuple))


def _decimal_of(decimal: str, tree) -> bool:
    """0.866025 for \\sqrt{3}/2: no decimal can write it, 1e-6 is close enough."""
    literal = read_literal(decimal)
    if literal is None or not literal.decimal or symbols(tree):
        return False
    try:
        value, scale, ev = value_at(tree, 40)
    except (ZeroDivisionError, ValueError):
        return False
    if isinstance(value, Fraction):
        return numbers_close(value, literal.value, False, True)
    if not is_real(value, scale):
        return False
    exact = numbers_equal(tree, ("num", literal.value), {})
    return exact or abs(value - ev.num(literal.value)) * 10**6 <= abs(value)


# --- 6. math-verify, and the door -------------------------------------------------------------


def warm_up() -> None:
    """Load what a first verdict needs, so that its clock does not pay for imports."""
    import math_verify  # noqa: F401

    math_verify_says("\\frac{1}{2}", "x+1")


_TOWER = re.compile(
    r"\d[)}]*\s*\^\s*[({]*\s*[\d.]+[)}]*\s*\^|\^\s*[({]*\s*\d{6}|!\s*[)}\]]*\s*!|\d{6}\s*!"
)


def math_verify_says(gold: str, prediction: str) -> bool:
    """math-verify's own verdict, without its clock. Only in a child process."""
    from math_verify import LatexExtractionConfig, parse, verify

    if _TOWER.search(clean(gold)) or _TOWER.search(clean(prediction)):
        raise TooBig("sympy would compute it")
    latex_only = [LatexExtractionConfig()]
    # no_fallback: what cannot be read must not come back as a string that equals itself
    a, b = (
        parse(f"$\\boxed{{{s}}}$", latex_only, "no_fallback", parsing_timeout=None)
        for s in (gold, prediction)
    )
    return bool(verify(a, b, timeout_seconds=None, allow_set_relation_comp=True))


def equivalent(gold: str, prediction: str, string_path: bool = True) -> bool:
    """The whole ladder, for two answers as they stand in a box. Only in a child process.

    string_path=False leaves step 1 out: a gold that still equals itself can be judged. Raises
    TooBig when no verdict can be had.
    """
    if not gold.strip() or not prediction.strip() or not _plain_text(prediction):
        return False
    if len(prediction) > 2000 + 4 * len(gold):
        return False  # no answer is that long
    if string_path and same_text(gold, prediction):
        return True
    try:
        return same(clean(gold), clean(prediction))
    except GoldUnreadable:
        return math_verify_says(gold, prediction)


def _plain_text(s: str) -> bool:
    """No control, direction or private characters: what is read is what is seen."""
    return all(c.isprintable() or c in "\n\t\r\u00a0\u2009\u202f\u3000" for c in s)

r"""Maths expressions, read whole or not at all, and compared without rounding them together.

A small recursive parser for LaTeX and ASCII maths that never drops what it cannot read (that is
how 4\sqrt(2) becomes 4 elsewhere), and an evaluator: rational arithmetic where it stays rational,
else mpmath with 40 digits to tell two numbers apart and 900 to call them equal. Letters are tried
at fixed points; two expressions are equal when they agree wherever both are real (so
1/\sqrt{n} = \sqrt{1/n}, but \sqrt{x^2} is not x).

Towers and factorials too large for an exponent of 50 bits raise TooBig before they are computed.
Nothing here calls eval, sympify or parse_expr; sympy is not needed either.

Conventions: i is the imaginary unit, e is Euler's number, \log is natural, 1/2x is (1/2)x, odd
roots of negative numbers are real, 2\frac{1}{2} is a mixed number, f(3) is a value of f but x(3)
a product.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache

from support.answer_text import FUNCTIONS


class Unreadable(ValueError):
    """This text is not an expression that the parser knows."""


class TooBig(ArithmeticError):
    """A tower or factorial beyond what can be evaluated: no verdict."""


_GREEK = set(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon"
    " phi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega hbar odot"
    " triangle angle".split()
)
_ACCENTS = set("bar hat vec dot ddot tilde overline overrightarrow widehat".split())
_OPAQUE = set("f g h F G P \\delta \\Gamma \\Phi".split())  # f(3) is a value, not f times 3
_EXPR_TOKEN = re.compile(
    r"\s*(?:(\d+(?:\.\d+)?[eE][-+]?\d+(?![\d.])|\d+\.?\d*|\.\d+)|(\\[A-Za-z]+)|([A-Za-z]+)|(\\.|.))"
)
_MIXED = re.compile(
    r"(\d+) \\frac (?:\{ (\d+) \}|(\d)) ?(?:\{ (\d+) \}|(\d))(?! ?[\d^])"
    r"|(\d+) (\d+) / (\d+)(?! [\^\d])"
)
_CLOSING = {"(": ")", "[": "]", "{": "}", "|": "|", "\\{": "\\}"}
_MAX_DEPTH = 60  # nesting; an answer has less than ten
_MAX_TOKENS = 800  # the longest known gold has about 200


def _tokens(text: str) -> list[str]:
    out, at = [], 0
    while at < len(text):
        m = _EXPR_TOKEN.match(text, at)
        if not m:
            break
        at = m.end()
        if letters := m.group(3):
            while letters:  # 2xsin(x) is 2 x sin ( x ), xpi is x pi; a longer name wins
                names = [n for n in (*FUNCTIONS, "pi") if letters.startswith(n)]
                name = max(names, key=len, default=letters[0])
                out.append("\\" + name.replace("arc", "a") if names else name)
                letters = letters[len(name) :]
        elif m.group().strip():
            out.append(m.group().strip())
    return out


class _Reader:
    """Recursive descent over tokens. Trees are tuples: ('num', Fraction), ('sym', name),
    ('add'|'mul', x, y), ('neg', x), ('div', x, y), ('pow', x, y), ('root', x, n), ('call', f, x),
    ('pi',), ('e',), ('i',)."""

    def __init__(self, text: str):
        self.toks, self.at, self.depth, self.bars = _tokens(text), 0, 0, 0
        if len(self.toks) > _MAX_TOKENS:
            raise Unreadable("too long")

    def read(self):
        tree = self.sum()
        if self.at < len(self.toks):
            raise Unreadable(self.toks[self.at])
        return tree

    def peek(self) -> str:
        return self.toks[self.at] if self.at < len(self.toks) else ""

    def take(self, want: str = "") -> str:
        tok = self.peek()
        if not tok or (want and tok != want):
            raise Unreadable(f"{want or 'more'} expected")
        self.at += 1
        return tok

    def sum(self):
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise Unreadable("too deep")
        tree = self.product()
        while self.peek() in ("+", "-"):
            sign, right = self.take(), self.product()
            tree = ("add", tree, right if sign == "+" else ("neg", right))
        self.depth -= 1
        return tree

    def product(self):
        if self.peek() in ("+", "-"):
            sign, tree = self.take(), self.product_tail(self.power, signed=True)
            return ("neg", tree) if sign == "-" else tree
        return self.product_tail(self.power)

    def product_tail(self, factor, signed=False):
        if signed and self.peek() in ("+", "-"):  # --3, as in 1 - -3
            raise Unreadable("two signs")
        tree = last = self.mixed() or factor()
        while True:
            tok = self.peek()
            if tok in ("*", "/"):
                self.take()
                last = self.signed_power()
                tree = ("mul", tree, last) if tok == "*" else ("div", tree, last)
            elif self.starts():
                if last[0] == "num" and self.toks[self.at - 1][-1].isdigit() and tok[0].isdigit():
                    raise Unreadable("two numbers side by side")
                last = factor()
                tree = ("mul", tree, last)
            else:
                return tree

    def signed_power(self):
        if self.peek() in ("+", "-"):
            return ("neg", self.power()) if self.take() == "-" else self.power()
        return self.power()

    def mixed(self):
        """2\\frac{1}{2} and 1 1/4 are sums, 2 \\cdot \\frac{1}{2} is a product."""
        toks = self.toks[self.at : self.at + 9]
        text = " ".join(toks)
        m = _MIXED.match(text)
        if not m:
            return None
        whole, top, bottom = (int(digits) for digits in m.groups() if digits)
        if not 0 < top < bottom:
            raise Unreadable("2\\frac{3}{2}: a product, or a wrong mixed number")
        self.at += len(m.group().split())
        return ("num", whole + Fraction(top, bottom))

    def starts(self) -> bool:
        tok = self.peek()
        if tok == "|":
            return self.bars == 0
        return bool(tok) and (
            tok[0].isalnum() or tok[0] == "." or tok in ("(", "[", "{", "\\{")
            or (tok[0] == "\\" and tok[1:].isalpha() and tok not in ("\\rfloor", "\\rceil"))
        )  # fmt: skip

    def power(self):
        tree = self.postfix(self.primary())
        if self.peek() == "^":
            self.take()
            tree = self.postfix(("pow", tree, self.exponent()))
        return tree

    def exponent(self):
        tok = self.peek()
        if tok in ("+", "-"):
            self.take()
            inner = self.exponent()
            return ("neg", inner) if tok == "-" else inner
        # x^10 is the tenth power, though LaTeX would show x^1 0
        base = self.postfix(self.primary())
        if self.peek() == "^":
            self.take()
            return ("pow", base, self.exponent())
        return base

    def single_digit(self) -> str:
        """\\frac12 and \\sqrt12 take one digit, the rest stays."""
        tok = self.take()
        if len(tok) > 1:
            self.at -= 1
            self.toks[self.at] = tok[1:]
        return tok[0]

    def postfix(self, tree):
        while self.peek() in ("!", "°"):
            if self.take() == "°":
                tree = ("div", ("mul", tree, ("pi",)), ("num", Fraction(180)))
            elif self.peek() == "!":
                raise Unreadable("double factorial")
            else:
                tree = ("call", "fact", tree)
        return tree

    def group(self, opening: str):
        self.take(opening)
        bars, self.bars = self.bars, int(opening == "|")
        tree = self.sum()
        self.bars = bars
        self.take(_CLOSING[opening])
        return tree

    def argument(self):
        """What \\frac and \\sqrt take: a group, one digit, one letter or command."""
        tok = self.peek()
        if tok == "{":
            return self.group("{")
        if tok.isdigit():
            return ("num", Fraction(self.single_digit()))
        return self.primary()

    def primary(self):
        tok = self.peek()
        if tok in ("(", "[", "{", "\\{"):
            return self.group(tok)
        if tok == "|":
            return ("call", "abs", self.group("|"))
        self.take()
        if tok[0].isdigit() or (tok[0] == "." and len(tok) > 1):
            return ("num", _bounded(tok))
        if tok in ("\\lfloor", "\\lceil"):
            inner = self.sum()
            self.take(tok.replace("\\l", "\\r"))
            return ("call", tok[2:], inner)
        name = tok.removeprefix("\\")
        if tok.startswith("\\"):
            if name == "frac":
                return ("div", self.argument(), self.argument())
            if name == "binom":
                return ("call", "binom", self.argument(), self.argument())
            if name == "sqrt":
                return self.root()
            if name == "pi":
                return ("pi",)
            if name in FUNCTIONS:
                return self.call(name)
            if name in _ACCENTS:
                return self.symbol(f"{name}({self.argument()})")
            if name not in _GREEK and name not in ("bi", "bj", "bk"):
                raise Unreadable(tok)
        elif len(tok) != 1 or not (tok.isalpha() and tok.isascii()):
            raise Unreadable(tok)
        return self.symbol(tok)

    def root(self):
        index = self.group("[") if self.peek() == "[" else ("num", Fraction(2))
        return ("root", self.argument(), index)

    def call(self, name: str):
        base, power = None, None
        for _ in range(2):  # \log_2^3 x, \sin^2 x, \sin^{-1} x
            if self.peek() == "_" and name in ("log", "lg"):
                self.take()
                base = self.argument()
            elif self.peek() == "^":
                self.take()
                power = self.argument() if self.peek() != "-" else self.exponent()
        if power == ("neg", ("num", Fraction(1))) and "a" + name in FUNCTIONS:
            name, power = "a" + name, None
        if self.peek() in ("(", "{", "["):
            arg = self.group(self.peek())
        else:
            sign = self.peek() == "-" and self.take()
            arg = self.bare_argument()
            arg = ("neg", arg) if sign else arg
        tree = ("call", name, arg)
        if base is not None or name == "lg":
            tree = ("div", ("call", "ln", arg), ("call", "ln", base or ("num", Fraction(10))))
        return tree if power is None else ("pow", tree, power)

    def bare_argument(self):
        """\\sin 2x \\cos x: the product up to the next function or operator."""
        tree = self.mixed() or self.power()
        while self.starts() and self.peek().removeprefix("\\") not in FUNCTIONS - {"sqrt"}:
            if self.peek() in ("(", "["):
                break
            tree = ("mul", tree, self.power())
        return tree

    def symbol(self, name: str):
        while self.peek() == "'":
            name += self.take()
        if self.peek() == "_":
            self.take()
            name += "_" + self.raw_subscript()
        while self.peek() == "'":
            name += self.take()
        if self.peek() == "(" and (
            name in _OPAQUE or self.toks[self.at : self.at + 3][1:] == ["0", ")"]
        ):
            return ("call", "opaque:" + name, self.group("("))
        return {"e": ("e",), "i": ("i",)}.get(name, ("sym", name))

    def raw_subscript(self) -> str:
        tok = self.take()
        if tok != "{":
            return tok
        parts, depth = [], 1
        while depth:
            tok = self.take()
            depth += (tok == "{") - (tok == "}")
            parts.append(tok)
        return "".join(parts[:-1]).replace("\\text{", "")


def _bounded(tok: str) -> Fraction:
    if re.search(r"[eE][-+]?\d{5,}", tok) or len(tok) > 4000:
        raise TooBig(tok[:20])
    return Fraction(tok.rstrip("."))


@lru_cache(maxsize=2048)
def read(text: str):
    """The tree of a cleaned expression. Raises Unreadable for anything not understood whole."""
    # 1,234/2 holds one number; (1,234) is a pair, not an expression
    if not re.fullmatch(r"\(\s*\d{1,3}(?:,\d{3})+\s*\)", text):
        text = re.sub(
            r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?!,?\d)", lambda m: m[0].replace(",", ""), text
        )
    return _Reader(text).read()


def symbols(tree) -> set[str]:
    """The letters of a tree."""
    if tree[0] == "sym":
        return {tree[1]}
    return set().union(*(symbols(t) for t in tree[1:] if isinstance(t, tuple)), set())


def substitute(tree, name: str, value):
    """The tree with one letter replaced by another tree."""
    if tree == ("sym", name):
        return value
    return tuple(substitute(t, name, value) if isinstance(t, tuple) else t for t in tree)


_MAX_BITS = 200_000  # larger exact numbers go on as 40 or 900 digits and an exponent


@lru_cache(maxsize=4)
def _context(digits: int):
    """An mpmath of our own, so that nobody else's precision is touched; slow to make."""
    from mpmath import MPContext

    mp = MPContext()
    mp.dps = digits
    return mp


class _Evaluator:
    """Values of trees: Fraction as long as it stays exact, else mpmath at `digits`.

    `scale` keeps the largest term of any sum: what is far below it is rounding.
    """

    def __init__(self, digits: int, letters: dict[str, Fraction]):
        self.mp = _context(digits)
        self.letters, self.scale = letters, 0
        self.left_reals = False  # did any part of the tree stop being real?

    def num(self, x):
        if isinstance(x, Fraction):
            x = self.mp.mpf(x.numerator) / x.denominator
        return x

    def tiny(self):
        """What is left of a sum that cancels."""
        return self.scale * self.mp.mpf(10) ** (10 - self.mp.dps)

    def check(self, x):
        if isinstance(x, Fraction):
            bits = x.numerator.bit_length() + x.denominator.bit_length()
            return x if bits <= _MAX_BITS else self.num(x)
        size = abs(x)
        if self.mp.isnan(size) or self.mp.isinf(size):
            raise ZeroDivisionError("no finite value")
        self.left_reals |= not is_real(x, size)
        return x

    def __call__(self, tree):
        return self.check(getattr(self, "do_" + tree[0])(*tree[1:]))

    def do_num(self, value):
        return value

    def do_sym(self, name):
        return self.letters[name]

    def do_pi(self):
        return +self.mp.pi

    def do_e(self):
        return +self.mp.e

    def do_i(self):
        return self.mp.mpc(0, 1)

    def do_neg(self, x):
        return -self(x)

    def do_add(self, x, y):
        a, b = self(x), self(y)
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return a + b
        a, b = self.num(a), self.num(b)
        self.scale = max(self.scale, abs(a), abs(b))
        return a + b

    def do_mul(self, x, y):
        a, b = self(x), self(y)
        exact = isinstance(a, Fraction) and isinstance(b, Fraction)
        return a * b if exact else self.num(a) * self.num(b)

    def do_div(self, x, y):
        a, b = self(x), self(y)
        exact = isinstance(a, Fraction) and isinstance(b, Fraction)
        if b == 0 or (not exact and abs(self.num(b)) < self.tiny()):
            raise ZeroDivisionError
        return a / b if exact else self.num(a) / self.num(b)

    def do_pow(self, x, y):
        return self.power(self(x), self(y))

    def power(self, a, n):
        if a == 0 and n == 0:
            return Fraction(1)
        if isinstance(n, Fraction) and n.denominator == 1:
            n = int(n)
            if a == 0 and n < 0:
                raise ZeroDivisionError
            if isinstance(a, Fraction):
                bits = a.numerator.bit_length() + a.denominator.bit_length()
                if bits * abs(n) <= _MAX_BITS or a in (0, 1, -1):
                    return a**n
            self.bounded_exponent(a, n)
            return self.num(a) ** n
        if isinstance(n, Fraction) and n.denominator % 2 and self.real(a) and a < 0:
            value = self.power(-a, n)  # the real branch of odd roots
            return -value if n.numerator % 2 else value
        if isinstance(n, Fraction) and isinstance(a, Fraction) and a > 0 and n.denominator < 64:
            if (exact := _exact_root(a, n.denominator)) is not None:
                return self.power(exact, Fraction(n.numerator))
        if a == 0:
            if not self.real(n) or n < 0:
                raise ZeroDivisionError
            return Fraction(0)
        self.bounded_exponent(a, n)
        return self.mp.power(self.num(a), self.num(n))

    def real(self, x) -> bool:
        return isinstance(x, Fraction) or not getattr(x, "imag", 0)

    def bounded_exponent(self, a, n):
        if a and abs(self.num(n)) * (abs(self.mp.log(abs(self.num(a)))) + 4) > 1e15:
            raise TooBig("power")

    def do_root(self, x, n):
        index = self(n)
        if not isinstance(index, Fraction) or index == 0:
            raise Unreadable("root index")
        return self.power(self(x), 1 / index)

    def do_call(self, name, *args):
        values = [self(a) for a in args]
        if name.startswith("opaque:"):  # some fixed smooth function for each name
            seed = sum(ord(c) * 31**k for k, c in enumerate(name)) % 9973
            return self.mp.cos(self.num(values[0]) * self.mp.mpf(seed) / 997 + seed)
        x = values[0]
        if name in ("fact", "binom"):
            return self.counting(name, values)
        if name == "abs":
            return abs(x)
        if name in ("floor", "ceil"):
            if isinstance(x, Fraction):
                return Fraction(math.floor(x) if name == "floor" else math.ceil(x))
            return (self.mp.floor if name == "floor" else self.mp.ceil)(x)
        if name == "sqrt":
            return self.power(x, Fraction(1, 2))
        if name == "cbrt":
            return self.power(x, Fraction(1, 3))
        value = self.num(x)
        if name != "exp":
            self.scale = max(self.scale, 1)  # \sin \pi comes out as small as the rounding of \pi
        if abs(value) > 1e6 and name not in ("ln", "log"):
            if name == "exp" and abs(value) < 1e15:
                return self.mp.exp(value)
            if abs(value) > 1e30:
                raise TooBig(name)
        if name in ("ln", "log"):
            if value == 0:
                raise ZeroDivisionError
            return self.mp.log(value)
        if name in ("asin", "acos") and self.real(value) and abs(value) > 1:
            value = self.mp.mpc(value)
        return getattr(self.mp, name)(value)

    def counting(self, name, values):
        if name == "binom":
            n, k = values
            if not (isinstance(n, Fraction) and isinstance(k, Fraction)):
                return self.mp.binomial(self.num(n), self.num(k))
            if n.denominator == k.denominator == 1 and 0 <= k <= n <= 10_000:
                return Fraction(math.comb(int(n), int(k)))
            return self.mp.binomial(self.num(n), self.num(k))
        (n,) = values
        if isinstance(n, Fraction) and n.denominator == 1:
            if n < 0:
                raise ZeroDivisionError
            if n <= 8000:
                return Fraction(math.factorial(int(n)))
        if abs(self.num(n)) > 1e12:
            raise TooBig("factorial")
        return self.mp.factorial(self.num(n))


def _exact_root(a: Fraction, n: int) -> Fraction | None:
    """a^(1/n) if it is rational."""
    if a.numerator.bit_length() + a.denominator.bit_length() > 4000:
        return None
    roots = []
    for part in (a.numerator, a.denominator):
        low, high = 0, 1 << (part.bit_length() // n + 1)
        while low < high:
            mid = (low + high + 1) // 2
            low, high = (mid, high) if mid**n <= part else (low, mid - 1)
        if low**n != part:
            return None
        roots.append(low)
    return Fraction(*roots)


def value_at(tree, digits: int, letters=None):
    """(value, scale) of a tree."""
    ev = _Evaluator(digits, letters or {})
    value = ev(tree)
    return value, max(ev.scale, abs(ev.num(value))), ev


def _points(names: list[str]):
    """Fixed places to try the letters at: whole, positive, small, negative, mixed."""
    for k in range(24):
        values = {}
        for j, name in enumerate(names):
            r = (k * 7919 + j * 104729 + 12345) * 48271 % 2147483647
            whole, part = r % 11 + 1, Fraction(r // 11 % 89 + 5, 97)
            if k < 8:
                value = Fraction((k + 3 * j * (k + 1)) % 13 + 1)
            elif k < 12:
                value = whole + part
            elif k < 16:
                value = part
            elif k < 20:
                value = -(whole % 5) - part
            else:
                value = (whole + part) * (1 if (r >> 4) % 2 else -1)
            values[name] = value
        yield values


def trees_equal(g, p) -> bool:
    """Is it the same number, or the same function wherever both are real?"""
    names = sorted(symbols(g) | symbols(p))
    if not names:
        return numbers_equal(g, p, {})
    imaginary = ("i",) in (*_leaves(g), *_leaves(p))
    hits = {True: 0, False: 0}  # by: were both real all the way
    for letters in _points(names):
        try:
            (a, sa, ev), (b, sb, other) = value_at(g, 40, letters), value_at(p, 40, letters)
        except (ZeroDivisionError, ValueError, OverflowError, TooBig):
            continue
        real = imaginary or not (ev.left_reals or other.left_reals)
        if _drowned(a, b, max(sa, sb), 25, ev):
            continue
        if abs(ev.num(a) - ev.num(b)) <= max(sa, sb) * ev.mp.mpf(10) ** -25:
            hits[real] += 1
        elif real:
            return False
        else:
            hits[real] -= 99
    return hits[True] >= 3 if hits[True] else hits[False] >= 3


def _leaves(tree):
    inner = [t for t in tree if isinstance(t, tuple)]
    return [leaf for t in inner for leaf in _leaves(t)] if inner else [tree]


def is_real(x, scale) -> bool:
    return isinstance(x, Fraction) or abs(getattr(x, "imag", 0)) <= scale * 1e-25


def numbers_equal(g, p, letters) -> bool:
    for digits, tolerance in ((40, 25), (900, 850)):
        try:
            a, sa, ev = value_at(g, digits, letters)
        except (ZeroDivisionError, ValueError) as error:
            raise Unreadable("the gold has no value") from error
        try:
            b, sb, _ = value_at(p, digits, letters)
        except (ZeroDivisionError, ValueError):
            return False
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return a == b
        if abs(ev.num(a) - ev.num(b)) > max(sa, sb) * ev.mp.mpf(10) ** -tolerance:
            return False
    if _drowned(a, b, max(sa, sb), 850, ev):
        raise TooBig("a difference of towers")
    return True


def _drowned(a, b, scale, digits: int, ev) -> bool:
    """Did terms so large cancel that nothing is left to compare (10^{999} + 4 - 10^{999})?"""
    largest = max(abs(ev.num(a)), abs(ev.num(b)), 1)
    return scale * ev.mp.mpf(10) ** -digits > largest * ev.mp.mpf(10) ** (10 - digits // 2)


def proportional(g, p) -> int:
    """The sign of c when g = c * p for one constant c, 0 when there is none."""
    names = sorted(symbols(g) | symbols(p))
    ratio, hits, sign = None, 0, 0
    for letters in _points(names):
        try:
            (a, sa, ev), (b, sb, _) = value_at(g, 40, letters), value_at(p, 40, letters)
        except (ZeroDivisionError, ValueError, OverflowError, TooBig):
            continue
        a, b = ev.num(a), ev.num(b)
        a_zero, b_zero = abs(a) <= sa * ev.mp.mpf(10) ** -25, abs(b) <= sb * ev.mp.mpf(10) ** -25
        if a_zero and b_zero:
            continue
        if a_zero or b_zero or not (is_real(a, sa) and is_real(b, sb)):
            return 0
        a, b = a.real, b.real
        if ratio is None:
            ratio, sign = a / b, 1 if a / b > 0 else -1
        elif abs(a - ratio * b) > (abs(a) + sa + abs(ratio) * sb) * ev.mp.mpf(10) ** -25:
            return 0
        hits += 1
    return sign if hits >= 3 else 0

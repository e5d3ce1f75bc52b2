r"""Is this still the same problem? Rules that need no model, for `rephrase.py`.

A rephrasing that changes the answer teaches the policy something wrong, and costs more than one
that is missing: a missing phrasing is replaced by the original. So whatever looks changed is
turned down, and the model is told why once. In order:

1. the text itself: control characters, broken LaTeX, length, equal to another, no question left
2. nothing added: a solution, a hint, a remark about the task, the gold answer
3. numbers: digits strictly, number words through a small table (`read_numbers`)
4. LaTeX: the commands that carry meaning, the formulas, [asy] drawings
5. words that carry meaning: answer form, rounding, units, 'at least', 'distinct', 'area' …

What no rule here can see: numbers that trade places ('Ann has 3, Ben has 5'), another thing asked
for ('in May' for 'in both months'), a fact dropped that holds no number, another story around the
same numbers. A solver sees some of it (`--verify-with`).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from fractions import Fraction
from functools import lru_cache


def why_not(original: str, rephrased: str, answer: str, others: tuple[str, ...] = ()) -> str | None:
    """None if `rephrased` may stand for `original`; else 'reason: detail', for table and retry.

    others: the question's other phrasings; answer: the gold, which must not be given away.
    """
    if bad := _bad_text(original, rephrased, others):
        return bad  # also bounds the length of what the rules below read
    o, r = read_text(original), read_text(rephrased)
    return (
        _added(o, r, answer)
        or _numbers_changed(o, r)
        or _latex_changed(o, r)
        or _words_changed(o, r)
        or ("copy: almost the same as the original" if _nearly_same(original, rephrased) else None)
    )


# ---------------------------------------------------------------- 1. the text itself


def same_words(a: str, b: str) -> bool:
    """Equal but for case, spaces and punctuation?"""
    return _bare(a) == _bare(b)


def _bare(text: str) -> str:
    return re.sub(r"[\s;:!?'\"$]|(?<!\d)[.,]|[.,](?!\d)", "", text.casefold())


def _nearly_same(a: str, b: str) -> bool:
    """Nine words in ten the same and in the same order: it would teach nothing."""
    pair = SequenceMatcher(None, a.casefold().split(), b.casefold().split())
    return pair.quick_ratio() > 0.9 and pair.ratio() > 0.9


def _bad_text(original: str, rephrased: str, others: tuple[str, ...]) -> str | None:
    # C* are control, format, surrogate, private and unassigned characters: what is left of \frac,
    # \times, \beta when JSON has read their first letter as an escape is among them
    bad = [c for c in {*rephrased} - {*original, "\n"} if unicodedata.category(c)[0] == "C"]
    if bad or "\ufffd" in {*rephrased} - {*original}:
        return f"characters: {ascii(bad[0]) if bad else 'U+FFFD'}"
    if re.search(r"<\||</?(?:rephrased|problem|think)\b|\[/?INST\]", rephrased):
        return "characters: a marker of the prompt or of a chat template"
    if same_words(original, rephrased):
        return "copy: the same as the original"
    if any(same_words(other, rephrased) for other in others):
        return "copy: the same as another phrasing"
    if not len(original) / 2 <= len(rephrased) <= 3 * len(original):
        return f"length: {len(rephrased)} characters, the original has {len(original)}"
    for left, right in ((r"\{", r"\}"), (r"\\begin\b", r"\\end\b"), (r"\\left\b", r"\\right\b")):
        if len(re.findall(rf"(?<!\\){left}", rephrased)) != len(
            re.findall(rf"(?<!\\){right}", rephrased)
        ):
            return "LaTeX: braces, \\begin and \\end, or \\left and \\right do not match"
    if _ASKS.search(original) and not _ASKS.search(rephrased):
        return "question: nothing is asked"
    return None


_ASKS = re.compile(  # a question mark, a question word, or a verb where a command begins
    r"\?|\b(?:what|how)\b|(?:^|[.,:;!)$\n-]|\bthen|\bplease|\band|\bto)\s*(?:find|determine|calculate"
    r"|compute|evaluate|express|solve|simplify|prove|show|give|state|name|write|list|enter|convert"
    r"|factor|expand|round|add|subtract|multiply|divide|work out|figure out|count|estimate|graph"
    r"|rationalize)\b",
    re.IGNORECASE,
)


# ---------------------------------------------------------------- one reading of a text

_SAME = {  # spellings of one sign
    "−": "-", "–": "-", "—": " - ", "×": r"\times ", "·": r"\times ", "÷": r"\div ",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "π": r"\pi ", "√": r"\sqrt ", "∞": r"\infty ",
    "°": r"\degree ", "²": "^2", "³": "^3", "⁄": "/", "’": "'", "‘": "'", "“": '"', "”": '"',
    "½": " 1/2", "¼": " 1/4", "¾": " 3/4", "⅓": " 1/3", "⅔": " 2/3",
}  # fmt: skip
_LATEX_SAME = (
    (r"\\[dt]frac(?![a-zA-Z])", r"\\frac"),
    (r"\\leq(?:slant)?(?![a-zA-Z])", r"\\le"),
    (r"\\geq(?:slant)?(?![a-zA-Z])", r"\\ge"),
    (r"\\neq(?![a-zA-Z])", r"\\ne"),
    (r"\\cdot(?![a-zA-Z])", r"\\times"),
    (r"\^\s*\{?\s*\\circ(?![a-zA-Z])\s*\}?", r"\\degree "),
    (r"\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])", ""),
    (r"\\[,;:! ]|~|\\q?quad\b|\\displaystyle\b|\\limits\b", " "),
    (r"\{,\}", ","),
    (r"(?<=\d),\s?\\!\s?(?=\d{3})", ","),
    (r"\\%", "%"),
    (r"\\\(|\\\)|\\\[|\\\]|\$\$", "$"),
)
_FORMAT = frozenset(
    "text mbox textbf textit emph mathrm mathbf mathit rm bf hspace vspace begin end qquad quad "
    "ldots dots cdots item hline label tag newline noindent underline".split()
)


@dataclass(frozen=True)
class Reading:
    """A text as the checks see it."""

    words: str  # lower case, money as 'dollar', LaTeX spellings made one
    formulas: tuple[str, ...]  # what stands between dollar signs, without spaces
    squeezed: str  # all of the text without spaces and dollar signs
    commands: frozenset[str]  # LaTeX commands that carry meaning
    drawings: tuple[str, ...]
    numbers: Numbers


@lru_cache(maxsize=4096)
def read_text(text: str) -> Reading:
    """The parts of a text that are compared."""
    drawings = tuple("".join(d.split()) for d in re.findall(r"\[asy\].*?\[/asy\]", text, re.DOTALL))
    text = re.sub(r"\[asy\].*?\[/asy\]", " ", text, flags=re.DOTALL)
    text = "".join(_SAME.get(c, c) for c in text)
    text = "".join(
        c if c.isascii() or not c.isdecimal() else str(unicodedata.decimal(c)) for c in text
    )
    for pattern, same in _LATEX_SAME:
        text = re.sub(pattern, same, text)
    # '1.', '2)' at the starts of lines number a list of givens
    if re.search(r"^\s*\(?1[.)]\s", text, re.M) and re.search(r"^\s*\(?2[.)]\s", text, re.M):
        text = re.sub(r"^\s*\(?\d\d?[.)]\s", "", text, flags=re.M)
    text, formulas = _split_dollars(text)
    commands = frozenset(re.findall(r"\\([a-zA-Z]+)", text)) - _FORMAT
    words = re.sub(r"\\(?:text|mbox|textbf|textit|mathrm)\s*\{([^{}]*)\}", r" \1 ", text)
    words = re.sub(r"\\degree\b", " degrees ", words)
    words = " ".join(words.lower().split())
    return Reading(
        words,
        tuple(f for f in map(_squeeze, formulas) if len(f) > 1 and not f.isdecimal()),
        _squeeze(text),
        commands,
        drawings,
        read_numbers(_NEAREST.sub(" ", words)),
    )


def _squeeze(text: str) -> str:
    text = re.sub(r"[\s$]|\\(?:text|mbox|mathrm)\b", "", text)
    return re.sub(r"([\^_])\{(\w)\}", r"\1\2", text).rstrip(".,;:?")


def _split_dollars(text: str) -> tuple[str, list[str]]:
    """(the text with money written ' dollar 5', the formulas). `$` opens a formula unless prose
    follows: in '$5 an hour, $15 in all' two dollar signs hold words, in '$5x + 3$' none."""
    out, formulas, at = [], [], 0
    text = re.sub(r"\\\$\s*(?=[\d.])", " dollar ", text).replace(r"\$", " dollar ")
    while (start := text.find("$", at)) >= 0:
        out.append(text[at:start])
        end = text.find("$", start + 1)
        inside = text[start + 1 : end] if end > 0 else ""
        prose = re.search(r"[A-Za-z]{3}", re.sub(r"\\[a-zA-Z]+(?:\{[^{}]*\})?", "", inside))
        if end < 0 or not inside.strip() or prose or inside[-1] in " \n,;(-/":
            out.append(" dollar " if re.match(r"\s?[\d.]", text[start + 1 :]) else " ")
            at = start + 1
        else:
            formulas.append(inside)
            out.append(f" ${inside}$ ")
            at = end + 1
    out.append(text[at:])
    return "".join(out), formulas


# ---------------------------------------------------------------- 2. nothing added

_SOLVING = re.compile(
    r"\b(?:the (?:final )?answer is|answer:|solution:|hint|\\?boxed|therefore|thus,|hence,|step 1"
    r"|let's|let us (?:solve|start)|we (?:can|need to|get|have to|know)|to (?:solve|find) this"
    r"|you (?:can|should|need to) (?:use|start|add|divide|multiply|subtract))\b"
    r"|\\boxed|(?<=\w:) ?-> ?\d"
)
_REMARK = re.compile(
    r"\b(?:rephras|re-?word|rewrit|paraphras|in other words|(?:original|same|new) (?:problem|"
    r"question|wording)|here(?:'s| is) (?:the|a|another)|note that the (?:answer|meaning)|"
    r"as an ai|i (?:cannot|can't|will not)|sure[,!])"
)


def _added(o: Reading, r: Reading, answer: str) -> str | None:
    for pattern, reason in ((_SOLVING, "solution"), (_REMARK, "remark")):
        found = pattern.search(r.words)
        if found and not pattern.search(o.words):
            return f"{reason}: {found.group()!r} has no place in the problem"
    gold = _squeeze(read_text(answer).words)
    if not gold:
        return None
    values = read_numbers(gold)
    if re.fullmatch(r"-?(?:[\d.,]+(?:/\d+)?|\\frac\{\d+\}\{\d+\})", gold):
        (value, *_) = [*values.digits] or [None]
        leaked = value in r.numbers.hard() and value not in o.numbers.hard() | o.numbers.soft
    elif gold.isalnum():
        word = rf"(?<![a-z\d\\]){re.escape(gold)}(?![a-z\d])"
        leaked = re.search(word, r.words) and not re.search(word, o.words)
    else:
        leaked = gold in _squeeze(r.words) and gold not in _squeeze(o.words)
    return "answer leaked: the text gives the answer away" if leaked else None


# ---------------------------------------------------------------- 3. numbers

_ONES = "one two three four five six seven eight nine".split()
_TEENS = ("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen").split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_PLAIN = {w: i for i, w in enumerate(_ONES + _TEENS, 1)} | {
    w: 10 * i for i, w in enumerate(_TENS, 2)
}
_NTH = "fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
_PARTS = {"half": 2, "halve": 2, "third": 3, "quarter": 4} | {w: i for i, w in enumerate(_NTH, 4)}
_SOFT = (  # words that may stand for a number and need not
    (r"once|single", 1),
    (r"both|pairs?|couple|twins?|squared|square (?:of|root)", 2),
    (r"cubed|cube (?:of|root)|trio", 3),
    (r"third", Fraction(1, 3)),
    (r"quarters?", Fraction(1, 4)),
    (r"no|none|nothing|zero", 0),
)
_word = "|".join([*_PLAIN, *_SCALES])
_part = "|".join(_PARTS)
_N = r"(#[\d/]+#|(?<![\d.,/#])\d+(?:\.\d+)?(?![\d/#]))"  # a number in words, now #12#, or in digits


def _say(value: Fraction | int) -> str:
    return f"#{value}#"


def _value(token: str) -> Fraction:
    return Fraction(token.strip("#"))


def _scaled(token: str, factor: int) -> str:
    """'2.5 million' stays a number in digits, 'two dozen' one in words."""
    value = _value(token) * factor
    return _say(value) if "#" in token or value.denominator > 1 else f"{value}"


def _words_to_numbers(m: re.Match) -> str:
    """'two hundred and five' -> '#205#'; 'two three' are two numbers."""
    said, total, current = [], 0, 0
    for word in re.findall(r"[a-z]+", m.group().replace(" and ", " ")):
        if word == "hundred":
            current = (current or 1) * 100
        elif word in _SCALES:
            total, current = total + (current or 1) * _SCALES[word], 0
        else:
            value, room = _PLAIN[word], 100 if current % 100 == 0 else 10
            if current and (current % room or value >= room or current % 100 == 10):
                said.append(total + current)
                total = current = 0
            current += value
    return " ".join(map(_say, [*said, total + current]))


_REWRITES = (  # in this order
    (r"\\frac\{(\d+)\}\s?\{(\d+)\}|\\frac ?(\d)\s?(\d)", lambda m: " {}/{}".format(
        *(m.group(1, 2) if m[1] else m.group(3, 4)))),
    (r"(?<=\d),(?=\d{3}(?!\d))", ""),
    (r"(?<![\d.])\.(?=\d)", "0."),
    (rf"{_N} ({'|'.join(_SCALES)})\b", lambda m: _scaled(m[1], _SCALES[m[2]])),
    (rf"\b(?:{_word})(?:(?:[ -]|(?<=hundred) and |(?<=thousand),? and )(?:{_word}))*\b",
     _words_to_numbers),
    (r"\bhalf(?: an?)? dozen\b", "#6#"),
    (rf"(?:{_N} |\ban? )?\bdozen\b", lambda m: _scaled(m[1] or "#1#", 12)),
    (rf"{_N},? and (?:a|#1#)[ -]half\b", lambda m: _say(_value(m[1]) + Fraction(1, 2))),
    (rf"(#\d+#)[ -](?:({_part})(?<!halve)|({_part})s)\b(?! grade)", lambda m: _say(
        _value(m[1]) / _PARTS[m[2] or m[3]])),
    (rf"\ban? ({_part}) of\b", lambda m: _say(Fraction(1, _PARTS[m[1]]))),
    (r"\b(?:twice|doubl(?:e[sd]?|ing)|twofold)\b", "#2#"),
    (r"\b(?:thrice|tripl(?:e[sd]?|ing)|threefold)\b", "#3#"),
    (r"\bquadrupl(?:e[sd]?|ing)\b", "#4#"),
    (r"\b(?:halv(?:e[sd]?|ing)|half)\b", "#1/2#"),
    (rf"\b({'|'.join(_NTH)})\b", lambda m: _say(_PARTS[m[1]])),
    (r"(?<![\d.,/])(\d+)\^?\{?(?:st|nd|rd|th)\b\}?", lambda m: _say(int(m[1]))),
    (r"\b(?:negative|minus) (?=\d)", " -"),
)  # fmt: skip
_NUMBER = re.compile(
    r"#(?P<word>[\d/]+)#|(?:(?P<whole>\d+)[ -])?(?P<top>\d+)/(?P<bottom>\d+)"
    r"|(?P<digits>\d+(?:\.\d+)?)"
)


@dataclass(frozen=True)
class Numbers:
    """The numbers of a text by value. `facts`: how many different words follow a value's digits,
    for '3 apples … the 3 apples' is one fact said twice, and '3, 3' is two."""

    digits: Counter
    facts: Counter
    words: frozenset
    soft: frozenset

    def hard(self) -> set:
        return set(self.digits) | self.words


def read_numbers(text: str) -> Numbers:
    """Numbers in digits and in words, of a text in lower case. 'two and a half' is 5/2, 'two dozen'
    is 24; 'one', 'both', 'pair' … may match a number and never have to."""
    text = text.replace("#", " ")
    if re.search(r"\d{100}", text):  # no problem holds one; and Python refuses to read 4,301 digits
        text = re.sub(r"\d{100,}", "0", text)
    soft = {Fraction(value) for pattern, value in _SOFT if re.search(rf"\b(?:{pattern})\b", text)}
    for pattern, new in _REWRITES:
        text = re.sub(pattern, new, text)
    digits: Counter = Counter()
    facts, words = set(), set()
    for m in _NUMBER.finditer(text):
        if m["word"]:
            value = Fraction(m["word"])
            (soft if value == 1 else words).add(value)
            continue
        bottom = int(m["bottom"] or 1)
        value = Fraction(m["digits"] or m["top"]) / (bottom or 1) + int(m["whole"] or 0)
        value = -value if _is_negative(text, m.start()) else value
        digits[value] += 1
        following = re.match(r"\s*-?\s*([a-z]+)", text[m.end() :])
        facts.add((value, following[1].rstrip("s") if following else m.start()))
    return Numbers(digits, Counter(v for v, _ in facts), frozenset(words), frozenset(soft))


def _is_negative(text: str, at: int) -> bool:
    """Is the minus sign before `at`, if any, a sign and no subtraction, range or hyphen?"""
    before = text[:at]
    if not before.endswith("-"):
        return False
    before = before[:-1]
    left = before.rstrip()
    if not left or left[-1] in "(=,{[<>:;$^|*/":
        return True
    # 'between -3 and 4', '\le -3': a word, a space, and no space after the sign
    return before != left and bool(re.search(r"[a-z]{2,}[.?!]?$", left))


def _show(value: Fraction) -> str:
    return str(value) if value.denominator in (1, 2, 3, 4) else f"{float(value):.10g}"


def _numbers_changed(o: Reading, r: Reading) -> str | None:
    a, b = o.numbers, r.numbers
    for value in sorted(a.hard() - b.hard() - b.soft):
        return f"numbers: {_show(value)} is missing"
    aside = {2} if "the two" in r.words and 2 not in b.digits else set()  # of Ann and Ben, say
    for value in sorted(b.hard() - a.hard() - a.soft - aside):
        return f"numbers: {_show(value)} is not in the original"
    strict = [v for v in a.digits.keys() & b.digits.keys() if v not in a.words | b.words]
    for value in sorted(strict):
        if a.facts[value] > b.digits[value] or b.facts[value] > a.digits[value]:
            return (
                f"numbers: {_show(value)} stands {b.digits[value]} times, "
                f"in the original {a.digits[value]}"
            )
    # said once more or once less is restating; one more *and* another less is a swap
    more = [v for v in strict if b.digits[v] > a.digits[v]]
    less = [v for v in strict if b.digits[v] < a.digits[v]]
    if more and less:
        return f"numbers: {_show(more[0])} stands where {_show(less[0])} was"
    return None


# ---------------------------------------------------------------- 4. LaTeX

_IN_WORDS = {  # what a command may become in prose, and the other way round
    "frac": r"/|\bover\b|divided by|\bhal(?:f|ves)\b|\bthirds?\b|\bquarters?\b|\b\w+ths?\b|ratio",
    "sqrt": r"\bsquare root|\broot\b",
    "times": r"\*|\btimes\b|\bproduct\b|multipl|\b(?:twice|double|triple)|\bby\b|\d ?[a-z(]",
    "div": r"/|divided by|\bquotient\b",
    "le": r"<=|\bat most\b|\bless than or equal|\bno (?:more|greater|larger) than|\bbetween\b",
    "ge": r">=|\bat least\b|\bgreater than or equal|\bno (?:less|fewer|smaller) than|non-?negative",
    "ne": r"!=|\bnot\b|\bnon-?zero\b|\bother than\b|\bdistinct|\bdifferent",
    "pi": r"\bpi\b",
    "degree": r"\bdegrees?\b|\bright angle",
    "angle": r"\bangles?\b",
    "triangle": r"\btriangles?\b",
    "perp": r"\bperpendicular",
    "parallel": r"\bparallel\b",
    "infty": r"\binfinit",
    "pm": r"\bplus or minus\b",
    "overline": r"\bsegment|\bside\b|\bline\b|\brepeating\b|\bconjugate|\b[a-z]{2}\b",
    "log": r"\blogarithm|\blog\b",
    "sin": r"\bsine?\b",
    "cos": r"\bcos(?:ine)?\b",
    "tan": r"\btan(?:gent)?\b",
    "lfloor": r"\bfloor\b|greatest integer",
    "rfloor": r"\bfloor\b|greatest integer",
    "lceil": r"\bceiling\b|least integer|smallest integer",
    "rceil": r"\bceiling\b|least integer|smallest integer",
    "binom": r"\bchoose\b|\bcombination|\bbinomial",
    "cup": r"\bunion\b",
    "cap": r"\bintersection\b",
    "in": r"\bin\b|\belement\b|\binterval\b",
    "sum": r"\bsum\b",
    "mathbb": r"\breals?\b|\bintegers?\b|\brationals?\b|\bcomplex\b",
    "pmod": r"\bmod|\bremainder|\bcongruent",
    "equiv": r"\bmod|\bremainder|\bcongruent",
    "to": r"->|\bfrom\b|\bapproach",
    "rightarrow": r"->|\bfrom\b|\bapproach",
}


def _latex_changed(o: Reading, r: Reading) -> str | None:
    if Counter(o.drawings) != Counter(r.drawings):
        return "drawing: the [asy] drawing was not copied as it is"
    for mine, other, what in ((o, r, "missing"), (r, o, "not in the original")):
        for command in sorted(mine.commands - other.commands):
            words = _IN_WORDS.get(command)
            if not (words and re.search(words, other.words)):
                return f"LaTeX: \\{command} is {what}"
    # Symbols may become words, and words symbols. A formula gone *and* a new one is a changed one.
    gone = [f for f in o.formulas if f not in r.squeezed]
    new = [f for f in r.formulas if f not in o.squeezed]
    if gone and new:
        return f"formula: {gone[0]} became {new[0]}"
    return None


# ---------------------------------------------------------------- 5. words that carry meaning

# name: (words that must be in both texts or in neither, words that may stand in for them)
_FORM = {
    "simplest form": (r"simplest|lowest terms|simplif|reduced (?:form|fraction)|fully reduced", ""),
    "relatively prime": (r"relatively prime|co-?prime", r"simplest|lowest terms"),
    "fraction": (r"fractions?", ""),
    "common fraction": (r"common fraction", r"fraction"),
    "mixed number": (r"mixed (?:number|fraction)", ""),
    "improper": (r"improper", ""),
    "decimal": (r"decimal(?! place)|decimals", ""),
    "in terms of": (r"in terms of", r"as a function of|using|an expression in"),
    "base": (r"base[- ]?\$?(?:\d|ten\b|#)|binary|octal|hexadecimal", r"_ ?\{? ?\d"),
    "rounding": (r"round(?:ed|ing)?(?= (?:to|up|down|off|your|the|it)\b)|nearest|decimal places?"
                 r"|significant (?:digit|figure)|approximat", ""),
    "ordered": (r"ordered (?:pair|triple|quadruple)s?", ""),
    "interval notation": (r"interval notation", ""),
    "scientific notation": (r"scientific notation", ""),
    "form": (r"(?:in|of) the form|standard form|-intercept form|radical form", r"form|written as"),
    "commas": (r"commas?(?:-separated)?", ""),
    "factored": (r"factor(?:ed|i[sz]e[d]?)? (?:form|completely)|completely factor", r"factor"),
    "expand": (r"expand(?:ed)?|expansion", ""),
}  # fmt: skip
_MEANING = {
    "at least": (
        r"at least|(?:no|not) (?:fewer|less|smaller) than|or (?:more|greater)|greater than or "
        r"equal|(?<!the )minimum of|\\ge(?![a-z])", r">=|non-?negative"),
    "at most": (
        r"at most|(?:no|not) (?:more|greater|larger) than|or (?:fewer|less|smaller)|less than or "
        r"equal|(?<!the )maximum of|not exceed(?:ing)?|\\le(?![a-z])", r"<=|up to"),
    "maximum": (
        r"maxim\w+|largest|greatest|biggest|highest|gcd|gcf|hcf", r"most|longest|oldest|latest"),
    "minimum": (
        r"minim\w+|smallest|lowest|fewest|least common|lcm|lcd", r"least|shortest|youngest"),
    "exactly": (r"exactly|precisely", r"only|just"),
    "integer": (r"(?:non)?integers?|integral|whole numbers?", r"\\mathbb"),
    "real": (r"real", r"\\mathbb"),
    "positive": (r"positive", r"natural|greater than|> ?0"),
    "negative": (r"(?<!non)(?<!non-)negative(?! \d)", r"less than|< ?0|-|below"),
    "nonnegative": (r"non-?negative", r"\\ge|>=|at least"),
    "even": (r"even(?= (?:number|integer|digit|positive|function|if and))|(?:is|are|be) even", ""),
    "odd": (r"odd", ""),
    "prime": (r"primes?", ""),
    "composite": (r"composite", ""),
    "consecutive": (r"consecutive", r"in a row|successive|one after (?:the|an)other"),
    "distinct": (r"distinct", r"different|unequal|distinguishable|\\ne"),
    "inclusive": (r"inclusive|inclusively", r"including|both ends|\\le"),
    "exclusive": (r"exclusive", r"strictly"),
    "ago": (r"ago", r"earlier|before|previous\w*|last"),
    "replacement": (r"replace(?:ment|d|ing)?", r"put(?:ting)? back|return"),
    "radius": (r"radius|radii", ""),
    "diameter": (r"diameters?", ""),
    "perimeter": (r"perimeters?", r"distance around"),
    "circumference": (r"circumference", r"distance around|perimeter"),
    "area": (r"areas?", r"square (?:units|feet|inches|meters|yards|miles)"),
    "volume": (r"volumes?", r"cubic"),
    "median": (r"medians?", ""),
    "mode": (r"mode", ""),
    "average": (r"averages?|arithmetic mean|mean(?= (?:of|is|score|value))|averaged", r"mean"),
    "product": (r"products?(?= (?:of|is)\b)", r"times|multipl\w+|\*|\\times"),
    "quotient": (r"quotient", r"divided by|/|\\div"),
    "remainder": (r"remainder", r"rest|left|remaining|\\pmod|\\equiv|mod"),
    "perpendicular": (r"perpendicular", r"\\perp|right angles?|orthogonal"),
    "parallel": (r"parallel", ""),
    "reciprocal": (r"reciprocal", r"inverse"),
    "digit": (r"digits?", r"\\dots|-digit"),
    "probability": (r"probability|chance|likely|likelihood|odds", ""),
    "percent": (r"%|per ?cent\w*", ""),
    "square unit": (r"(?:square|sq\.?) (?:unit|inch|f[eo][eo]t|ft|yard|mile|met|cent|kilo|cm|km)\w*"
                    r"|(?:cm|km|mm|ft|in)\s?\^ ?\{?2", ""),
    "cubic unit": (r"(?:cubic|cu\.?) (?:unit|inch|f[eo][eo]t|ft|yard|met|cent|cm)\w*"
                   r"|(?:cm|km|mm|ft|in)\s?\^ ?\{?3", ""),
    "not": (r"not|[a-z]{2,6}n't|never|no|nor|neither|none|without|except|cannot|zero|nothing|"
            r"non\w+", r"un\w+|other than|0|\\ne|only|lack\w*|fail\w*|instead|remaining"),
}  # fmt: skip
_UNITS = {
    "dollars": (r"dollars?|usd|bucks?", ""),
    "cents": (r"cents?|¢", ""),
    "inches": (r"inch(?:es)?", r"in\b"),
    "feet": (r"feet|foot|ft", ""),
    "yards": (r"yards?|yd", ""),
    "miles": (r"miles?|mph", r"mi\b"),
    "millimeters": (r"mm|millimet(?:er|re)s?", ""),
    "centimeters": (r"cm|centimet(?:er|re)s?", ""),
    "meters": (r"met(?:er|re)s?", r"m\b"),
    "kilometers": (r"km|kmh|kph|kilomet(?:er|re)s?", ""),
    "grams": (r"grams?", r"g\b"),
    "kilograms": (r"kg|kilos?|kilograms?", ""),
    "ounces": (r"ounces?|oz", ""),
    "pounds": (r"pounds?|lbs?", ""),
    "tons": (r"tons?|tonnes?", ""),
    "liters": (r"lit(?:er|re)s?", r"l\b"),
    "milliliters": (r"ml|millilit(?:er|re)s?", ""),
    "gallons": (r"gallons?", ""),
    "seconds": (r"seconds|per second", r"second|secs?"),
    "minutes": (r"minutes?|mins?", ""),
    "hours": (r"hours?|hourly|hrs?|mph|kph", r"h\b"),
    "days": (r"days?|daily|everyday", ""),
    "weeks": (r"weeks?|weekly", ""),
    "months": (
        r"months?|monthly",
        r"january|february|march|april|may|june|july|august|september|"
        r"october|november|december",
    ),
    "years": (r"years?|yearly|annual\w*|per annum", r"aged?|old"),
    "degrees": (r"degrees?", r"\\degree"),
    "radians": (r"radians?", ""),
}
# Only loss is looked at: prose may add these at will
_KEPT = {
    "each": (r"each|per|every|apiece", r"a|an|all|both|any|daily|weekly|hourly|monthly|yearly"),
    "only": (r"only", r"just|no (?:other|more)|exactly|solely|single|nothing|rest|except"),
    "if": (r"unless|assum\w+|provided that", r"if|given|suppose|when|let"),
}
# Opposites: one gone while the other came is a swap
_OPPOSITES = (
    (r"more|greater|larger|longer|older|taller|heavier|faster|additional|extra",
     r"fewer|less|smaller|shorter|younger|lighter|slower"),
    (r"increas\w+|ris(?:e|es|en|ing)|rose|grow\w*|grew|raised?", r"decreas\w+|drop\w*|fell|reduc\w+"
     r"|shrink\w*|shrank|declin\w+"),
    (r"before|earlier|ago", r"after|later"),
    (r"first", r"last"),
    (r"above|over", r"below|under"),
    (r"inside|within|interior|inscribed", r"outside|exterior|circumscribed"),
    (r"plus|sum|add\w*|\+|total|altogether|combined|together",
     r"minus|difference|subtract\w*|(?<=[\w)}] )- (?=[\w(\\])"),
    (r"times|product|multipl\w+|\*", r"divided|divides?|quotient"),
    (r"total|altogether|combined|in all", r"difference|left|remain\w*|how (?:many|much) more"),
    (r"times", r"(?:more|less|fewer|greater) than"),
    (r"rows?", r"columns?"), (r"clockwise", r"counter-?clockwise|anticlockwise"),
    (r"width|wide", r"length|long"), (r"north\w*", r"south\w*"), (r"east\w*", r"west\w*"),
    (r"profit\w*|gain\w*", r"loss|lost|los(?:e|es|ing)"),
    (r"increasing|ascending", r"decreasing|descending"),
    (r"<", r">"),
    (r"all", r"some|any"),
    (r"permutations?|arrangements?", r"combinations?|committees?|subsets?"),
)  # fmt: skip


def _pattern(words: str) -> re.Pattern:
    return re.compile(rf"(?<![a-z\\])(?:{words})(?![a-z])")


def _compiled(table: dict) -> list:
    return [(name, _pattern(hard), _pattern(soft) if soft else None)
            for name, (hard, soft) in table.items()]  # fmt: skip


_TABLES = [
    ("answer form", True, _compiled(_FORM)),
    ("units", True, _compiled(_UNITS)),
    ("meaning", True, _compiled(_MEANING)),
    ("meaning", False, _compiled(_KEPT)),
]
_SWAPS = [tuple(map(_pattern, pair)) for pair in _OPPOSITES]
_BOUNDS = re.compile("|".join(_MEANING[bound][0] for bound in ("at least", "at most")))
_NEAREST = re.compile(r"nearest (?:\w+-)?(\w+)|\b(\w+) decimal place")
_PLACES = {"1": "tenth", "one": "tenth", "2": "hundredth", "two": "hundredth", "3": "thousandth",
           "three": "thousandth", "whole": "integer", "centimeter": "cm"}  # fmt: skip


def _words_changed(o: Reading, r: Reading) -> str | None:
    for reason, both_ways, table in _TABLES:
        for name, hard, soft in table:
            in_o, in_r = bool(hard.search(o.words)), bool(hard.search(r.words))
            if in_o and not in_r and not (soft and soft.search(r.words)):
                return f"{reason}: {name!r} is lost"
            if both_ways and in_r and not in_o and not (soft and soft.search(o.words)):
                return f"{reason}: {name!r} is not in the original"
    targets = [
        {_PLACES.get(t, t) for pair in _NEAREST.findall(x.words) for t in pair if t} for x in (o, r)
    ]
    if targets[0] != targets[1]:
        return f"answer form: rounding to {sorted(targets[1])}, not {sorted(targets[0])}"
    in_o, in_r = (_BOUNDS.sub(" ", x.words) for x in (o, r))  # 'no less than' is no 'less'
    for pair in _SWAPS:
        for here, there in (pair, pair[::-1]):
            lost, new = here.search(in_o), there.search(in_r)
            if lost and new and not here.search(in_r) and not there.search(in_o):
                return f"meaning: {lost[0]!r} became {new[0]!r}"
    return None


def last_box(text: str) -> str:
    r"""The content of a reply's last complete \boxed{}, or ''. Of a solver, not of the policy: the
    rules of `reward.py` against gaming are not needed."""
    start = text.rfind(r"\boxed{")
    depth = 0
    for end in range(start + 6, len(text) if start >= 0 else 0):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start + 7 : end].strip()
    return ""

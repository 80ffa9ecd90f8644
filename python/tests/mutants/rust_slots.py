"""Where a Rust source may be given faults, found by its tokens: conditions, values of `let`, arms of `match`, tails, statements.

A *slot* is a piece of text that can be written twice, once with a fault: `if __mutant(7) { a - b } else { a + b }`. Sources are formatted
by rustfmt, so that binary operators stand between spaces, and others do not. What is not understood is left alone; what does not compile
is found by the compiler, and left out (`switch.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<string>b?r(?P<h>\#*)".*?"(?P=h)|b?"(?:\\.|[^"\\])*")
    |(?P<char>b?'(?:\\x[0-9a-fA-F]{2}|\\u\{[0-9a-fA-F]+\}|\\.|[^'\\])')|(?P<life>'[A-Za-z_]\w*)
    |(?P<number>\d[\d_]*(?:\.\d[\d_]*)?(?:e[+-]?\d+)?(?:[iuf](?:8|16|32|64|128|size))?|0x[0-9a-fA-F_]+)
    |(?P<word>[A-Za-z_]\w*)|(?P<sign><<=|>>=|\.\.=|\.\.\.|=>|->|::|==|!=|<=|>=|&&|\|\||\+=|-=|\*=|/=|%=|\^=|&=|\|=|\.\.|[^\s\w])""",
    re.X | re.S,
)
OPERATORS = {
    "==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "&&": "||", "||": "&&", "+": "-", "-": "+", "*": "+", "/": "*",
    "%": "/", "+=": "-=", "-=": "+=",
}  # fmt: skip
#: Methods that take and give the same.
METHODS = {
    "mul": "add", "add": "sub", "sub": "add", "div": "mul", "min": "max", "max": "min", "any": "all", "all": "any", "is_some": "is_none",
    "is_none": "is_some", "first": "last", "last": "first", "is_ok": "is_err", "is_finite": "is_nan", "wrapping_add": "wrapping_sub",
    "wrapping_sub": "wrapping_add", "saturating_sub": "saturating_add", "floor": "ceil", "ceil": "floor", "leading_zeros": "trailing_zeros",
}  # fmt: skip
BLOCKS = {"if", "while", "for", "match", "loop", "unsafe"}
#: Statements that are not expressions.
ITEMS = {"let", "return", "break", "continue", "use", "const", "static", "fn", "pub", "struct", "enum", "impl", "type", "mod", "macro_rules", "#"}
#: What a function can give instead.
VALUES = {"bool": ["true", "false"], "usize": ["0", "1"], "i64": ["0", "1"], "u64": ["0"], "u32": ["0"], "i32": ["0"], "f32": ["0.0"],
          "f64": ["0.0"], "String": ["String::new()"]}  # fmt: skip


@dataclass
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclass
class Fault:
    #: What of the source becomes what; for a slot of another kind than an expression what the fault is.
    start: int
    end: int
    after: str
    operator: str
    number: int = 0


@dataclass
class Slot:
    #: `value`, `condition`, `statement` or `entry` (the beginning of a function's body).
    kind: str
    start: int
    end: int
    function: str
    faults: list[Fault] = field(default_factory=list)
    inner: list[Slot] = field(default_factory=list)


def tokens(text: str) -> list[Token]:
    found = [Token(m.lastgroup if m.lastgroup != "h" else "string", m[0], m.start(), m.end()) for m in TOKEN.finditer(text)]
    return [t for t in found if t.kind not in ("space", "comment")]


class Reader:
    def __init__(self, text: str) -> None:
        self.text, self.t = text, tokens(text)
        self.close = self._pairs()
        self.slots: list[Slot] = []
        self.function = ""

    def _pairs(self) -> dict[int, int]:
        found, open_ = {}, []
        for i, token in enumerate(self.t):
            if token.kind == "sign" and token.text in "([{":
                open_.append(i)
            elif token.kind == "sign" and token.text in ")]}" and open_:
                found[open_.pop()] = i
        return found

    def is_(self, i: int, *texts: str) -> bool:
        return 0 <= i < len(self.t) and self.t[i].text in texts and self.t[i].kind in ("sign", "word")

    def read(self) -> list[Slot]:
        i = 0
        while i < len(self.t):
            if self.is_(i, "#") and self.is_(i + 1, "["):
                end = self.close[i + 1]
                tested = "test" in {t.text for t in self.t[i:end]}
                i = end + 1
                if tested:  # the item below it
                    while i < len(self.t) and not self.is_(i, "{", ";"):
                        i += 1
                    i = self.close.get(i, i) + 1
                continue
            if self.is_(i, "macro_rules"):
                while not self.is_(i, "{"):
                    i += 1
                i = self.close[i] + 1
                continue
            if self.is_(i, "fn") and self.t[i + 1].kind == "word":
                i = self.function_at(i)
                continue
            i += 1
        return nested(self.slots)

    def function_at(self, i: int) -> int:
        constant = any(self.is_(j, "const") for j in range(max(0, i - 4), i) if not self.is_(j, "}", ";", "]"))
        self.function = self.t[i + 1].text
        j, gives = i, ""
        while not self.is_(j, "{", ";"):
            if self.is_(j, "(", "["):
                j = self.close[j]
            if self.is_(j, "->"):
                begin = j + 1
                while not self.is_(j, "{", ";", "where"):
                    j = self.close[j] if self.is_(j, "(", "[") else j
                    j += 1
                gives = self.text[self.t[begin].start : self.t[j - 1].end]
                continue
            j += 1
        if self.is_(j, ";"):
            return j + 1
        end = self.close[j]
        if not constant:
            values = VALUES.get(gives) or (["None"] if gives.startswith("Option<") else ["Vec::new()"] if gives.startswith("Vec<") else [])
            if values:
                slot = self.slot("entry", self.t[j].end, self.t[j].end)
                slot.faults = [Fault(slot.start, slot.end, value, "return immediately") for value in values]
            self.block(j + 1, end)
        return end + 1

    def slot(self, kind: str, start: int, end: int) -> Slot:
        made = Slot(kind, start, end, self.function)
        self.slots.append(made)
        return made

    # Blocks of statements, from the token after `{` up to the one of `}`

    def block(self, i: int, end: int) -> None:
        while i < end:
            if self.is_(i, "#") and self.is_(i + 1, "["):
                i = self.close[i + 1] + 1
                continue
            if self.is_(i, "fn") or self.is_(i, "const", "static", "use", "struct", "enum", "impl", "macro_rules"):
                inner = self.function
                i = self.function_at(i) if self.is_(i, "fn") else self.skip_item(i, end)
                self.function = inner
                continue
            i = self.statement(i, end)

    def skip_item(self, i: int, end: int) -> int:
        while i < end and not self.is_(i, ";"):
            if self.is_(i, "{"):
                return self.close[i] + 1
            i = self.close[i] if self.is_(i, "(", "[") else i
            i += 1
        return i + 1

    def statement(self, i: int, end: int) -> int:
        """One statement or the tail; gives the token after it."""
        begin = i
        if self.is_(i, "let"):
            j = self.until(i, end, ("=", ";"))
            if self.is_(j, ";") or j >= end:
                return j + 1
            stop = self.until(j + 1, end, (";",))
            refutable = any(self.is_(k, "else") for k in self.top(j + 1, stop)) and not self.is_(j + 1, "if", "match")
            if not refutable:
                self.value(j + 1, stop)
            self.expression(j + 1, stop)
            return stop + 1
        if self.is_(i, *BLOCKS) or self.is_(i, "{"):
            stop = self.block_like(i, end)
            follows = self.is_(stop, ".", "?") or stop < end and self.t[stop].text in OPERATORS and not self.is_(stop, "-", "*")
            if not follows:
                return stop
        stop = self.until(i, end, (";",))
        if self.is_(i, "return") and stop > i + 1:
            self.value(i + 1, stop)
        elif stop >= end:  # the tail
            if not self.is_(begin, *ITEMS):
                self.value(begin, end)
        elif not self.is_(i, *ITEMS) and not (self.t[i].kind == "word" and self.is_(i + 1, "!")):
            slot = self.slot("statement", self.t[i].start, self.t[stop].end)
            slot.faults.append(Fault(slot.start, slot.end, "", "remove a statement"))
        self.expression(i, stop)
        return stop + 1

    def until(self, i: int, end: int, stops: tuple[str, ...]) -> int:
        while i < end:
            if self.is_(i, *stops):
                return i
            i = self.close[i] if self.is_(i, "(", "[", "{") else i
            i += 1
        return end

    def top(self, i: int, end: int):
        while i < end:
            yield i
            i = self.close[i] if self.is_(i, "(", "[", "{") else i
            i += 1

    # Expressions: what is inside them

    def block_like(self, i: int, end: int) -> int:
        """An `if`, `match`, loop or block with all that belongs to it; gives the token after."""
        if self.is_(i, "{"):
            self.block(i + 1, self.close[i])
            return self.close[i] + 1
        word = self.t[i].text
        j = self.until(i + 1, end, ("{",))
        if j >= end:
            return end
        header = list(self.top(i + 1, j))
        if word in ("if", "while") and not any(self.is_(k, "let") for k in header) and header:
            self.condition(i + 1, j)
        if word in ("match", "for", "if", "while"):
            self.expression(i + 1, j)
        if word == "match":
            self.arms(j + 1, self.close[j])
        else:
            self.block(j + 1, self.close[j])
        j = self.close[j] + 1
        if word == "if" and self.is_(j, "else"):
            return self.block_like(j + 1, end)
        return j

    def arms(self, i: int, end: int) -> None:
        while i < end:
            arrow = self.until(i, end, ("=>",))
            guard = next((k for k in self.top(i, arrow) if self.is_(k, "if")), None)
            if guard is not None and not any(self.is_(k, "let") for k in self.top(guard, arrow)):
                self.condition(guard + 1, arrow)
            if arrow >= end:
                return
            if self.is_(arrow + 1, "{"):
                self.block(arrow + 2, self.close[arrow + 1])
                i = self.close[arrow + 1] + 1
                i += self.is_(i, ",")
                continue
            stop = self.until(arrow + 1, end, (",",))
            if self.is_(arrow + 1, *BLOCKS):
                self.block_like(arrow + 1, stop)
            elif not self.is_(arrow + 1, "return", "continue", "break"):
                self.value(arrow + 1, stop)
                self.expression(arrow + 1, stop)
            i = stop + 1

    def expression(self, i: int, end: int) -> None:
        """Blocks and closures with blocks inside an expression."""
        while i < end:
            if self.is_(i, *BLOCKS):
                i = self.block_like(i, end)
                continue
            if self.is_(i, "{"):
                before = self.t[i - 1]
                if before.text in ("|", "=", "(", ",", "move", "else") or before.text == "||":
                    self.block(i + 1, self.close[i])
                    i = self.close[i] + 1
                    continue
            i += 1

    def condition(self, i: int, end: int) -> None:
        slot = self.slot("condition", self.t[i].start, self.t[end - 1].end)
        if not any(t.text in OPERATORS and t.kind == "sign" for t in self.t[i:end]) and not self.is_(i, "!"):
            slot.faults.append(Fault(slot.start, slot.end, f"!({self.text[slot.start : slot.end]})", "negate a condition"))
        self.faults(slot, i, end)

    def value(self, i: int, end: int) -> None:
        if i < end:
            self.faults(self.slot("value", self.t[i].start, self.t[end - 1].end), i, end)

    def faults(self, slot: Slot, i: int, end: int) -> None:
        """The faults of single tokens; those of slots inside are taken away in `nested`."""
        for k in range(i, end):
            token = self.t[k]
            spaced = self.text[token.start - 1] in " \n" and self.text[token.end : token.end + 1] in (" ", "\n")
            change = ""
            if token.kind == "sign" and token.text in OPERATORS and spaced and k > i:
                change = OPERATORS[token.text]
            elif token.kind == "word" and token.text in ("true", "false"):
                change = "false" if token.text == "true" else "true"
            elif token.kind == "word" and token.text in METHODS and self.is_(k - 1, ".") and self.is_(k + 1, "("):
                change = METHODS[token.text]
            elif token.kind == "sign" and token.text == "!" and not spaced and not (k and self.t[k - 1].kind == "word" and self.t[k - 1].end == token.start):
                slot.faults.append(Fault(token.start, token.end, "", "drop a sign"))
            elif token.kind == "number" and re.fullmatch(r"\d[\d_]*(?:[iu]\w+)?", token.text) and not self.is_(k - 1, "."):
                digits = re.match(r"[\d_]+", token.text)[0]
                number, rest = int(digits.replace("_", "")), token.text[len(digits) :]
                slot.faults.append(Fault(token.start, token.end, f"{number + 1}{rest}", "one more"))
                if number:
                    slot.faults.append(Fault(token.start, token.end, f"{number - 1}{rest}", "one less"))
            elif token.kind == "number" and re.fullmatch(r"\d[\d_]*\.\d[\d_]*", token.text):
                slot.faults.append(Fault(token.start, token.end, f"({token.text} + 1.0)", "one more"))
            if change:
                slot.faults.append(Fault(token.start, token.end, change, "swap"))


def nested(slots: list[Slot]) -> list[Slot]:
    """Slots in each other, each with the faults that are in none of its inner ones."""
    outer: list[Slot] = []
    stack: list[Slot] = []
    for slot in sorted(slots, key=lambda s: (s.start, -s.end)):
        while stack and not (slot.start >= stack[-1].start and slot.end <= stack[-1].end and stack[-1].kind != "entry"):
            stack.pop()
        (stack[-1].inner if stack else outer).append(slot)
        stack.append(slot)
    for slot in slots:
        own = {(f.start, f.end, f.after) for inner in all_of(slot.inner) for f in inner.faults if inner.kind in ("value", "condition")}
        slot.faults = [f for f in slot.faults if (f.start, f.end, f.after) not in own]
    return outer


def all_of(slots: list[Slot]):
    for slot in slots:
        yield slot
        yield from all_of(slot.inner)

"""Random kernels as Python text, with their arguments.

A program is a module: captured names, helpers, one kernel. Everything in it has a type that is known here, so that what is
drawn is legal; what the compiler refuses all the same is counted by code in `fuzz`. The positions that a group or lane
writes are its own, so that the order of groups and lanes changes nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .values import NUMPY, RANGE, carrier

W = 8  # elements of a row
STORAGE = ["i8", "i16", "u8", "u16", "f16", "bf16"]
SCALARS = ["i32", "i64", "u32", "u64", "f32", "f64"]
INTS = ["i32", "i64", "u32", "u64"]
#: What a build may lack: `fuzz.probe` asks it, and the generator leaves out what is not there.
OPTIONAL = [
    "lane_break", "lane_loop_else", "loop_var_after", "wide_literal", "u64_literal", "literal_carried", "for_else", "while_else",
    "chained_assign", "target_order", "index_beside_id", "walrus", "helper_global_default", "or_value", "captures_change",
    "shared_in_group", "gather_add", "swap_slices", "return_in_loop", "inner_exit_before_assign", "min_literal", "dotted",
    "tuple_value", "nested_unpack", "lane_while_else", "mixed_literal", "loop_var_assign", "scratch_of_two_types", "or_literal",
]  # fmt: skip


@dataclass
class Case:
    """A program: its text, the types of its variables, its arguments and its launch."""

    text: str
    types: dict[str, dict[str, str]]
    arrays: dict[str, tuple[tuple[int, ...], str]]
    grid: int
    lanes: int  # in a group; 0 for a group kernel
    seed: int
    later: dict[str, Any] = field(default_factory=dict)  # captured names that change before a second call
    counts: Counter = field(default_factory=Counter)
    statements: int = 0
    floats_only_exact: bool = True

    def arguments(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        return {name: draw(rng, shape, dt) for name, (shape, dt) in self.arrays.items()}


def draw(rng: np.random.Generator, shape: tuple[int, ...], dt: str) -> np.ndarray:
    """Numbers among which the small, the least and the greatest are frequent."""
    if dt == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if carrier(dt) in ("f32", "f64"):
        pool = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -7.25, 1e-3, 100.0, 1e-40, 6e4], np.float64)
        pick = pool[rng.integers(0, len(pool), shape)]
        other = rng.standard_normal(shape) * 4
        with np.errstate(all="ignore"):
            return np.where(rng.random(shape) < 0.5, pick, other).astype(NUMPY[dt])
    lo, hi = RANGE[dt]
    pool = [0, 1, 2, 3, 5, 7, hi, hi - 1, lo, lo + 1, min(hi, 100)] + ([-1, -2, -3] if lo else [])
    out = np.empty(shape, object)
    for where in np.ndindex(*shape):
        out[where] = pool[rng.integers(len(pool))] if rng.random() < 0.4 else int(rng.integers(-9 if lo else 0, 20))
    return out.astype(NUMPY[dt])


class Scope:
    """The variables that are bound here, by type; and the arrays that may be read and written."""

    def __init__(self, arrays: dict[str, str], prefix: str, names: dict[str, str] | None = None) -> None:
        self.arrays = arrays
        self.prefix = prefix
        self.names: dict[str, str] = dict(names or {})
        self.tiles: dict[str, tuple[str, int]] = {}
        self.tuples: dict[str, list[str]] = {}
        self.fixed: set[str] = set()  # not to be assigned: loop variables and counters

    def copy(self) -> Scope:
        out = Scope(self.arrays, self.prefix, self.names)
        out.tiles, out.tuples, out.fixed = dict(self.tiles), dict(self.tuples), set(self.fixed)
        return out


class Gen:
    def __init__(self, seed: int, have: set[str] | None = None, kind: str | None = None, without: frozenset[str] = frozenset()) -> None:
        self.without = without  # kinds of statements and expressions that are not drawn
        self.rng = random.Random(seed)
        self.seed = seed
        self.have = set(OPTIONAL) if have is None else have
        self.counts: Counter = Counter()
        self.number = 0
        self.lane = kind == "lane" if kind else self.rng.random() < 0.4
        self.helpers: list[dict[str, Any]] = []
        self.types: dict[str, str] = {}
        self.loops: list[str] = []  # "for" or "while" around here
        self.statements = 0
        self.in_helper = False
        self.returned = False
        self.shared: set[str] = set()
        self.extra: set[str] = set()  # arrays that expressions do not draw from by type
        self.plain = 0  # inside of what must have no effects

    # Small choices.
    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def pick(self, items: Any) -> Any:
        return self.rng.choice(list(items))

    def count(self, name: str) -> None:
        self.counts[name] += 1

    def has(self, feature: str) -> bool:
        return feature in self.have

    def name(self, dt: str, stem: str = "v") -> str:
        self.number += 1
        name = f"{stem}{self.number}"
        self.types[name] = dt
        return name

    # Literals.
    def literal(self, dt: str) -> str:
        """A literal that fits the type."""
        if dt in ("f32", "f64"):
            self.count("float literal")
            pool = ["0.0", "1.0", "0.5", "-1.5", "0.1", "3.0", "1e-3", "2.5e3", "1e-40", "2.0**-130", "2.0**20", "3e38", "1", "-2", "7"]
            if dt == "f64":
                pool += ["1e300", "5e-324", "1e-310", "2.0**70"]
            text = self.pick(pool)
            return f"({text})" if text.startswith("-") else text
        lo, hi = RANGE[dt]
        roll = self.rng.random()
        if roll < 0.6:
            value = self.rng.randint(-4 if lo else 0, 9)
        elif roll < 0.9:
            edges = [2**k + d for k in (7, 8, 15, 16, 31, 32, 40, 63, 64) for d in (-1, 0, 1)]
            edges += [-e for e in edges]
            fits = [e for e in edges if lo <= e <= hi]
            if not self.has("u64_literal"):
                fits = [e for e in fits if e < 2**63]
            if not self.has("min_literal"):
                fits = [e for e in fits if e > -(2**63)]
            value = self.pick(fits)
            self.count("edge literal")
        else:
            value = self.rng.randint(max(lo, -(2**31)), min(hi, 2**31 - 1))
        if value >= 2**32 and value & (value - 1) == 0 and self.chance(0.5) and value < 2**63:
            return f"2**{value.bit_length() - 1}"
        return f"({value})" if value < 0 else str(value)

    def captured(self, dt: str) -> str | None:
        if dt in INTS and self.chance(0.7):
            self.count("captured")
            return self.pick(["G0", "cfg.K"] if self.has("dotted") else ["G0"])
        if dt in ("f32", "f64"):
            self.count("captured")
            return "G1"
        return None

    # Indices.
    def index(self, s: Scope, depth: int = 0) -> str:
        """A position along the last axis."""
        roll = self.rng.random()
        ints = [n for n, d in s.names.items() if d in ("i32", "i64")]
        if roll < 0.55 or not ints:
            if self.chance(0.08):
                self.count("index from the end")
                return f"-{self.rng.randint(1, W)}"
            return str(self.rng.randint(0, W - 1))
        v = self.pick(ints)
        if v in s.fixed and self.chance(0.6):
            return self.pick([v, f"{v} + 1", f"({v} * 2) % {W}", f"{v} - 1"])
        if self.chance(0.12):
            self.count("index anywhere")
            return v
        return f"{v} % {W}"

    def element(self, s: Scope, name: str, depth: int = 0) -> str:
        return f"{name}[{self.pre(s, name)}{self.index(s, depth)}]"

    def pre(self, s: Scope, name: str) -> str:
        return "" if name in self.shared else s.prefix

    def arrays_of(self, s: Scope, want: Any) -> list[str]:
        return [n for n, d in s.arrays.items() if want(d)]

    # Expressions: strong, of exactly this type.
    def expr(self, s: Scope, dt: str, depth: int = 3) -> str:
        if depth <= 0:
            return self.leaf(s, dt)
        kinds = ["leaf", "binary", "binary", "binary", "unary", "call", "choose", "cast", "mixed", "minmax"]
        if not self.plain:
            kinds += ["effect", "effect"]
            if self.has("walrus"):
                kinds.append("walrus")
        if self.has("or_value"):
            kinds.append("or")
        kinds = [k for k in kinds if k not in self.without]
        return getattr(self, "e_" + self.pick(kinds))(s, dt, depth)

    def leaf(self, s: Scope, dt: str) -> str:
        options = [n for n, d in s.names.items() if d == dt] * 2
        options += [f"{t}[{k}]" for t, ds in s.tuples.items() for k, d in enumerate(ds) if d == dt] * 2
        arrays = self.arrays_of(s, lambda d: d == dt)
        options += [None] * max(2, len(options) // 2) if arrays else []
        if not options:
            return self.from_other(s, dt)
        found = self.pick(options)
        if found is None:
            self.count("element read")
            return self.element(s, self.pick(arrays))
        if "[" in found:
            self.count("tuple item")
        return found

    def from_other(self, s: Scope, dt: str) -> str:
        """A value of the type where nothing of that type is there."""
        arrays = list(s.arrays)
        if arrays:
            name = self.pick(arrays)
            self.count("cast")
            return f"ts.tile.cast({self.element(s, name)}, ts.{dt})"
        names = [n for n, d in s.names.items() if d in SCALARS]
        return f"ts.tile.cast({self.pick(names)}, ts.{dt})" if names else f"ts.tile.cast({self.literal(dt)}, ts.{dt})"

    def e_leaf(self, s: Scope, dt: str, depth: int) -> str:
        return self.leaf(s, dt)

    def operand(self, s: Scope, dt: str, depth: int) -> str:
        """An operand beside a strong one: perhaps a literal, or a narrow element."""
        roll = self.rng.random()
        if roll < 0.35:
            return self.literal(dt)
        if roll < 0.45:
            found = self.captured(dt)
            if found:
                return found
        if roll < 0.6 and dt in ("i32", "f32"):
            narrow = self.arrays_of(s, lambda d: d in STORAGE and carrier(d) == dt)
            if narrow:
                self.count("narrow operand")
                return self.element(s, self.pick(narrow))
        return self.expr(s, dt, depth - 1)

    def e_binary(self, s: Scope, dt: str, depth: int) -> str:
        if dt in INTS:
            op = self.pick(["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>"])
        else:
            op = self.pick(["+", "-", "*", "/", "+", "-", "*", "/", "//", "%"])
        self.count(f"{op} of {dt}")
        if op in ("<<", ">>") and self.chance(0.7):
            return f"({self.expr(s, dt, depth - 1)} {op} {self.rng.choice([0, 1, 3, 7, 31, 32, 33, 63, 64])})"
        strong, other = self.expr(s, dt, depth - 1), self.operand(s, dt, depth)
        return f"({strong} {op} {other})" if self.chance(0.6) else f"({other} {op} {strong})"

    def e_unary(self, s: Scope, dt: str, depth: int) -> str:
        x = self.expr(s, dt, depth - 1)
        self.count("unary")
        if dt in INTS:
            return self.pick([f"(-{x})", f"(~{x})", f"abs({x})"])
        return self.pick([f"(-{x})", f"abs({x})", f"ts.tile.floor({x})", f"ts.tile.sqrt({x})"])

    def e_minmax(self, s: Scope, dt: str, depth: int) -> str:
        self.count("min, max")
        f = self.pick(["min", "max", "ts.tile.maximum", "ts.tile.minimum"])
        return f"{f}({self.expr(s, dt, depth - 1)}, {self.operand(s, dt, depth - 1)})"

    def e_cast(self, s: Scope, dt: str, depth: int) -> str:
        other = self.pick([d for d in SCALARS if d != dt])
        self.count("cast")
        return f"ts.tile.cast({self.expr(s, other, depth - 1)}, ts.{dt})"

    def e_mixed(self, s: Scope, dt: str, depth: int) -> str:
        """Operands of several types, or a literal that widens."""
        e = lambda d: self.expr(s, d, depth - 1)  # noqa: E731
        op = self.pick(["+", "-", "*"])
        self.count("mixed types")
        if dt == "i64":
            if self.has("wide_literal") and self.chance(0.5):
                self.count("literal that widens")
                wide = self.pick(["2**40", "3000000000", "(-(2**35))", "2**31", "(-2147483649)"])
                return f"({e('i32')} {op} {wide})" if self.chance(0.7) else f"({wide} {op} {e('i32')})"
            if self.has("wide_literal") and self.chance(0.3):
                self.count("literal that widens")
                return f"({e('u32')} {op} {self.pick(['(-1)', '2**33', '(-7)'])})"
            return f"({e(self.pick(['i32', 'u32']))} {op} {e('i64')})"
        if dt == "u64":
            return f"({e('u32')} {op} {e('u64')})"
        if dt == "f32":
            if self.chance(0.4):
                return f"({e('i32')} / {e('i32')})"
            return f"({e('i32')} {op} {e('f32')})"
        if dt == "f64":
            if self.chance(0.4):
                return f"({e('i64')} / {e('i64')})"
            return f"({e(self.pick(['f32', 'i32', 'i64']))} {op} {e('f64')})"
        return self.e_binary(s, dt, depth)

    def e_choose(self, s: Scope, dt: str, depth: int) -> str:
        self.count("a if c else b")
        a = self.expr(s, dt, depth - 1)
        b = self.expr(s, dt, depth - 1)
        return f"({a} if {self.cond(s, depth - 1)} else {b})"

    def e_or(self, s: Scope, dt: str, depth: int) -> str:
        self.count("value of or, and")
        return f"({self.expr(s, dt, depth - 1)} {self.pick(['or', 'and'])} {self.expr(s, dt, depth - 1)})"

    def e_walrus(self, s: Scope, dt: str, depth: int) -> str:
        mine = [n for n, d in s.names.items() if d == dt and n not in s.fixed]
        if not mine:
            return self.leaf(s, dt)
        self.count("walrus")
        return f"({self.pick(mine)} := {self.expr(s, dt, depth - 1)})"

    def e_effect(self, s: Scope, dt: str, depth: int) -> str:
        """A value that comes with a change of memory."""
        arrays = self.arrays_of(s, lambda d: d == dt)
        if not arrays:
            return self.leaf(s, dt)
        name = self.pick(arrays)
        if self.helpers and self.chance(0.5):
            fit = [h for h in self.helpers if h["dt"] == dt and h["returns"] == "one"]
            if fit:
                return self.call(s, self.pick(fit), depth)
        if dt in ("f32", "f64"):
            return self.leaf(s, dt)
        self.count("atomic in an expression")
        f = self.pick(["atomic_add", "atomic_sub", "atomic_max", "atomic_min", "atomic_exchange", "atomic_xor", "atomic_add"])
        return f"ts.tile.{f}({self.element(s, name)}, {self.operand(s, dt, 1)})"

    def e_call(self, s: Scope, dt: str, depth: int) -> str:
        if self.plain or self.in_helper:
            return self.leaf(s, dt)
        fit = [h for h in self.helpers if h["dt"] == dt and h["returns"] == "one"]
        return self.call(s, self.pick(fit), depth) if fit else self.leaf(s, dt)

    def call(self, s: Scope, h: dict[str, Any], depth: int) -> str:
        """A call of a helper, which changes the array that it gets."""
        arrays = self.arrays_of(s, lambda d: d == h["dt"])
        if not arrays:
            return self.leaf(s, h["dt"])
        outer = [a for a in arrays if a not in self.shared]
        if not outer:
            return self.leaf(s, h["dt"])
        self.count("helper call")
        args = [self.pick(outer), *([s.prefix.rstrip(", ")] if s.prefix else []), self.index(s)]
        if h["default"] and self.chance(0.5):
            self.count("default used")
        else:
            args.append(self.expr(s, h["dt"], min(depth - 1, 1)))
        return f"{h['name']}({', '.join(args)})"

    # Conditions.
    def cond(self, s: Scope, depth: int = 2) -> str:
        roll = self.rng.random()
        if depth > 0:
            if roll < 0.3:
                op = self.pick(["and", "or"])
                self.count(f"{op} in a condition")
                return f"({self.cond(s, depth - 1)} {op} {self.cond(s, depth - 1)})"
            if roll < 0.36:
                self.count("not")
                return f"(not {self.cond(s, depth - 1)})"
            if roll < 0.46:
                self.count("chained comparison")
                dt = self.pick(SCALARS)
                ops = self.pick(["< <=", "<= <", "> >=", "< >", "== <=", "!= !="]).split()
                first = self.pick([self.literal(dt), self.expr(s, dt, depth - 1)])
                return f"({first} {ops[0]} {self.expr(s, dt, depth - 1)} {ops[1]} {self.operand(s, dt, depth - 1)})"
        bools = [n for n, d in s.names.items() if d == "bool"]
        if bools and self.chance(0.2):
            return self.pick(bools)
        if "a_bool" in self.extra and self.chance(0.1):
            self.count("element of bools")
            return f"a_bool[{s.prefix}{self.index(s)}]"
        dt = self.pick(SCALARS)
        if self.chance(0.15):
            self.count("number as a condition")
            return f"({self.expr(s, self.pick(INTS), depth - 1)})"
        if self.has("mixed_literal") and self.chance(0.1):
            self.count("comparison with a literal that does not fit")
            which = self.pick([("u32", "(-1)"), ("i32", "2**40"), ("i32", "(-3000000000)"), ("u32", "2**35")])
            return f"({self.expr(s, which[0], depth - 1)} {self.pick(['<', '>', '==', '!='])} {which[1]})"
        return f"({self.expr(s, dt, depth - 1)} {self.pick(['<', '<=', '>', '>=', '==', '!='])} {self.operand(s, dt, depth - 1)})"

    # Tiles.
    def tile(self, s: Scope, dt: str, n: int, depth: int = 2) -> str:
        names = [t for t, (d, m) in s.tiles.items() if (d, m) == (dt, n)]
        if depth <= 0 or self.chance(0.25):
            if names and self.chance(0.6):
                return self.pick(names)
            return self.tile_leaf(s, dt, n)
        kinds = ["binary", "binary", "scalar", "where", "cast", "unary", "divisor", "gather", "load"]
        kind = self.pick([k for k in kinds if "tile_" + k not in self.without])
        t = lambda d=dt: self.tile(s, d, n, depth - 1)  # noqa: E731
        if kind == "binary":
            op = self.pick(["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>"] if dt in INTS else ["+", "-", "*", "/"])
            self.count(f"tile {op}")
            return f"({t()} {op} {t()})"
        if kind == "scalar":
            op = self.pick(["+", "-", "*", "//", "%"] if dt in INTS else ["+", "-", "*", "/"])
            self.count("tile with a scalar")
            other = self.literal(dt) if self.chance(0.5) else self.expr(s, dt, 1)
            return f"({t()} {op} {other})" if self.chance(0.7) else f"({other} {op} {t()})"
        if kind == "where":
            self.count("where")
            d = self.pick(SCALARS)
            c = f"{self.tile(s, d, n, depth - 1)} {self.pick(['<', '>=', '==', '!='])} {self.tile(s, d, n, 0)}"
            return f"ts.tile.where({c}, {t()}, {self.pick([t(), self.literal(dt)])})"
        if kind == "cast":
            other = self.pick([d for d in SCALARS if d != dt])
            self.count("tile cast")
            return f"ts.tile.cast({self.tile(s, other, n, depth - 1)}, ts.{dt})"
        if kind == "unary":
            return f"(-{t()})"
        if kind == "divisor" and dt == "i32":
            self.count("compile-time divisor tile")
            return f"({t()} {self.pick(['//', '%'])} (ts.tile.arange({n}) - {self.rng.randint(0, n)}))"
        if kind == "gather":
            arrays = self.arrays_of(s, lambda d: d == dt)
            arrays = [a for a in arrays if a not in self.shared]
            if arrays and (not s.prefix or self.has("index_beside_id")):
                self.count("gather")
                return f"{self.pick(arrays)}[{s.prefix}{self.positions(s, n, unique=False)}]"
        if kind == "load":
            arrays = [a for a in self.arrays_of(s, lambda d: d == dt) if a not in self.shared]
            if arrays and not s.prefix:
                self.count("load other=")
                if self.chance(0.5):
                    at = f"ts.tile.full(({n},), {self.expr(s, 'i32', 1)}, ts.i32)"
                else:
                    at = self.positions(s, n, unique=False)
                return f"ts.tile.load({self.pick(arrays)}, {at}, other={self.literal(dt)})"
        return self.tile_leaf(s, dt, n)

    def positions(self, s: Scope, n: int, unique: bool) -> str:
        """An index tile."""
        step = self.pick([1, 3, 5, 7])
        base = f"ts.tile.arange({n}) * {step} + {self.rng.randint(0, W - 1)}"
        if unique:
            return f"({base}) % {W}"
        return self.pick([f"({base}) % {W}", f"ts.tile.arange({n}) - {self.rng.randint(0, 2)}", f"ts.tile.arange({n}) // 2", base])

    def span(self, n: int) -> str:
        start = self.rng.randint(0, W - n)
        return f"{start}:{start + n}"

    def tile_leaf(self, s: Scope, dt: str, n: int) -> str:
        arrays = self.arrays_of(s, lambda d: d == dt)
        if arrays and self.chance(0.75):
            name = self.pick(arrays)
            self.count("slice read")
            return f"{name}[{self.pre(s, name)}{self.span(n)}]"
        if dt == "i32" and self.chance(0.6):
            return f"ts.tile.arange({n})"
        return f"ts.tile.full(({n},), {self.pick([self.literal(dt), self.leaf(s, dt)])}, ts.{dt})"

    # Statements: each gives lines.
    def block(self, s: Scope, budget: int, depth: int) -> list[str]:
        out: list[str] = []
        for _ in range(budget):
            out += self.statement(s, depth)
        return out or ["pass"]

    def statement(self, s: Scope, depth: int) -> list[str]:
        simple = [
            "assign", "assign", "assign", "store", "store", "swap", "swap_names", "augment", "augment", "augment_item", "tuple",
            "unpack", "atomic", "effect", "boolean",
        ]  # fmt: skip
        if not self.lane:
            simple += ["tile", "tile", "tile_store", "swap_slices", "tile_reduce", "masked_store", "scatter", "augment_slice", "augment_tile"]
        if self.has("chained_assign"):
            simple.append("chained")
        if self.has("target_order"):
            simple.append("target_order")
        compound = ["if_", "if_", "for_", "for_", "while_", "begun", "both", "scratch"]
        kinds = [k for k in simple + (compound * 2 if depth > 0 else []) if k not in self.without]
        kind = self.pick(kinds)
        if self.loops and self.chance(0.1):
            kind = "leave"
        if not self.in_helper and not self.plain and depth > 0 and self.chance(0.02):
            kind = "return_"
        out = getattr(self, "s_" + kind)(s, depth)
        self.statements += len([line for line in out if not line.lstrip().startswith(("else", "elif"))])
        return out

    @staticmethod
    def indent(lines: list[str]) -> list[str]:
        return ["    " + line for line in lines]

    def s_assign(self, s: Scope, depth: int) -> list[str]:
        dt = self.pick(SCALARS)
        mine = [n for n, d in s.names.items() if d == dt and n not in s.fixed]
        value = self.expr(s, dt, 3)
        if self.has("or_literal") and self.chance(0.12):
            # The literal takes the type of what it stands beside, whichever of them it is.
            self.count("literal beside or, and, if else")
            other = self.literal(dt)
            forms = [f"{value} or {other}", f"{value} and {other}", f"{value} if {self.cond(s, 1)} else {other}"]
            value = self.pick([*forms, f"{other} if {self.cond(s, 1)} else {value}"])
        if mine and self.chance(0.6):
            self.count("assign again")
            return [f"{self.pick(mine)} = {value}"]
        name = self.name(dt)
        s.names[name] = dt
        self.count("assign new")
        return [f"{name} = {value}"]

    def s_boolean(self, s: Scope, depth: int) -> list[str]:
        mine = [n for n, d in s.names.items() if d == "bool"]
        # A comparison, so that the value is a bool whichever operand it is.
        e = lambda: f"({self.expr(s, (d := self.pick(SCALARS)), 1)} {self.pick(['<', '>=', '=='])} {self.operand(s, d, 1)})"  # noqa: E731
        value = f"{e()} {self.pick(['and', 'or'])} {e()}" if self.chance(0.6) else e()
        self.count("assign bool")
        if "a_bool" in self.extra and self.chance(0.3):
            return [f"a_bool[{s.prefix}{self.index(s)}] = {value}"]
        if mine and self.chance(0.5):
            return [f"{self.pick(mine)} = {value}"]
        name = self.name("bool", "b")
        s.names[name] = "bool"
        return [f"{name} = {value}"]

    def store_value(self, s: Scope, dt: str, depth: int = 3) -> str:
        kind = carrier(dt)
        if self.chance(0.12):
            if dt == "f16":
                return self.pick(["0.0", "1.5", "(-2)", "0.1", "1e-3", "6e4"])  # beyond 65504 is E_OVERFLOW
            return self.literal(dt if dt in RANGE else kind)
        return self.expr(s, kind, depth)

    def s_store(self, s: Scope, depth: int) -> list[str]:
        name = self.pick(s.arrays)
        self.count("store")
        value = self.store_value(s, s.arrays[name])
        return [f"{self.element(s, name)} = {value}"]

    def s_swap(self, s: Scope, depth: int) -> list[str]:
        name = self.pick(s.arrays)
        a, b = self.element(s, name), self.element(s, name)
        self.count("swap of shared elements" if name in self.shared else "swap of elements")
        if self.chance(0.25):
            c = self.element(s, name)
            return [f"{a}, {b}, {c} = {b}, {c}, {a}"]
        return [f"{a}, {b} = {b}, {a}"]

    def s_swap_names(self, s: Scope, depth: int) -> list[str]:
        by: dict[str, list[str]] = {}
        for n, d in s.names.items():
            if n not in s.fixed:
                by.setdefault(d, []).append(n)
        fit = [names for names in by.values() if len(names) > 1]
        if not fit:
            return self.s_swap(s, depth)
        a, b = self.rng.sample(self.pick(fit), 2)
        self.count("swap of names")
        return [f"{a}, {b} = {b}, {a}"]

    def s_swap_slices(self, s: Scope, depth: int) -> list[str]:
        if not self.has("swap_slices"):
            return self.s_swap(s, depth)
        name = self.pick(s.arrays)
        n = self.pick([2, 3, 4])
        pre = self.pre(s, name)
        a, b = f"{name}[{pre}{self.span(n)}]", f"{name}[{pre}{self.span(n)}]"
        self.count("swap of slices")
        return [f"{a}, {b} = {b}, {a}"]

    def s_target_order(self, s: Scope, depth: int) -> list[str]:
        mine = [n for n, d in s.names.items() if d in ("i32", "i64") and n not in s.fixed]
        if not mine:
            return self.s_assign(s, depth)
        v, name = self.pick(mine), self.pick(s.arrays)
        self.count("target after a target it uses")
        first = self.expr(s, s.names[v], 1)
        return [f"{v}, {name}[{self.pre(s, name)}{v} % {W}] = {first}, {self.store_value(s, s.arrays[name], 1)}"]

    def s_augment(self, s: Scope, depth: int) -> list[str]:
        mine = [(n, d) for n, d in s.names.items() if d in SCALARS and n not in s.fixed]
        if not mine:
            return self.s_assign(s, depth)
        n, dt = self.pick(mine)
        op = self.pick(["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>"] if dt in INTS else ["+", "-", "*", "/"])
        self.count("augmented name")
        return [f"{n} {op}= {self.operand(s, dt, 3)}"]

    def s_augment_item(self, s: Scope, depth: int) -> list[str]:
        name = self.pick(s.arrays)
        dt = carrier(s.arrays[name])
        op = self.pick(["+", "-", "*", "//", "%", "&", "|", "^"] if dt in INTS else ["+", "-", "*", "/"])
        self.count("augmented element")
        return [f"{self.element(s, name)} {op}= {self.operand(s, dt, 3)}"]

    def s_augment_slice(self, s: Scope, depth: int) -> list[str]:
        names = self.arrays_of(s, lambda d: d in SCALARS)
        if not names:
            return self.s_tile(s, depth)
        name, n = self.pick(names), self.pick([2, 3, 4, 5])
        self.count("augmented slice")
        return [f"{name}[{self.pre(s, name)}{self.span(n)}] {self.pick(['+', '-', '*'])}= {self.tile(s, s.arrays[name], n)}"]

    def s_tuple(self, s: Scope, depth: int) -> list[str]:
        if not self.has("tuple_value"):
            return self.s_assign(s, depth)
        dts = [self.pick(SCALARS) for _ in range(self.rng.randint(2, 3))]
        self.number += 1
        name = f"t{self.number}"
        self.count("tuple value")
        values = []
        for d in dts:
            arrays = self.arrays_of(s, lambda x, d=d: x == d)
            values.append(self.element(s, self.pick(arrays)) if arrays and self.chance(0.6) else self.expr(s, d, 2))
        s.tuples[name] = dts
        return [f"{name} = ({', '.join(values)})"]

    def s_unpack(self, s: Scope, depth: int) -> list[str]:
        dts = [self.pick(SCALARS) for _ in range(self.rng.randint(2, 3))]
        values = [self.expr(s, d, 2) for d in dts]
        pairs = [h for h in self.helpers if h["returns"] == "two"]
        if pairs and not self.in_helper and self.chance(0.5):
            h = self.pick(pairs)
            if self.arrays_of(s, lambda d: d == h["dt"] ):
                text = self.call(s, h, 2)
                if text.startswith(h["name"]):
                    a, b = self.name(h["dt"]), self.name(h["dt"])
                    self.count("unpack a call")
                    s.names[a] = s.names[b] = h["dt"]
                    return [f"{a}, {b} = {text}"]
        names = [self.name(d) for d in dts]
        for n, d in zip(names, dts):
            s.names[n] = d
        if len(dts) == 3 and self.has("nested_unpack") and self.chance(0.5):
            self.count("nested unpack")
            return [f"{names[0]}, ({names[1]}, {names[2]}) = {values[0]}, ({values[1]}, {values[2]})"]
        self.count("unpack")
        return [f"{', '.join(names)} = {', '.join(values)}"]

    def s_chained(self, s: Scope, depth: int) -> list[str]:
        dt = self.pick(SCALARS)
        arrays = self.arrays_of(s, lambda d: d == dt)
        value = self.expr(s, dt, 2)
        name = self.name(dt)
        targets = [name]
        if arrays:
            targets.insert(self.rng.randint(0, 1), self.element(s, self.pick(arrays)))
        s.names[name] = dt
        self.count("chained assignment")
        return [f"{' = '.join(targets)} = {value}"]

    def s_atomic(self, s: Scope, depth: int) -> list[str]:
        names = self.arrays_of(s, lambda d: d in INTS)
        if not names:
            return self.s_store(s, depth)
        name = self.pick(names)
        self.count("atomic statement")
        f = self.pick(["atomic_add", "atomic_sub", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor", "atomic_exchange"])
        return [f"ts.tile.{f}({self.element(s, name)}, {self.operand(s, s.arrays[name], 2)})"]

    def s_effect(self, s: Scope, depth: int) -> list[str]:
        """Reads of an element around an effect on it."""
        names = [n for n in self.arrays_of(s, lambda d: d in INTS) if n not in self.shared]
        if not names:
            return self.s_store(s, depth)
        name = self.pick(names)
        dt = s.arrays[name]
        at = self.index(s)
        place = f"{name}[{self.pre(s, name)}{at}]"
        effect = f"ts.tile.atomic_add({place}, {self.operand(s, dt, 1)})"
        fit = [h for h in self.helpers if h["dt"] == dt and h["returns"] == "one"]
        if fit and not self.in_helper and self.chance(0.5):
            h = self.pick(fit)
            args = [name, *([s.prefix.rstrip(", ")] if s.prefix else []), at, self.expr(s, dt, 1)]
            effect = f"{h['name']}({', '.join(args)})"
        target = self.name(dt)
        self.count("read beside an effect on it")
        form = self.pick(["left", "right", "augment", "call"])
        if form == "augment":
            return [f"{place} {self.pick(['+', '-', '^'])}= {effect}"]
        s.names[target] = dt
        if form == "call":
            return [f"{target} = {self.pick(['max', 'min', 'ts.tile.maximum'])}({place}, {effect})"]
        op = self.pick(["+", "-", "^"])
        return [f"{target} = {place} {op} {effect}" if form == "left" else f"{target} = {effect} {op} {place}"]

    def s_tile(self, s: Scope, depth: int) -> list[str]:
        dt, n = self.pick(SCALARS), self.pick([2, 3, 4, 5, 8])
        value = self.tile(s, dt, n, 2)
        mine = [t for t, have in s.tiles.items() if have == (dt, n)]
        self.count("tile value")
        if mine and self.chance(0.4):
            return [f"{self.pick(mine)} = {value}"]
        self.number += 1
        name = f"w{self.number}"
        s.tiles[name] = (dt, n)
        return [f"{name} = {value}"]

    def s_tile_store(self, s: Scope, depth: int) -> list[str]:
        name, n = self.pick(s.arrays), self.pick([2, 3, 4, 5, 8])
        dt = carrier(s.arrays[name])
        self.count("slice store")
        value = self.tile(s, dt, n, 2) if self.chance(0.8) else self.store_value(s, s.arrays[name], 1)
        return [f"{name}[{self.pre(s, name)}{self.span(n)}] = {value}"]

    def s_masked_store(self, s: Scope, depth: int) -> list[str]:
        names = [n for n in s.arrays if n not in self.shared]
        if not names:
            return self.s_tile_store(s, depth)
        name, n = self.pick(names), self.pick([2, 3, 4])
        d = self.pick(SCALARS)
        mask = f"{self.tile(s, d, n, 1)} {self.pick(['<', '>=', '!='])} {self.tile(s, d, n, 0)}"
        self.count("store mask=")
        value = self.tile(s, carrier(s.arrays[name]), n, 1)
        return [f"ts.tile.store({name}[{s.prefix}{self.span(n)}], {value}, mask={mask})"]

    def s_scatter(self, s: Scope, depth: int) -> list[str]:
        names = [n for n in s.arrays if n not in self.shared and s.arrays[n] in SCALARS]
        if not names or (s.prefix and not self.has("index_beside_id")):
            return self.s_tile_store(s, depth)
        name, n = self.pick(names), self.pick([3, 4, 8])
        dt = s.arrays[name]
        if dt in INTS and self.has("gather_add") and self.chance(0.4):
            self.count("scatter add")
            return [f"{name}[{s.prefix}{self.positions(s, n, unique=False)}] += {self.tile(s, dt, n, 1)}"]
        self.count("scatter")
        return [f"{name}[{s.prefix}{self.positions(s, n, unique=True)}] = {self.tile(s, dt, n, 1)}"]

    def s_tile_reduce(self, s: Scope, depth: int) -> list[str]:
        n = self.pick([2, 3, 4, 5, 8])
        f = self.pick(["sum", "sum", "max", "min", "any", "all", "argmax"])
        self.count("reduce")
        if f in ("any", "all"):
            d = self.pick(SCALARS)
            name = self.name("bool", "b")
            value = f"ts.tile.{f}({self.tile(s, d, n, 1)} {self.pick(['<', '>', '=='])} {self.tile(s, d, n, 0)})"
            s.names[name] = "bool"
            return [f"{name} = {value}"]
        dt = self.pick(INTS if f == "argmax" else SCALARS)
        out = "i32" if f == "argmax" else dt
        value = f"ts.tile.{f}({self.tile(s, dt, n, 1)})"
        name = self.name(out)
        s.names[name] = out
        return [f"{name} = {value}"]

    # Control flow.
    def s_if_(self, s: Scope, depth: int) -> list[str]:
        self.count("if")
        out = [f"if {self.cond(s, 2)}:"]
        out += self.indent(self.block(s.copy(), self.rng.randint(1, 3), depth - 1))
        if self.chance(0.25):
            self.count("elif")
            out.append(f"elif {self.cond(s, 1)}:")
            out += self.indent(self.block(s.copy(), self.rng.randint(1, 2), depth - 1))
        if self.chance(0.5):
            self.count("else")
            out.append("else:")
            out += self.indent(self.block(s.copy(), self.rng.randint(1, 2), depth - 1))
        return out

    def bound(self, s: Scope) -> str:
        """How often a loop runs: at most four times."""
        roll = self.rng.random()
        ints = [n for n, d in s.names.items() if d in ("i32", "i64")]
        if roll < 0.5 or not ints:
            return str(self.rng.randint(0, 4))
        if roll < 0.6 and self.has("captures_change"):
            self.count("captured bound")
            return "G0 % 4"
        return f"{self.pick(ints)} % {self.rng.randint(2, 4)}"

    def s_for_(self, s: Scope, depth: int) -> list[str]:
        self.count("for")
        again = [n for n, d in s.names.items() if d == "i64" and n not in s.fixed and n.startswith("v")]
        if again and self.has("loop_var_after") and self.chance(0.3):
            j = self.pick(again)
            self.count("loop variable bound before")
        else:
            j = self.name("i64", "j")
        hi = self.bound(s)
        head = self.pick([f"range({hi})", f"range({hi})", f"ts.tile.range({hi})", f"range(1, {hi})", f"range({hi}, {hi} + 3, 2)"])
        inner = s.copy()
        inner.names[j] = "i64"
        inner.fixed.add(j)
        self.loops.append("for")
        body = self.block(inner, self.rng.randint(1, 4), depth - 1)
        if self.has("loop_var_assign") and self.chance(0.08):
            self.count("loop variable assigned in its loop")
            body.append(f"{j} = {self.expr(s, 'i64', 1)}")
        self.loops.pop()
        out = [f"for {j} in {head}:", *self.indent(body)]
        if self.has("for_else") and (not self.lane or self.has("lane_loop_else")) and self.chance(0.25):
            self.count("for else")
            out += ["else:", *self.indent(self.block(s.copy(), self.rng.randint(1, 2), depth - 1))]
        if self.has("loop_var_after") and (j in s.names or self.chance(0.6)):
            self.count("loop variable after its loop")
            s.names[j] = "i64"
            out += self.keep(s, j)
        return out

    def keep(self, s: Scope, name: str) -> list[str]:
        """A statement that reads a variable."""
        arrays = self.arrays_of(s, lambda d: d == "i64")
        if arrays:
            return [f"{self.element(s, self.pick(arrays))} = {name}"]
        return []

    def s_while_(self, s: Scope, depth: int) -> list[str]:
        self.count("while")
        c = self.name("i64", "c")
        inner = s.copy()
        inner.names[c] = "i64"
        inner.fixed.add(c)
        limit = f"{c} < {self.rng.randint(1, 4)}"
        cond = self.cond(inner, 1)
        form = self.pick(["limit", "first", "last", "last"])
        head = limit if form == "limit" else f"{limit} and {cond}" if form == "first" else f"{cond} and {limit}"
        if form != "limit":
            self.count("while with and")
        self.loops.append("while")
        body = [f"{c} += 1", *self.block(inner, self.rng.randint(1, 3), depth - 1)]
        self.loops.pop()
        out = [f"{c} = 0", f"while {head}:", *self.indent(body)]
        if self.has("while_else") and (not self.lane or self.has("lane_while_else")) and self.chance(0.2):
            self.count("while else")
            out += ["else:", *self.indent(self.block(s.copy(), 1, depth - 1))]
        s.names[c] = "i64"
        s.fixed.add(c)
        return out

    def s_begun(self, s: Scope, depth: int) -> list[str]:
        """A variable that begins with a literal and takes the type of what it is joined with."""
        if not self.has("literal_carried"):
            return self.s_assign(s, depth)
        dt = self.pick(SCALARS)
        name = self.name(dt, "s")
        begin = f"{name} = {self.pick(['0', '1', '3']) if dt in INTS else self.pick(['0.0', '1.0', '0', '2.5'])}"
        self.count("begun with a literal")
        inner = s.copy()
        if self.chance(0.6):
            j = self.name("i64", "j")
            inner.names[j] = "i64"
            inner.fixed.add(j)
            body = [f"{name} {self.pick(['+', '-', '*'])}= {self.expr(inner, dt, 2)}"]
            out = [begin, f"for {j} in range({self.bound(s)}):", *self.indent(body)]
        else:
            out = [begin, f"if {self.cond(s, 1)}:", *self.indent([f"{name} = {self.expr(inner, dt, 2)}"])]
        s.names[name] = dt
        return out

    def s_both(self, s: Scope, depth: int) -> list[str]:
        """A variable that both branches assign, one of them perhaps after a way out."""
        dt = self.pick(SCALARS)
        name = self.name(dt)
        first, second = s.copy(), s.copy()
        head = f"if {self.cond(s, 1)}:"
        body = self.block(first, self.rng.randint(0, 1), 0)
        self.count("assigned in both branches")
        lane = self.lane and not self.has("lane_break")
        if self.has("inner_exit_before_assign") and not self.in_helper and self.chance(0.3) and not (lane and self.loops):
            word = self.pick(["break", "continue"]) if self.loops else "return"
            self.returned |= word == "return"
            self.count("way out before an assignment")
            body += [f"if {self.cond(first, 1)}:", f"    {word}"]
        body.append(f"{name} = {self.expr(first, dt, 2)}")
        other = [*self.block(second, self.rng.randint(0, 1), 0), f"{name} = {self.expr(second, dt, 2)}"]
        s.names[name] = dt
        return [head, *self.indent([line for line in body if line != "pass"]), "else:", *self.indent([line for line in other if line != "pass"])]

    def s_scratch(self, s: Scope, depth: int) -> list[str]:
        """A name of two types in two branches, which nothing reads after them."""
        names = self.arrays_of(s, lambda d: d in SCALARS)
        if not self.has("scratch_of_two_types") or len({s.arrays[n] for n in names}) < 2:
            return self.s_both(s, depth)
        a, b = self.rng.sample(names, 2)
        self.number += 1
        name = f"u{self.number}"
        self.count("scratch name of two types")
        out = [f"if {self.cond(s, 1)}:", f"    {name} = {self.expr(s, s.arrays[a], 2)}", f"    {self.element(s, a)} = {name}"]
        return out + ["else:", f"    {name} = {self.expr(s, s.arrays[b], 2)}", f"    {self.element(s, b)} = {name}"]

    def s_augment_tile(self, s: Scope, depth: int) -> list[str]:
        if not s.tiles:
            return self.s_tile(s, depth)
        name, (dt, n) = self.pick(s.tiles.items())
        self.count("augmented tile")
        return [f"{name} {self.pick(['+', '-', '*'])}= {self.pick([self.tile(s, dt, n, 1), self.operand(s, dt, 1)])}"]

    def s_leave(self, s: Scope, depth: int) -> list[str]:
        word = self.pick(["break", "continue"])
        if self.lane and not self.has("lane_break"):
            return self.s_assign(s, depth)
        self.count(f"{word} in {self.loops[-1]}")
        if self.lane:
            self.count("break or continue of a lane")
        return [f"if {self.cond(s, 1)}:", f"    {word}"]

    def s_return_(self, s: Scope, depth: int) -> list[str]:
        if self.loops and not self.has("return_in_loop"):
            return self.s_assign(s, depth)
        self.count("early return in a loop" if self.loops else "early return")
        self.returned = True
        return [f"if {self.cond(s, 1)}:", "    return"]

    # Whole programs.
    def helper(self, number: int, rank2: bool) -> list[str]:
        dt = self.pick(SCALARS)
        name = f"h{number}"
        default = self.chance(0.4)
        outer_types, self.types = self.types, {}
        loops, self.loops = self.loops, []
        self.in_helper = True
        s = Scope({"a": dt}, "p, " if rank2 else "", {"d": dt})
        valued = self.chance(0.6)
        if valued:
            s.names["q"] = "i64"
            s.fixed.add("q")
        at = f"a[{'p, ' if rank2 else ''}q]"
        # An effect for certain, on what the caller names.
        certain = [self.pick([f"{at} {self.pick(['+', '-'])}= d", f"{at} = {self.leaf(s, dt)}"])]
        body = self.block(s, self.rng.randint(1, 3), 1)
        body = certain + body if self.chance(0.5) else body + certain
        returns = "two" if self.chance(0.3) else "one"
        if returns == "two":
            body.append(f"return {self.expr(s, dt, 1)}, {self.leaf(s, dt)}")
        else:
            body.append(f"return {self.expr(s, dt, 1)}")
        given = ""
        if default:
            if self.has("helper_global_default") and dt in INTS and self.chance(0.4):
                given = "=G0"
                self.count("default that names a global")
            else:
                given = f"={self.literal(dt)}"
        # A literal that is handed over is exact for as long as it stays one; from here on it is a value.
        if default:
            body.insert(0, f"d = ts.tile.cast(d, ts.{dt})")
        if valued:
            body.insert(0, "q = ts.tile.cast(q, ts.i64)")
        self.helper_types[name] = self.types
        self.types, self.loops, self.in_helper = outer_types, loops, False
        self.helpers.append({"name": name, "dt": dt, "returns": returns, "default": default})
        parameters = ["a", *(["p"] if rank2 else []), "q", f"d{given}"]
        return ["@ts.func", f"def {name}({', '.join(parameters)}):", *self.indent(body), ""]

    def case(self) -> Case:
        self.helper_types: dict[str, dict[str, str]] = {}
        groups = 1 if self.chance(0.5) else self.rng.randint(2, 3)
        lanes = self.pick([1, 2, 4, 8]) if self.lane else 0
        count = lanes * self.rng.randint(1, 2) if self.lane else groups
        meet = self.lane and self.chance(0.5)
        if self.lane and not meet and self.chance(0.3):
            count = max(1, count - 1)
        rank2 = self.lane or groups > 1
        head = [f"G0 = {self.rng.randint(1, 7)}", f"G1 = {self.pick(['0.5', '1.5', '-2.0', '3.25'])}"]
        head += ["class cfg:", f"    K = {self.rng.randint(0, 9)}"]
        head.append("")
        for number in range(0 if "helpers" in self.without else self.rng.randint(0, 3)):
            head += self.helper(number, rank2)
        # An array of each type that scalars have, and some narrow ones.
        chosen = SCALARS[:] if self.chance(0.3) else self.rng.sample(SCALARS, 4)
        chosen += self.rng.sample(STORAGE, self.rng.randint(1, 2))
        first = f"{count}" if self.chance(0.5) else '"g"'
        wide = str(W)
        parameters, arrays, mine = [], {}, {}
        for dt in chosen:
            name = f"a_{dt}"
            mine[name] = dt
            arrays[name] = ((count, W) if rank2 else (W,), dt)
            parameters.append(f"{name}: ts.Tensor[{first + ', ' if rank2 else ''}{wide}, ts.{dt}]")
        if self.chance(0.3):
            arrays["a_bool"] = ((count, W) if rank2 else (W,), "bool")
            parameters.append(f"a_bool: ts.Tensor[{first + ', ' if rank2 else ''}{wide}, ts.bool]")
            self.extra.add("a_bool")
        results = {"ri": "i64", "rf": "f64"}
        for name, dt in results.items():
            arrays[name] = ((count, 16) if rank2 else (16,), dt)
            parameters.append(f"{name}: ts.Tensor[{first + ', ' if rank2 else ''}16, ts.{dt}]")
        prefix = ("i, " if self.lane else "p, ") if rank2 else ""
        s = Scope(mine, prefix)
        body: list[str] = []
        if self.lane:
            body.append("i = ts.tile.linear_id()")
            self.types["i"] = "i64"
            s.names["i"] = "i64"
            s.fixed.add("i")
            if meet:
                body.append("l = ts.tile.local_id()")
                s.names["l"] = "i64"
                s.fixed.add("l")
        elif rank2:
            body.append("p = ts.tile.program_id(0)")
            s.names["p"] = "i64"
            s.fixed.add("p")
        if not self.lane and self.has("shared_in_group") and self.chance(0.2):
            dt = self.pick(["i32", "i64", "f32", "u32"])
            self.shared.add("sh")
            body += [f"sh = ts.tile.alloc_shared(({W},), ts.{dt})", f"sh[0:{W}] = {self.tile(s, dt, W, 1)}"]
            s.arrays = {**s.arrays, "sh": dt}
            self.count("shared buffer in a group kernel")
        shared = self.pick(SCALARS)
        if meet:
            body.append(f"sh = ts.tile.alloc_shared(({lanes},), ts.{shared})")
        # Two variables to begin with.
        for dt in self.rng.sample(SCALARS, 2):
            name = self.name(dt)
            body.append(f"{name} = {self.leaf(s, dt)}")
            s.names[name] = dt
        self.statements += len(body)
        met = 0
        while self.statements < 15 or self.chance(0.6):
            body += self.statement(s, 2)
            if meet and not self.returned and met < 3 and self.chance(0.35):
                body += self.exchange(s, shared, lanes)
                met += 1
            if self.statements > 45:
                break
        body += self.results(s, prefix)
        options = f"(lanes={lanes})" if self.lane else ""
        if self.returned:
            self.count("kernel with a return")
        text = "\n".join([*head, f"@ts.kernel{options}", f"def k({', '.join(parameters)}):", *self.indent(body), ""])
        self.count("lane kernel" if self.lane else "group kernel")
        types = {"k": self.types, **self.helper_types}
        later: dict[str, Any] = {}
        if self.has("captures_change") and self.chance(0.3):
            later = {"G0": self.rng.randint(1, 7), "G1": self.pick([0.5, -1.5, 4.0]), "cfg.K": self.rng.randint(0, 9)}
        return Case(text, types, arrays, count, lanes, self.seed, later, self.counts, self.statements)

    def exchange(self, s: Scope, dt: str, lanes: int) -> list[str]:
        """Lanes give each other values through shared memory, or combine them."""
        name = self.name(dt)
        value = self.expr(s, dt, 2)
        s.names[name] = dt
        if self.chance(0.35):
            ops = ["sum", "max", "min", "xor", "and", "or"] if dt in INTS else ["max", "min"]
            self.count("group operation")
            self.statements += 1
            form = self.pick(["reduce", "scan", "shuffle", "broadcast"])
            if form in ("reduce", "scan"):
                return [f"{name} = ts.tile.group.{form}({value}, \"{self.pick(ops)}\")"]
            if form == "shuffle":
                return [f"{name} = ts.tile.group.shuffle({value}, (l + {self.rng.randint(0, lanes)}) % {lanes})"]
            return [f"{name} = ts.tile.group.broadcast({value}, {self.rng.randint(0, lanes - 1)})"]
        self.count("exchange through shared memory")
        out = [f"sh[l] = {value}", "ts.tile.barrier()"]
        if "swap" not in self.without and self.chance(0.4):
            self.count("swap of shared elements")
            # Pairs of lanes that one of them swaps.
            if lanes > 1:
                out += ["if l % 2 == 0:", "    sh[l], sh[l + 1] = sh[l + 1], sh[l]", "ts.tile.barrier()"]
        out += [f"{name} = sh[{self.pick([f'{lanes - 1} - l', f'(l + 1) % {lanes}', 'l'])}]", "ts.tile.barrier()"]
        self.statements += len(out)
        return out

    def results(self, s: Scope, prefix: str) -> list[str]:
        """What the variables are at the end, where it is seen."""
        out, ints, floats = [], 0, 0
        names = list(s.names.items())
        self.rng.shuffle(names)
        for n, dt in names:
            if dt in ("f32", "f64") and floats < 16:
                out.append(f"rf[{prefix}{floats}] = {n}")
                floats += 1
            elif dt not in ("f32", "f64") and ints < 16:
                out.append(f"ri[{prefix}{ints}] = {n}")
                ints += 1
        for t, dts in s.tuples.items():
            for k, dt in enumerate(dts):
                if dt in ("f32", "f64") and floats < 16:
                    out.append(f"rf[{prefix}{floats}] = {t}[{k}]")
                    floats += 1
                elif dt not in ("f32", "f64") and ints < 16:
                    out.append(f"ri[{prefix}{ints}] = {t}[{k}]")
                    ints += 1
        for t, (dt, n) in s.tiles.items():
            room = 16 - (floats if dt in ("f32", "f64") else ints)
            if n <= room:
                if dt in ("f32", "f64"):
                    out.append(f"rf[{prefix}{floats}:{floats + n}] = {t}")
                    floats += n
                else:
                    out.append(f"ri[{prefix}{ints}:{ints + n}] = {t}")
                    ints += n
        return out


def generate(seed: int, have: set[str] | None = None, kind: str | None = None, without: frozenset[str] = frozenset()) -> Case:
    return Gen(seed, have, kind, without).case()

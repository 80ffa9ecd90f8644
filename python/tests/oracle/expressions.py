"""Random expressions of every type, over the names that a place in a program has."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .form import PACKED, Form
from .values import NUMPY, RANGE, carrier

W = 8  # elements of a row
STORAGE = ["i8", "i16", "u8", "u16", "f16", "bf16"]
SCALARS = ["i32", "i64", "u32", "u64", "f32", "f64"]
INTS = ["i32", "i64", "u32", "u64"]
#: Features that a build may lack: `fuzz.probe` finds them, and the generator leaves out those that are missing.
OPTIONAL = [
    "lane_break", "lane_loop_else", "loop_var_after", "wide_literal", "u64_literal", "literal_carried", "for_else", "while_else",
    "chained_assign", "target_order", "index_beside_id", "walrus", "helper_global_default", "or_value", "captures_change",
    "shared_in_group", "gather_add", "swap_slices", "return_in_loop", "inner_exit_before_assign", "min_literal", "dotted",
    "tuple_value", "nested_unpack", "lane_while_else", "mixed_literal", "loop_var_assign", "scratch_of_two_types", "or_literal",
    "tile_parts", "own_combiners", "sort", "block_formats", "unrolled", "python_iterators", "tuple_carried", "tuple_left", "unrolled_value_after",
    "loop_var_slice", "lane_axes", "ownership", "staged", "packed", "records", "assembly",
]  # fmt: skip


@dataclass
class Case:
    """A program: its text, the types of its variables, its arguments and its launch."""

    text: str
    types: dict[str, dict[str, str]]
    arrays: dict[str, tuple[tuple[int, ...], str]]
    grid: int | tuple[int, ...]  # lanes along each axis, where they have several
    lanes: int | tuple[int, ...]  # in a group; 0 for a group kernel
    seed: int
    later: dict[str, Any] = field(default_factory=dict)  # captured names that change before a second call
    counts: Counter = field(default_factory=Counter)
    statements: int = 0
    floats_only_exact: bool = True
    form: Form | None = None  # how the arrays are arguments, where they are not by themselves
    native: bool = False  # it has assembly texts, which the CPU runs in other profiles than `strict`
    checked: bool = False  # its promises of ownership are held against checked mode

    def arguments(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        return {name: draw(rng, shape, dt) for name, (shape, dt) in self.arrays.items()}


def draw(rng: np.random.Generator, shape: tuple[int, ...], dt: str) -> np.ndarray:
    """Numbers among which the small, the least and the greatest are frequent."""
    if dt == "zeros":
        return np.zeros(shape, np.int32)
    if dt in PACKED:
        return rng.integers(0, 256, (*shape[:-1], shape[-1] // 2)).astype(np.uint8)
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
        self.known: list[str] = []  # numbers from 0 to W - 1 that are known at compile time: variables of unrolled loops

    def copy(self) -> Scope:
        out = Scope(self.arrays, self.prefix, self.names)
        out.tiles, out.tuples, out.fixed, out.known = dict(self.tiles), dict(self.tuples), set(self.fixed), list(self.known)
        return out


class Expressions:
    """Draws expressions; `Statements` draws what stands around them."""

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
        self.of_tiles = not self.lane and self.rng.random() < 0.5  # tiles in parts more than anything else
        self.looped: set[str] = set()  # variables of loops that have ended
        self.prefixes: dict[str, str] = {}  # before the last index, for arrays that have their own
        self.packed: dict[str, str] = {}
        self.constants: list[str] = []  # of records
        self.arguments: dict[str, Any] = {}
        self.optional = ""
        self.listed: tuple[int, str] | None = None
        self.texts: list[Any] = []  # assembly texts
        self.plain = 0  # above 0 inside expressions that must have no effects

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
            own = [] if self.in_helper else self.constants
            return self.pick(["G0", "cfg.K", *own] if self.has("dotted") else ["G0", *own])
        if dt in ("f32", "f64"):
            self.count("captured")
            return "G1"
        return None

    # Indices.
    def index(self, s: Scope, depth: int = 0) -> str:
        """A position along the last axis."""
        roll = self.rng.random()
        ints = [n for n, d in s.names.items() if d in ("i32", "i64")]
        if s.known and self.chance(0.4):
            self.count("index by a variable of an unrolled loop")
            return self.pick([*s.known, f"({self.pick(s.known)} + 3) % {W}"])
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
        return "" if name in self.shared else self.prefixes.get(name, s.prefix)

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
        kinds += ["asm", "asm"] if self.texts else []
        kinds = [k for k in kinds if k not in self.without]
        return getattr(self, "e_" + self.pick(kinds))(s, dt, depth)

    def leaf(self, s: Scope, dt: str) -> str:
        options = [n for n, d in s.names.items() if d == dt] * 2
        options += [f"{t}[{k}]" for t, ds in s.tuples.items() for k, d in enumerate(ds) if d == dt] * 2
        arrays = self.arrays_of(s, lambda d: d == dt)
        options += [None] * max(2, len(options) // 2) if arrays else []
        if s.tiles and self.chance(0.3):
            found = self.element_of(s, dt)
            if found is not None:
                return found
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
        if s.known and self.chance(0.15):
            self.count("literal that an unrolled loop counts")
            return self.pick(s.known)
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
        if f in ("min", "max") and self.chance(0.25):
            self.count("min, max of three")
            return f"{f}({self.expr(s, dt, depth - 1)}, {self.operand(s, dt, depth - 1)}, {self.leaf(s, dt)})"
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
        name = self.pick(outer)
        args = [name, *([self.pre(s, name).rstrip(", ")] if s.prefix else []), self.index(s)]
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
                last = self.operand(s, dt, depth - 1)
                if not self.plain and not self.in_helper and self.chance(0.4):
                    self.count("effect behind a chained comparison")
                    last = self.e_effect(s, dt, depth - 1)
                return f"({first} {ops[0]} {self.expr(s, dt, depth - 1)} {ops[1]} {last})"
            if roll < 0.5:
                self.count("in")
                dt = self.pick(INTS)
                items = ", ".join(self.operand(s, dt, depth - 1) for _ in range(self.rng.randint(2, 3)))
                return f"({self.expr(s, dt, depth - 1)} {self.pick(['in', 'not in'])} ({items}))"
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
        kinds = ["binary", "binary", "scalar", "where", "cast", "unary", "divisor", "gather", "load", "load"]
        kinds += ["part"] * (20 if self.of_tiles else 6) if self.has("tile_parts") else []
        kinds += ["asm"] * 3 if self.texts else []
        kind = self.pick([k for k in kinds if "tile_" + k not in self.without])
        t = lambda d=dt: self.tile(s, d, n, depth - 1)  # noqa: E731
        if kind == "part":
            return self.part(s, dt, n, depth - 1)
        if kind == "asm":
            self.count("assembly text on tiles")
            return self.e_asm(s, dt, depth, lambda d: self.tile(s, d, n, depth - 1))
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
            if self.has("tile_parts") and self.chance(0.3):
                self.count("part of a tile of bools")
                c = self.pick(["({})[::-1]", "ts.tile.flip({})", "ts.tile.roll({}, 1)", "({})[ts.tile.arange(%d) // 2]" % n, "ts.tile.sort({})"]).format(c)
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
                name = self.pick(arrays)
                return f"{name}[{self.pre(s, name)}{self.positions(s, n, unique=False)}]"
        if kind == "load":
            arrays = [a for a in self.arrays_of(s, lambda d: d == dt) if a not in self.shared]
            if arrays and (not s.prefix or self.has("index_beside_id")):
                self.count("load other=")
                # One position for all elements, inside or around the edges or anywhere; or one for each.
                one = self.pick([self.rng.randint(-2, W + 2), f"{self.index(s)} + {self.rng.randint(-2, 2)}", self.expr(s, "i32", 1)])
                at = f"ts.tile.full(({n},), {one}, ts.i32)" if self.chance(0.6) else self.positions(s, n, unique=False)
                name = self.pick(arrays)
                at = f"({self.pre(s, name)}{at})" if s.prefix else at
                mask = ""
                if self.chance(0.3):
                    self.count("load mask=")
                    mask = f"mask={self.tile(s, 'i32', n, 0)} {self.pick(['<', '>=', '!='])} {self.literal('i32')}, "
                return f"ts.tile.load({name}, {at}, {mask}other={self.literal(dt)})"
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

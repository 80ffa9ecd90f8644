"""Random assembly texts: instructions for x86_64 with a function that computes the same, and texts for other targets around them.

In ``strict`` every backend runs the function. In other profiles the CPU runs the instructions, which `fuzz.judge` compares too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .expressions import INTS, SCALARS, STORAGE, Expressions, Scope
from .values import RANGE, carrier

#: The suffix of instructions on whole numbers, by their bits.
SUFFIX = {8: "b", 16: "w", 32: "l", 64: "q"}


def bits(dt: str) -> int:
    return 16 if dt == "bf16" else int(dt.lstrip("iuf"))


@dataclass
class Text:
    """Functions that run a text: `name` does, `plain` is what it computes, and `call` is the text where it stands."""

    name: str
    plain: str
    call: str  # with {} for the values
    values: list[str]
    results: list[str]
    several: bool  # it gives a tuple
    pure: bool


class AsmExpressions(Expressions):
    """Draws texts, and calls of them."""

    # One result: instructions on register `r`, and what they compute.
    def begun(self, dt: str, r: str, values: list[tuple[str, str, str]]) -> tuple[str, str]:
        """The first instruction and its meaning: a value of the type, or one that is converted to it."""
        same = [(v, name) for v, name, d in values if d == dt]
        if dt in ("f32", "f64"):
            ints = [(v, name, d) for v, name, d in values if d in ("i32", "i64")]
            if ints and self.chance(0.4):
                self.count("assembly: conversion")
                v, name, d = self.pick(ints)
                suffix = "ss" if dt == "f32" else "sd"
                return f"xorps {r}, {r}; cvtsi2{suffix}{SUFFIX[bits(d)]} {v}, {r}", f"ts.tile.cast({name}, ts.{dt})"
        if dt == "bool":
            ints = [(v, name, d) for v, name, d in values if d in INTS]
            v, name, d = self.pick(ints)
            w, other, _ = self.pick([x for x in ints if x[2] == d])
            self.count("assembly: comparison")
            return f"cmp{SUFFIX[bits(d)]} {w}, {v}; set{'l' if d[0] == 'i' else 'b'} {r}", f"{name} < {other}"
        v, name = self.pick(same)
        move = "movaps" if dt in ("f32", "f64") else f"mov{SUFFIX[bits(dt)]}"
        return f"{move} {v}, {r}", name

    def immediate(self, dt: str) -> int:
        lo, hi = RANGE[dt]
        lo, hi = max(lo, -(2**31)), min(hi, 2**31 - 1)
        return self.pick([lo, hi, 0, 1]) if self.chance(0.3) else self.rng.randint(max(lo, -9), min(hi, 99))

    def step(self, dt: str, r: str, m: str, values: list[tuple[str, str, str]]) -> tuple[str, str]:
        """An instruction that changes the register, and its meaning, of which `m` is the name."""
        same = [(v, name) for v, name, d in values if d == dt]
        v, name = self.pick(same) if same else (r, m)
        if dt == "bool":
            return f"xorb $$1, {r}", f"{m} == False"
        if dt in ("f16", "bf16"):
            return f"xorw $$0x8000, {r}", f"-{m}"
        if dt in ("f32", "f64"):
            s = "ss" if dt == "f32" else "sd"
            op = self.pick(["add", "sub", "mul", "div", "sqrt", "max"])
            if op == "sqrt":
                return f"sqrt{s} {r}, {r}", f"ts.tile.sqrt({m})"
            if op == "max":
                return f"max{s} {v}, {r}", f"ts.tile.where({m} > {name}, {m}, {name})"
            return f"{op}{s} {v}, {r}", f"{m} {dict(add='+', sub='-', mul='*', div='/')[op]} {name}"
        size = bits(dt)
        w, signed = SUFFIX[size], dt[0] == "i"
        kinds = ["two", "two", "two", "number", "number", "one", "shift"]
        kinds += ["mul", "choose", "counted", "loop", "where"] if size >= 32 else []
        kind = self.pick(kinds)
        self.count(f"assembly: {kind}")
        op, sign = self.pick([("add", "+"), ("sub", "-"), ("and", "&"), ("or", "|"), ("xor", "^")])
        if kind == "two":
            return f"{op}{w} {v}, {r}", f"{m} {sign} {name}"
        if kind == "number":
            n = self.immediate(dt)
            return f"{op}{w} $${n}, {r}", f"{m} {sign} ({n})"
        if kind == "one":
            return self.pick([(f"neg{w} {r}", f"-{m}"), (f"not{w} {r}", f"~{m}"), (f"inc{w} {r}", f"{m} + 1"), (f"dec{w} {r}", f"{m} - 1")])
        if kind == "shift":
            n = self.rng.randint(0, size - 1)
            return self.pick([(f"sal{w} $${n}, {r}", f"{m} << {n}"), (f"{'sar' if signed else 'shr'}{w} $${n}, {r}", f"{m} >> {n}")])
        if kind == "mul":
            return f"imul{w} {v}, {r}", f"{m} * {name}"
        if kind == "choose":
            return f"cmp{w} {v}, {r}; cmov{'l' if signed else 'b'}{w} {v}, {r}", f"ts.tile.maximum({m}, {name})"
        if kind == "counted":
            c = "%ecx" if size == 32 else "%rcx"
            return f"mov{w} {v}, {c}; {'sar' if signed else 'shr'}{w} %cl, {r}", f"{m} >> ({name} & {size - 1})"
        if kind == "where":
            tests = [(b, of) for b, of, d in values if d == "bool"]
            if tests:
                b, of = self.pick(tests)
                return f"testb {b}, {b}; cmove{w} {v}, {r}", f"ts.tile.where({of}, {m}, {name})"
        n = self.rng.randint(1, 4)
        return f"xorl %eax, %eax\n1: add{w} {v}, {r}\n incl %eax\n cmpl $${n}, %eax\n jb 1b", f"{m} + {name} * {n}"

    def text(self, number: int) -> list[str]:
        """Two functions: one that computes the plain meaning, and one that runs the text."""
        results = [self.pick(SCALARS * 3 + STORAGE + ["bool"]) for _ in range(self.pick([1, 1, 1, 2, 3]))]
        kinds = [dt if dt != "bool" else self.pick(INTS) for dt in results]
        kinds += [self.pick(SCALARS + STORAGE + ["bool"]) for _ in range(self.rng.randint(0, 2))]
        self.rng.shuffle(kinds)
        values = [(f"${len(results) + k}", f"x{k}", dt) for k, dt in enumerate(kinds)]
        pure = self.chance(0.75)
        lines, body, names = [], [], []
        for k, dt in enumerate(results):
            first, meaning = self.begun(dt, f"${k}", values)
            lines.append(first)
            body.append(f"r{k} = {meaning}")
            for _ in range(self.rng.randint(0 if dt == "bool" else 1, 4)):
                line, meaning = self.step(dt, f"${k}", f"r{k}", values)
                lines.append(line)
                body.append(f"r{k} = " + (f"ts.tile.cast({meaning}, ts.{dt})" if dt in STORAGE else meaning))
            names.append(f"r{k}")
        shown = "".join(f"; {v}" for k, (v, _, _) in enumerate(values) if not any(v in self.registers(line) for line in lines))
        between = self.pick(["; ", "\n", "\n\t"])
        text = between.join(lines) + (f" # {shown}" if shown else "")
        given = ", ".join(name for _, name, _ in values)
        dtype = f"ts.{results[0]}" if len(results) == 1 and self.chance(0.8) else f"({', '.join(f'ts.{dt}' for dt in results)},)"
        several = dtype.startswith("(")
        back = f"return {', '.join(names)}" + ("," if several and len(names) == 1 else "")
        plain, name = f"plain{number}", f"text{number}"
        effect = "" if pure else ", pure=False"
        arch = self.pick(["", "", ', arch="avx2"', ', arch="avx512"', ', arch="amx"'])
        call = f'ts.target.asm({text!r}, {{}}, dtype={dtype}{effect}, target="x86_64"{arch}, otherwise={plain})'
        self.count(f"assembly text of {len(results)}" + ("" if pure else " with an effect"))
        out = ["@ts.func", f"def {plain}({given}):", *("    " + line for line in [*body, back]), ""]
        if pure and self.chance(0.3):
            # For another target around it, which takes elements by themselves or packed.
            self.count("assembly text inside another")
            inner = f"inner{number}"
            out += ["@ts.func", f"def {inner}({given}):", f"    return {call.format(given)}", ""]
            pack = self.pick([p for p in (1, 1, 2, 4) if all(self.fills(dt, p) for dt in results + kinds)])
            count = sum(self.fills(dt, pack) for dt in results + kinds)
            about = f", pack={pack}" if pack > 1 else ""
            arch = self.pick(["", ', arch="sm_80"', ', arch="sm_90a"'])
            ptx = "mov.b32 %t, 0; // " + " ".join(f"${k}" for k in range(count))
            call = f'ts.target.asm({ptx!r}, {{}}, dtype={dtype}{arch}{about}, otherwise={inner})'
        out += ["@ts.func", f"def {name}({given}):", f"    return {call.format(given)}", ""]
        self.texts.append(Text(name, plain, call, kinds, results, several, pure))
        return out

    @staticmethod
    def registers(line: str) -> set[str]:
        return {"$" + part.split(",")[0].split(" ")[0].split(";")[0].split("\n")[0] for part in line.replace("$$", "").split("$")[1:]}

    @staticmethod
    def fills(dt: str, pack: int) -> int:
        """The registers of PTX of a run of `pack` elements, or 0 where they do not fill them."""
        size = 1 if dt == "bool" else bits(dt)
        if pack == 1:
            return 1
        if size >= 32:
            return pack
        return 0 if dt == "bool" or size * pack % 32 else size * pack // 32

    # Calls.
    def value(self, s: Scope, dt: str, draw: Any) -> str:
        """An operand of exactly a type: `draw` gives one of a type that scalars have."""
        if dt == "bool":
            d = self.pick(SCALARS)
            return f"({draw(d)} {self.pick(['<', '>=', '=='])} {draw(d)})"
        if dt in SCALARS:
            return draw(dt)
        return f"ts.tile.cast({draw(carrier(dt))}, ts.{dt})"

    def run_text(self, s: Scope, text: Text, draw: Any) -> str:
        values = ", ".join(self.value(s, dt, draw) for dt in text.values)
        if self.chance(0.5):
            self.count("assembly text in a function")
            return f"{text.name}({values})"
        self.count("assembly text in its place")
        return text.call.format(values)

    def e_asm(self, s: Scope, dt: str, depth: int, draw: Any = None) -> str:
        """A result of a text."""
        fit = [t for t in self.texts if any(carrier(d) == dt for d in t.results) and (t.pure or not self.plain)]
        if not fit:
            return draw(dt) if draw else self.leaf(s, dt)
        text = self.pick(fit)
        out = self.run_text(s, text, draw or (lambda d: self.expr(s, d, depth - 1)))
        which = self.pick([k for k, d in enumerate(text.results) if carrier(d) == dt])
        out = f"{out}[{which}]" if text.several else out
        return out if text.results[which] == dt else f"ts.tile.cast({out}, ts.{dt})"

    def s_asm(self, s: Scope, depth: int) -> list[str]:
        """The results of a text as variables, or an effect without any."""
        several = [t for t in self.texts if t.several and (t.pure or not self.plain)]
        if not several or self.chance(0.2):
            self.count("assembly text without results")
            if self.chance(0.5):
                return ['ts.target.asm("nop", pure=False, target="x86_64", otherwise=nothing)']
            return [f'ts.target.asm("nop # $0", {self.expr(s, self.pick(SCALARS), 1)}, dtype=None, pure=False, target="x86_64", otherwise=nothing_of)']
        text = self.pick(several)
        value = self.run_text(s, text, lambda d: self.expr(s, d, 1))
        self.count("assembly text: its results as variables")
        names = [self.name("bool", "b") if dt == "bool" else self.name(carrier(dt)) for dt in text.results]
        # A value of a storage type has a name of its own until it is converted.
        given = [f"{n}s" if dt in STORAGE else n for n, dt in zip(names, text.results)]
        whole = [f"{', '.join(given)}{',' if len(given) == 1 else ''} = {value}"]
        whole += [f"{n} = ts.tile.cast({n}s, ts.{carrier(dt)})" for n, dt in zip(names, text.results) if dt in STORAGE]
        s.names.update({n: "bool" if dt == "bool" else carrier(dt) for n, dt in zip(names, text.results)})
        return whole

    def drawn_texts(self) -> list[str]:
        """Functions at the head of a program."""
        out = ["@ts.func", "def nothing():", "    return None", "", "@ts.func", "def nothing_of(x0):", "    return None", ""]
        for number in range(self.rng.randint(1, 3)):
            out += self.text(number)
        return out

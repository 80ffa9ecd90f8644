"""Random statements: each method gives the lines of one."""

from __future__ import annotations

from .expressions import INTS, SCALARS, Scope, W
from .memory_statements import MemoryStatements
from .values import RANGE, carrier


class Statements(MemoryStatements):
    """Draws statements, and blocks of them."""

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
            if self.has("tile_parts"):
                simple += ["parts", "parts"]
            if self.has("ownership"):
                simple += ["own"]
        simple += ["packed", "packed"] if self.packed else []
        simple += ["optional"] if self.optional else []
        simple += ["asm", "asm"] if self.texts else []
        if self.has("chained_assign"):
            simple.append("chained")
        if self.has("target_order"):
            simple.append("target_order")
        compound = ["if_", "if_", "for_", "for_", "while_", "begun", "both", "scratch"]
        compound += ["unrolled", "unrolled"] if self.has("unrolled") else []
        compound += ["carried"] if self.has("tuple_carried") else []
        compound += ["listed", "listed"] if self.listed else []
        kinds = [k for k in simple + (compound * 2 if depth > 0 else []) if k not in self.without]
        kind = self.pick(kinds)
        if self.of_tiles and self.has("tile_parts") and self.chance(0.5):
            tiles = ["tile", "tile", "tile", "tile", "parts", "parts", "tile_store", "tile_reduce", "tile_reduce", "augment_tile"]
            kind = self.pick([k for k in tiles if k not in self.without])
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
            # The literal takes the type of the other operand, whichever of them it is.
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
        if op in "+-*" and self.chance(0.3):
            self.count("augmented element by another type")
            # A literal may have widened an integer, which is then not stored into fewer bits.
            fits = [d for d in INTS if dt[0] == "f" or d[0] == dt[0] and int(d[1:]) <= int(dt[1:])]
            other = self.pick(["f32", "f64", *fits])
            return [f"{self.element(s, name)} {op}= {self.expr(s, other, 2)}"]
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
            args = [name, *([self.pre(s, name).rstrip(", ")] if s.prefix else []), at, self.expr(s, dt, 1)]
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
        value = self.tile(s, dt, n, 3)
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
        return [f"ts.tile.store({name}[{self.pre(s, name)}{self.span(n)}], {value}, mask={mask})"]

    def s_scatter(self, s: Scope, depth: int) -> list[str]:
        names = [n for n in s.arrays if n not in self.shared and s.arrays[n] in SCALARS]
        if not names or (s.prefix and not self.has("index_beside_id")):
            return self.s_tile_store(s, depth)
        name, n = self.pick(names), self.pick([3, 4, 8])
        dt = s.arrays[name]
        if dt in INTS and self.has("gather_add") and self.chance(0.4):
            self.count("scatter add")
            return [f"{name}[{self.pre(s, name)}{self.positions(s, n, unique=False)}] += {self.tile(s, dt, n, 1)}"]
        self.count("scatter")
        return [f"{name}[{self.pre(s, name)}{self.positions(s, n, unique=True)}] = {self.tile(s, dt, n, 1)}"]

    def s_tile_reduce(self, s: Scope, depth: int) -> list[str]:
        n = self.pick([2, 3, 4, 5, 8])
        f = self.pick(["sum", "sum", "max", "min", "any", "all", "argmax"])
        if self.has("own_combiners") and self.chance(0.4):
            dt = self.pick(SCALARS)
            n = self.pick([3, 5, 6, 7, 8])  # of which most leave a lone element at some level
            found = self.combined(s, dt, lambda d: self.tile(s, d, n, 1))
            if found is not None:
                self.count("reduce by a function")
                name = self.name(dt)
                s.names[name] = dt
                return [f"{name} = ts.tile.reduce({found[0]}, {found[1]}){found[2]}"]
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
        inner, test = s.copy(), self.cond(s, 2)
        if self.has("walrus") and self.chance(0.15):
            self.count("walrus behind and")
            dt = self.pick(SCALARS)
            name, value = self.name(dt), self.expr(s, dt, 2)
            test = f"{test} and ({name} := {value}) {self.pick(['<', '!=', '>='])} {self.literal(dt)}"
            inner.names[name] = dt
        out = [f"if {test}:", *self.indent(self.block(inner, self.rng.randint(1, 3), depth - 1))]
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
        if self.chance(0.2):
            self.count("range down")
            head = self.pick([f"range({hi}, -1, -1)", f"range({hi}, 0, -2)", f"range(-1, {hi}, -1)"])
            ints = [n for n, d in s.names.items() if d in ("i32", "i64")]
            if ints and self.chance(0.5):
                self.count("range with a step that is known at run time")
                head = self.pick(["range(0, 3, {} % 2 * 2 - 1)", "range(3, -1, {} % 2 * 4 - 3)"]).format(self.pick(ints))
        if self.has("python_iterators") and self.chance(0.15):
            self.count("reversed range")
            head = f"reversed({head.replace('ts.tile.', '')})"
        inner = s.copy()
        inner.names[j] = "i64"
        inner.fixed.add(j)
        self.loops.append("for")
        body = self.block(inner, self.rng.randint(1, 4), depth - 1)
        if self.has("loop_var_assign") and self.chance(0.08):
            self.count("loop variable assigned in its loop")
            body.append(f"{j} = {self.expr(s, 'i64', 1)}")
        self.loops.pop()
        self.looped.add(j)
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
        bound = ""
        if self.has("walrus") and self.chance(0.3):
            self.count("walrus in the test of a while")
            bound = self.name("i64", "w")
            head = f"({bound} := {c}) < {self.rng.randint(1, 4)}" + self.pick(["", f" and {cond}"])
            inner.names[bound] = "i64"
        self.loops.append("while")
        body = [f"{c} += 1", *self.block(inner, self.rng.randint(1, 3), depth - 1)]
        self.loops.pop()
        out = [f"{c} = 0", f"while {head}:", *self.indent(body)]
        if self.has("while_else") and (not self.lane or self.has("lane_while_else")) and self.chance(0.2):
            self.count("while else")
            out += ["else:", *self.indent(self.block(s.copy(), 1, depth - 1))]
        s.names[c] = "i64"
        s.fixed.add(c)
        if bound:
            s.names[bound] = "i64"
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
        """A variable that both branches assign, one of them perhaps after an early exit."""
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
            self.count("early exit before an assignment")
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

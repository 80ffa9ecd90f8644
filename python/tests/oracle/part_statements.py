"""Random statements of tiles in parts, of unrolled loops, and of tuples that loops carry."""

from __future__ import annotations

from .expressions import SCALARS, Scope
from .part_expressions import PartExpressions


class PartStatements(PartExpressions):
    """Draws statements that `Statements` puts among the others."""

    def s_parts(self, s: Scope, depth: int) -> list[str]:
        """Several values: parts of a tile, the largest with their places, a count."""
        form = self.pick(["split", "topk", "best", "unique", "reduce", "scan"])
        dt, n = self.pick(SCALARS), self.pick([2, 3, 4])
        if form in ("topk", "unique") and not self.has("sort"):
            form = "best"
        if form == "unique":
            self.count("unique_count")
            value = f"ts.tile.unique_count({self.tile(s, dt, self.pick([2, 3, 5, 8]), 1)})"
            name = self.name("i32")
            s.names[name] = "i32"
            return [f"{name} = {value}"]
        if form == "best":
            self.count("max with its place")
            value = f"ts.tile.{self.pick(['max', 'min'])}({self.tile(s, dt, self.pick([2, 3, 5, 8]), 1)}, return_indices=True)"
            v, i = self.name(dt), self.name("i32")
            s.names[v], s.names[i] = dt, "i32"
            return [f"{v}, {i} = {value}"]
        if form in ("reduce", "scan"):
            several = [c for c in self.combiners if len(c["dts"]) > 1]
            if not several or not self.has("own_combiners"):
                return self.s_tile(s, depth)
            c = self.pick(several)
            n = self.pick([3, 4, 5, 7])
            tiles = f"({', '.join(self.tile(s, d, n, 1) for d in c['dts'])})"
            if form == "reduce":
                self.count("reduce of several tiles by a function")
                names = [self.name(d) for d in c["dts"]]
                s.names.update(zip(names, c["dts"]))
                return [f"{', '.join(names)} = ts.tile.reduce({tiles}, {c['name']})"]
            self.count("scan of several tiles by a function")
            names = [self.tile_name(s, d, n) for d in c["dts"]]
            return [f"{', '.join(names)} = ts.tile.associative_scan({tiles}, {c['name']}{self.pick(['', ', reverse=True'])})"]
        if form == "split":
            self.count("split")
            value = f"ts.tile.split({self.tile(s, dt, 2 * n, 1)}, 2)"
            a, b = self.tile_name(s, dt, n), self.tile_name(s, dt, n)
            return [f"{a}, {b} = {value}"]
        self.count("topk")
        value = f"ts.tile.topk({self.tile(s, dt, 8, 1)}, {n})"
        a, b = self.tile_name(s, dt, n), self.tile_name(s, "i32", n)
        return [f"{a}, {b} = {value}"]

    def tile_name(self, s: Scope, dt: str, n: int) -> str:
        self.number += 1
        name = f"w{self.number}"
        s.tiles[name] = (dt, n)
        return name

    def s_unrolled(self, s: Scope, depth: int) -> list[str]:
        """A loop whose items are known: each round is a copy of the body."""
        inner = s.copy()
        dt = self.pick(SCALARS)
        j, v = self.name("i64", "j"), self.name(dt, "e")
        values = f"({', '.join(self.expr(s, dt, 1) for _ in range(self.rng.randint(2, 3)))})"
        rounds = 1
        forms = ["count", "count", "count", "values", "table"]
        form = self.pick(forms + (["enumerate", "zip", "reversed"] if self.has("python_iterators") else []))
        self.count(f"unrolled loop: {form}")
        if form == "count":
            rounds = self.rng.randint(0, 3)
            heads = [f"ts.static_range({rounds})", f"ts.static_range({rounds}, {2 * rounds})", f"ts.static_range({rounds}, 0, -1)", f"ts.static_range(0, {2 * rounds}, 2)"]
            head = f"{j} in {self.pick(heads)}"
            if self.has("captures_change") and self.chance(0.15):
                head, rounds = f"{j} in ts.static_range(G0 % 4)", 0
        elif form == "values":
            head = f"{v} in {values}"
        elif form == "table":
            head = f"{j} in {self.pick(['TAB', '(2, 0, 7)', 'ARR'])}"
        elif form == "enumerate":
            head = f"{j}, {v} in enumerate({values})"
        elif form == "zip":
            head = f"{j}, {v} in zip({self.pick(['TAB', 'ts.static_range(3)', 'reversed(TAB)'])}, {values})"
        else:
            head = f"{j} in reversed({self.pick(['TAB', 'ts.static_range(3)', '(1, 5)'])})"
        if form != "values":
            inner.known.append(j)
        if v in head:
            inner.names[v] = dt
        self.loops.append("unrolled loop")
        body = self.block(inner, self.rng.randint(1, 3), depth - 1)
        self.loops.pop()
        out = [f"for {head}:", *self.indent(body)]
        if self.has("for_else") and (not self.lane or self.has("lane_loop_else")) and self.chance(0.25):
            self.count("else of an unrolled loop")
            out += ["else:", *self.indent(self.block(s.copy(), 1, depth - 1))]
        if rounds and self.has("loop_var_after" if form != "values" else "unrolled_value_after") and self.chance(0.5):
            self.count("variable of an unrolled loop after it")
            out += self.keep(s, j if form != "values" else f"ts.tile.cast({v}, ts.i64)")
        return out

    def s_carried(self, s: Scope, depth: int) -> list[str]:
        """A tuple that a loop carries, or that a branch changes."""
        dts = [self.pick(SCALARS) for _ in range(self.rng.randint(2, 3))]
        self.number += 1
        name = f"t{self.number}"
        first = f"{name} = ({', '.join(self.expr(s, d, 1) for d in dts)})"
        s.tuples[name] = dts
        inner = s.copy()
        form = self.pick(["for", "for", "while", "unrolled", "if"])
        self.count(f"tuple carried: {form}")
        head = [f"if {self.cond(s, 1)}:"]
        j = self.name("i64", "j")
        if form == "for":
            head = [f"for {j} in range({self.bound(s)}):"]
            inner.names[j] = "i64"
            inner.fixed.add(j)
        elif form == "unrolled" and self.has("unrolled"):
            head = [f"for {j} in ts.static_range({self.rng.randint(1, 3)}):"]
            inner.known.append(j)
        elif form == "while":
            head = [f"{j} = 0", f"while {j} < {self.rng.randint(1, 3)} and {self.cond(s, 1)}:"]
            inner.names[j] = "i64"
            inner.fixed.add(j)
        step = [f"{name} = ({', '.join(self.expr(inner, d, 2) for d in dts)})"]
        if form == "while":
            step.insert(0, f"{j} += 1")
        leaves = [f"if {self.cond(inner, 1)}:", f"    {name} = ({', '.join(self.leaf(inner, d) for d in dts)})", f"    {self.pick(['break', 'continue'])}"]
        if form != "if" and self.has("tuple_left") and not (self.lane and not self.has("lane_break")) and self.chance(0.4):
            self.count("tuple assigned before a loop is left")
            step = step + leaves if self.chance(0.5) else step[:-1] + leaves + step[-1:]
        return [first, *head, *self.indent(step)]

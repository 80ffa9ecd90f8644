"""Random kernels as Python text, with their arguments.

A program is a module: captured names, helpers, one kernel. The generator knows the type of
everything in it, so programs are legal; `fuzz` counts those that the compiler refuses all the same, by error code. A group or
lane writes only its own positions, so the order of groups and lanes does not matter.
"""

from __future__ import annotations

import math
from typing import Any

from .expressions import INTS, SCALARS, STORAGE, Case, Scope, W
from .form import PACKED
from .statements import Statements


class Gen(Statements):
    """Draws whole programs."""

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
        def back(scope: Scope) -> str:
            return f"return {self.expr(scope, dt, 1)}" + (f", {self.leaf(scope, dt)}" if returns == "two" else "")

        if self.chance(0.5):
            # Before the end, from a branch or out of a loop.
            early = [f"if {self.cond(s, 1)}:", *self.indent([back(s)])]
            form = self.pick(["if", "else", "loop"] if returns == "one" else ["if", "else"])
            self.count(f"early return of a helper: {form}")
            if form == "else":
                early += ["else:", *self.indent([*self.block(s.copy(), 1, 0), self.pick([back(s), "pass"])])]
            elif form == "loop":
                inner = s.copy()
                j = self.name("i64", "j")
                inner.names[j] = "i64"
                inner.fixed.add(j)
                early = [f"if {self.cond(inner, 1)}:", *self.indent([back(inner)])]
                early = [f"for {j} in range({self.bound(s)}):", *self.indent([*self.block(inner, 1, 0), *early])]
            body += early
        body.append(back(s))
        given = ""
        if default:
            if self.has("helper_global_default") and dt in INTS and self.chance(0.4):
                given = "=G0"
                self.count("default that names a global")
            else:
                given = f"={self.literal(dt)}"
        self.types["d"] = dt
        # A literal argument is exact while it is a literal; from here on it is a value.
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
        synchronises = self.lane and self.chance(0.5)
        if self.lane and not synchronises and self.chance(0.3):
            count = max(1, count - 1)
        shape, extents = self.axes(synchronises) if self.lane and self.has("lane_axes") and self.chance(0.4) else ((), ())
        if shape:
            lanes, count = math.prod(shape), math.prod(extents)
        rank2 = self.lane or groups > 1
        head = [f"G0 = {self.rng.randint(1, 7)}", f"G1 = {self.pick(['0.5', '1.5', '-2.0', '3.25'])}"]
        head += ["class cfg:", f"    K = {self.rng.randint(0, 9)}"]
        head += [f"TAB = ({self.rng.randint(0, W - 1)}, {self.rng.randint(0, W - 1)}, {self.rng.randint(0, W - 1)})"]
        head += [f"ARR = np.array([{self.rng.randint(0, W - 1)}, {self.rng.randint(0, W - 1)}], np.int32)", "ARR.flags.writeable = False"]
        head.append("")
        if self.has("assembly") and self.chance(0.35):
            head += self.drawn_texts()
        if not self.lane and self.has("own_combiners"):
            for number in range(self.rng.randint(1, 3)):
                head += self.combiner(number)
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
        if self.has("packed") and self.chance(0.2):
            for dt in self.rng.sample(list(PACKED), self.rng.randint(1, 2)):
                name = f"n_{dt[:2]}"
                self.packed[name] = dt
                arrays[name] = ((count, W) if rank2 else (W,), dt)
                parameters.append(f"{name}: ts.Tensor[{first + ', ' if rank2 else ''}{wide}, \"{dt}\"]")
        source = ""
        if not self.lane and self.has("staged") and self.chance(0.3):
            source, staged = "src", self.pick(SCALARS + STORAGE)
            arrays[source] = ((count, 40) if rank2 else (40,), staged)
            parameters.append(f"src: ts.Tensor[{first + ', ' if rank2 else ''}40, ts.{staged}]")
        results = {"ri": "i64", "rf": "f64"}
        for name, dt in results.items():
            arrays[name] = ((count, 16) if rank2 else (16,), dt)
            parameters.append(f"{name}: ts.Tensor[{first + ', ' if rank2 else ''}16, ts.{dt}]")
        prefix = ("i, " if self.lane else "p, ") if rank2 else ""
        s = Scope(mine, prefix)
        body: list[str] = []
        form = None
        if self.has("records") and self.chance(0.35):
            classes, parameters, form = self.arrange(s, parameters, arrays)
            head += classes
        if self.lane:
            body.append(f"i = {self.numbered('linear_id', extents)}" if shape else "i = ts.tile.linear_id()")
            self.types["i"] = "i64"
            s.names["i"] = "i64"
            s.fixed.add("i")
            if synchronises:
                body.append(f"l = {self.pick([self.numbered('local_id', shape), 'ts.tile.group.rank'])}" if shape else "l = ts.tile.local_id()")
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
        if synchronises:
            body.append(f"sh = ts.tile.alloc_shared(({lanes},), ts.{shared})")
        if rank2 and not self.lane and self.has("ownership") and self.chance(0.35):
            more, first_lines = self.take_ticket(s, groups, arrays)
            body += first_lines
            parameters += more
            if form is not None:
                form.arguments += [line.partition(":")[0] for line in more]
        # Two variables to begin with.
        for dt in self.rng.sample(SCALARS, 2):
            name = self.name(dt)
            body.append(f"{name} = {self.leaf(s, dt)}")
            s.names[name] = dt
        self.statements += len(body)
        barriers = 0
        while self.statements < 15 or self.chance(0.6):
            body += self.statement(s, 2)
            if source and self.chance(0.2):
                body += self.staged(s, source, staged, rank2)
                source = ""
            if synchronises and not self.returned and barriers < 3 and self.chance(0.35):
                body += self.exchange(s, shared, lanes)
                barriers += 1
            if self.statements > 45:
                break
        if source:
            body += self.staged(s, source, staged, rank2)
        body += self.results(s, prefix)
        options = f"(lanes={shape or lanes})" if self.lane else ""
        if shape:
            self.count(f"lanes of {len(shape)} axes")
        if self.returned:
            self.count("kernel with a return")
        text = "\n".join([*head, f"@ts.kernel{options}", f"def k({', '.join(parameters)}):", *self.indent(body), ""])
        self.count("lane kernel" if self.lane else "group kernel")
        types = {"k": self.types, **self.helper_types}
        later: dict[str, Any] = {}
        if self.has("captures_change") and self.chance(0.3):
            later = {"G0": self.rng.randint(1, 7), "G1": self.pick([0.5, -1.5, 4.0]), "cfg.K": self.rng.randint(0, 9)}
        checked = any(name.startswith("owne") for name in self.counts)
        return Case(
            text, types, arrays, extents or count, shape or lanes, self.seed, later, self.counts, self.statements, form=form,
            native=bool(self.texts), checked=checked,
        )  # fmt: skip

    def axes(self, whole: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The extents of a group along two or three axes, and of all lanes: whole groups, or not."""
        shape = self.pick([(2, 2), (1, 4), (4, 1), (2, 3), (3, 4), (2, 8), (1, 2, 3), (2, 2, 2), (2, 1, 5)])
        extents = tuple(n * self.rng.randint(1, 2) for n in shape)
        if not whole and self.chance(0.5):
            extents = tuple(max(1, n - self.rng.randint(0, 2)) for n in extents)
        return shape, extents

    def numbered(self, name: str, extents: tuple[int, ...]) -> str:
        """The lane's number from its place along each axis."""
        text = f"ts.tile.{name}(0)"
        for axis, n in enumerate(extents[1:], 1):
            text = f"({text}) * {n} + ts.tile.{name}({axis})" if axis > 1 else f"{text} * {n} + ts.tile.{name}({axis})"
        return text

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

"""Random functions on whole arrays, as Python source.

A program is a function ``f`` of 15 or more ops. Its parts may be the bodies of branches and loops, of `vmap` and of derivatives,
nested in each other; a body sees every value that was made before it, and takes many of them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from .ops import Ops, Skip
from .values import INTS, LIMIT, Arg, Case, V

EXTENTS = (1, 2, 3, 5, 7, 8, 16, 33, 100, 0)

#: Those of programs on meshes: even and uneven for 1 to 12 ranks.
SMALL = (1, 2, 3, 4, 5, 6, 7, 8, 8, 12, 12, 16, 24, 0)
WEIGHTS = (2, 4, 6, 6, 4, 5, 3, 1, 0.5, 0.5)


class Generator(Ops):
    def __init__(self, seed: int, without: frozenset[str] = frozenset(), size: int | None = None, small: bool = False) -> None:
        self.seed, self.without, self.small = seed, without, small
        self.rng = random.Random(seed)
        self.size = size
        self.lines: list[str] = []
        self.indent = 1
        self.scopes: list[list[V]] = [[]]
        self.used: set[str] = set()
        self.counts: Counter = Counter()
        self.made = self.ops = 0
        #: Reverse mode is taken of what is drawn; some derivative is.
        self.reverse = self.derived = False
        #: Iterations of all loops around, and how deep bodies are.
        self.trips, self.depth = 1, 0
        self.not_jax: set[str] = set()
        self.dims = [self.rng.choice(SMALL) if small else self.rng.choices(EXTENTS, WEIGHTS)[0] for _ in range(3)]
        #: Dtypes of a program: few of them, so that values can be combined.
        self.real = self.rng.choices(("f32", "f64", "bf16", "f16"), (10, 6, 1, 1))[0]
        self.others = self.rng.random() < 0.4

    # A program.
    def case(self) -> Case:
        args = []
        rng = self.rng
        kinds = [(self.real, False), (self.real, False), (rng.choice(("i32", "i64")), True), (rng.choice(("f32", "f64", self.real)), True)]
        kinds += rng.choices([(self.real, False), ("u8", True), ("bool", True), ("i32", True), ("f32", False)], k=rng.randint(0, 2))
        for k, (dtype, whole) in enumerate(kinds):
            bound = {"u8": 255, "bool": 1}.get(dtype, rng.choice((3, 9))) if whole else 2
            shape = self.shape(rng.choices((0, 1, 2, 3), (1, 4, 5, 1))[0])
            args.append(Arg(f"a{k}", dtype, shape, whole, bound))
            self.scopes[0].append(V(f"a{k}", dtype, shape, whole, bound, "argument", 0))
        least = self.size or (rng.randint(2, 7) if self.small else rng.randint(10, 18))
        while self.made < least or not self.small and self.ops < 15:
            self.statement(least - self.made)
        top = [v for v in self.scopes[0] if not v.name.startswith("a")]
        left = [v for v in top if v.name not in self.used][-5:]
        chosen = left + [v for v in rng.sample(top, min(2, len(top))) if v not in left]
        text = f"def f({', '.join(a.name for a in args)}):\n" + "\n".join(self.lines)
        text += f"\n    return {', '.join(v.name for v in chosen)},\n"
        return Case(text, args, self.seed, self.ops, dict(self.counts), self.not_jax)

    def statement(self, left: int = 4) -> None:
        """One statement, whatever can be drawn."""
        controls: list[tuple[float, Callable]] = []
        if self.depth < 3 and left > 1:
            controls = [*([(1.5, self.pin)] if self.small else []), (2, self.cond), (2, self.scan), (2, self.fori), (1, self.while_), (1.5, self.vmap), (2, self.derivative)]
        for _ in range(60):
            control = controls and self.rng.random() < (0.3 if self.depth == 0 else 0.2)
            table = controls if control else self.table
            how = self.rng.choices([m for _, m in table], [w for w, _ in table])[0]
            name = getattr(how, "__name__", "")
            if name in self.without:
                continue
            mark = self.mark()
            try:
                how()
                self.made += 1
                return
            except Skip:
                self.rewind(mark)
        raise RuntimeError(f"nothing could be drawn: seed {self.seed}")

    def mark(self) -> tuple:
        return (len(self.lines), self.indent, [len(s) for s in self.scopes], set(self.used), Counter(self.counts), self.made, self.ops,
                self.reverse, self.derived, self.trips, self.depth, set(self.not_jax))  # fmt: skip

    def rewind(self, mark: tuple) -> None:
        lines, self.indent, sizes, self.used, self.counts, self.made, self.ops, self.reverse, self.derived, self.trips, self.depth, self.not_jax = mark
        del self.lines[lines:]
        del self.scopes[len(sizes):]
        for scope, n in zip(self.scopes, sizes):
            del scope[n:]

    # Bodies.
    def body(self, name: str, params: list[str], values: list[V], fill: Callable[[], str], size: tuple[int, int] = (1, 4)) -> None:
        """``def name(params):`` with some statements, ended by what ``fill`` says to return."""
        self.line(f"def {name}({', '.join(params)}):")
        self.indent += 1
        self.depth += 1
        self.scopes.append([])
        for v in values:
            self.scopes[-1].append(V(v.name, v.dtype, v.shape, v.exact, v.bound, v.origin, self.depth))
        many = self.rng.randint(*size)
        for k in range(many):
            self.statement(many - k)
        self.line(f"return {fill()}")
        self.scopes.pop()
        self.depth -= 1
        self.indent -= 1

    def here(self) -> V:
        """A value of the body that is being drawn, the last ones rather."""
        scope = self.scopes[-1]
        if not scope or self.rng.random() < 0.1:
            return self.pick(lambda v: True)
        return self.use(scope[max(len(scope) - 1 - int(self.rng.expovariate(1.0)), 0)])

    def spec(self) -> V:
        """The type of a carried value, and a value to begin with."""
        v = self.pick(lambda v: v.size <= 600)
        if v.exact:
            limit = 1 if v.dtype == "bool" else min(LIMIT[v.dtype], 255 if v.dtype == "u8" else 20)
            return V(self.fitted(v, v.dtype, v.shape, True, limit), v.dtype, v.shape, True, limit, "carry")
        return V(self.fitted(v, v.dtype, v.shape, False, 4.0), v.dtype, v.shape, False, 4.0, "carry")

    def back(self, spec: V) -> str:
        """A value of the body as one of this type."""
        for _ in range(8):
            v = self.here()
            if spec.exact and not v.exact:
                continue
            return self.fitted(v, spec.dtype, spec.shape, spec.exact, spec.bound)
        v = self.pick(lambda v: v.exact) if spec.exact else self.pick(lambda v: True)
        return self.fitted(v, spec.dtype, spec.shape, spec.exact, spec.bound)

    def pin(self) -> None:
        """A value in a placement, where the program is on a mesh."""
        v = self.pick(lambda v: True)
        self.counts["pin"] += 1
        self.results(f"pin({v.name}, {self.rng.randrange(10**6)})", [v], "pin")

    # Control flow.
    def specs(self) -> list[V]:
        return [self.spec() for _ in range(self.rng.choices((1, 2, 3), (5, 3, 1))[0])]

    @staticmethod
    def tupled(names: list[str]) -> str:
        return names[0] if len(names) == 1 else f"({', '.join(names)})"

    def results(self, call: str, types: list[V], origin: str) -> None:
        """Binds the results of a call: one bare, several as a tuple."""
        names = [self.fresh() for _ in types]
        self.line(f"{', '.join(names)} = {call}")
        for name, t in zip(names, types):
            self.scopes[-1].append(V(name, t.dtype, t.shape, t.exact, t.bound, origin, self.depth))
        self.ops += 1

    def cond(self) -> None:
        pred = self.predicate()
        specs = self.specs()
        operands = self.rng.random() < 0.5
        names = []
        for _ in range(2):
            name = self.fresh("c")
            inner = [V(self.fresh("p"), s.dtype, s.shape, s.exact, s.bound, "operand") for s in specs] if operands else []
            self.body(name, [v.name for v in inner], inner, lambda: self.tupled([self.back(s) for s in specs]), (0 if operands else 1, 4))
            names.append(name)
        given = "".join(f", {s.name}" for s in specs) if operands else ""
        self.counts["cond"] += 1
        self.results(f"ts.cond({pred}, {names[0]}, {names[1]}{given})", specs, "cond")

    def inner_carry(self, specs: list[V]) -> tuple[str, list[V]]:
        """The parameter of a loop's body, and its parts; several are unpacked in the body's first line."""
        inner = [V(self.fresh("p"), s.dtype, s.shape, s.exact, s.bound, "carry") for s in specs]
        return (inner[0].name if len(inner) == 1 else self.fresh("q")), inner

    def loop(self, trip: int, fn: Callable[[], None]) -> None:
        if self.trips * max(trip, 1) > 120:
            raise Skip
        before, self.trips = self.trips, self.trips * max(trip, 1)
        fn()
        self.trips = before

    def looped(self, name: str, params: list[str], given: list[tuple[str, list[V]]], values: list[V], fill: Callable[[], str]) -> None:
        """A body whose parameters are unpacked first."""
        self.line(f"def {name}({', '.join(params)}):")
        self.indent += 1
        for whole, parts in given:
            if len(parts) > 1:
                self.line(f"{', '.join(p.name for p in parts)} = {whole}")
        self.indent -= 1
        head = len(self.lines)
        self.body(name, params, values, fill)
        del self.lines[head]  # the second `def`

    def fori(self) -> None:
        specs = self.specs()
        low, trip = self.rng.choice((0, 0, 1, -2)), self.rng.choice((0, 1, 2, 3, 3, 4))
        i = V(self.fresh("i"), "i64", (), True, 8, "loop index")
        whole, inner = self.inner_carry(specs)
        name = self.fresh("b")
        dynamic = self.rng.random() < 0.25 and not self.reverse
        bounds = f"{low}, {low + trip}"
        if dynamic:
            n = self.pick(lambda v: v.exact and v.dtype in INTS)
            bounds = f"{low}, {self.scalar(n, low, low + 4)}"
            self.counts["fori_loop with a traced bound"] += 1
        self.loop(4 if dynamic else trip, lambda: self.looped(
            name, [i.name, whole], [(whole, inner)], [i, *inner], lambda: self.tupled([self.back(s) for s in specs])))  # fmt: skip
        self.counts["fori_loop"] += 1
        self.results(f"ts.fori_loop({bounds}, {name}, {self.tupled([s.name for s in specs])})", specs, "fori_loop")

    def while_(self) -> None:
        if self.reverse:
            raise Skip
        specs = self.specs()
        n = V(self.fresh("i"), "i64", (), True, 8, "loop index")
        inner = [n, *(V(self.fresh("p"), s.dtype, s.shape, s.exact, s.bound, "carry") for s in specs)]
        whole, test, name = self.fresh("q"), self.fresh("t"), self.fresh("b")
        limit = self.pick(lambda v: v.exact and v.dtype in INTS)
        most = self.rng.randint(0, 4)
        # What the test sees is captured, or a part of the carry.
        self.line(f"def {test}({whole}):")
        self.indent += 1
        bound = self.scalar(limit, 0, most) if self.rng.random() < 0.6 else str(most)
        self.line(f"return {whole}[0] < {bound}")
        self.indent -= 1
        whole = self.fresh("q")
        self.loop(most, lambda: self.looped(
            name, [whole], [(whole, inner)], inner, lambda: self.tupled([f"{n.name} + 1", *(self.back(s) for s in specs)])))  # fmt: skip
        self.counts["while_loop"] += 1
        start = f"(xp.asarray(0, dtype=ts.i64), {', '.join(s.name for s in specs)})"
        self.results(f"ts.while_loop({test}, {name}, {start})", [V("", "i64", (), True, 8), *specs], "while_loop")

    def scan(self) -> None:
        specs = self.specs()
        rows = []
        if self.rng.random() < 0.85:
            first = self.pick(lambda v: v.rank > 0 and v.shape[0] <= 40)
            n = first.shape[0]
            rows = [first]
            if self.rng.random() < 0.4:
                rows.append(self.pick(lambda v: v.rank > 0 and v.shape[0] == n))
        else:
            n = self.rng.choice((0, 1, 2, 3, 5))
        whole, inner = self.inner_carry(specs)
        xs = [V(self.fresh("x"), v.dtype, v.shape[1:], v.exact, v.bound, "row of a scan") for v in rows]
        row = "_" if not xs else xs[0].name if len(xs) == 1 else self.fresh("q")
        ys: list[V] = []

        def fill() -> str:
            ys.extend(self.here() for _ in range(self.rng.choice((0, 1, 1, 2))))
            given = "None" if not ys else self.tupled([y.name for y in ys])
            return f"{self.tupled([self.back(s) for s in specs])}, {given}"

        name = self.fresh("b")
        self.loop(n, lambda: self.looped(name, [whole, row], [(whole, inner), (row, xs)], [*inner, *xs], fill))
        reverse = ", reverse=True" if self.rng.random() < 0.3 else ""
        given = f", {self.tupled([v.name for v in rows])}" if rows else f", None, length={n}"
        self.counts["scan"] += 1
        self.counts["scan, reverse"] += bool(reverse)
        types = [V("", y.dtype, (n, *y.shape), y.exact, y.bound) for y in ys]
        if any(t.size > 4000 for t in types):
            raise Skip
        pair = self.fresh("q")
        self.line(f"{pair} = ts.scan({name}, {self.tupled([s.name for s in specs])}{given}{reverse})")
        self.results(f"{pair}[0]", specs, "scan")
        if types:
            self.results(f"{pair}[1]", types, "rows of a scan")

    def vmap(self) -> None:
        first = self.pick(lambda v: v.rank > 0 and 0 < v.size and v.shape[0] <= 40)
        axis = self.rng.randrange(first.rank) if self.rng.random() < 0.3 else 0
        n = first.shape[axis]
        given, axes = [first], [axis]
        for _ in range(self.rng.choice((0, 1, 1))):
            v = self.pick(lambda v: v.rank > 0 and v.shape[0] == n or v.size < 100)
            given.append(v)
            axes.append(0 if v.rank and v.shape[0] == n and self.rng.random() < 0.8 else None)
        inner = [V(self.fresh("p"), v.dtype, v.shape if a is None else v.shape[:a] + v.shape[a + 1 :], v.exact, v.bound, "row of vmap")
                 for v, a in zip(given, axes)]  # fmt: skip
        name = self.fresh("m")
        outs: list[V] = []

        def fill() -> str:
            outs.extend(self.here() for _ in range(self.rng.choice((1, 1, 2))))
            return self.tupled([v.name for v in outs])

        def whole() -> None:
            self.body(name, [v.name for v in inner], inner, fill)

        self.loop(n, whole)
        self.counts["vmap"] += 1
        types = [V("", v.dtype, (n, *v.shape), v.exact, v.bound) for v in outs]
        if any(t.size > 4000 for t in types):
            raise Skip
        self.results(f"ts.vmap({name}, in_axes={tuple(axes)})({', '.join(v.name for v in given)})", types, "vmap")

    def derivative(self) -> None:
        kind = self.rng.choice(("grad", "grad", "value_and_grad", "grad of two", "vjp", "jvp"))
        if self.reverse and self.derived and self.rng.random() < 0.8:
            raise Skip  # derivatives of derivatives, now and then
        many = 2 if kind == "grad of two" else 1
        args = [self.pick(lambda v: not v.exact and v.dtype in ("f32", "f64") and v.size <= 400) for _ in range(many)]
        inner = [V(self.fresh("p"), v.dtype, v.shape, False, v.bound, "differentiated") for v in args]
        name = self.fresh("l")
        scalar = kind not in ("vjp", "jvp")
        out: list[V] = []

        def fill() -> str:
            v = next((v for v in (self.here() for _ in range(6)) if not v.exact and v.dtype in ("f32", "f64")), None) or inner[0]
            out.append(v)
            if not scalar:
                return v.name
            weight = self.rng.choice((f"{v.name} * {self.number()}", v.name, f"xp.sin({v.name})"))
            return f"xp.sum({weight})" if v.shape or weight != v.name else v.name

        before = self.reverse, self.derived
        self.reverse, self.derived = self.reverse or kind != "jvp", True
        self.body(name, [v.name for v in inner], inner, fill, (2, 7))
        self.reverse, self.derived = before
        self.counts[kind] += 1
        self.counts["derivatives"] += 1
        names = ", ".join(v.name for v in args)
        wild = [V("", v.dtype, v.shape, False, 1e30) for v in args]
        y = V("", out[0].dtype, () if scalar else out[0].shape, False, 1e30)
        wrapped = f"ts.checkpoint({name})" if kind != "jvp" and self.rng.random() < 0.1 and not self.flag("checkpoint") else name
        if kind == "jvp":
            tangent = self.fitted(self.pick(lambda v: True), args[0].dtype, args[0].shape, False, 4.0)
            self.results(f"ts.jvp({name}, ({names},), ({tangent},))", [y, y], "derivative")
        elif kind == "vjp":
            pair, pull = self.fresh("q"), self.fresh("u")
            self.line(f"{pair}, {pull} = ts.vjp({wrapped}, {names})")
            ct = self.fitted(self.pick(lambda v: True), y.dtype, y.shape, False, 4.0)
            # One cotangent comes bare or as a tuple: `first` takes it out.
            self.results(f"first({pull}({ct}))", wild, "derivative")
            self.results(f"xp.asarray({pair})", [y], "forward of a vjp")
        elif kind == "grad of two":
            self.results(f"ts.grad({wrapped}, argnums=(0, 1))({names})", wild, "derivative")
        elif kind == "value_and_grad":
            self.results(f"ts.value_and_grad({wrapped})({names})", [y, *wild], "derivative")
        else:
            self.results(f"ts.grad({wrapped})({names})", wild, "derivative")


def generate(seed: int, without: frozenset[str] = frozenset(), size: int | None = None, small: bool = False) -> Case:
    """``small``: a program of few ops, for meshes, which pins some of its values."""
    return Generator(seed, without, size, small).case()



"""The ops of random programs: which arguments each takes, and what is known about its result."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable

from .values import ELEMENTS, FLOATS, INTS, LIMIT, REAL, V


#: Values that nothing computes: without "captures" bodies see these alone of what is around them.
GIVEN = ("argument", "carry", "operand", "row of a scan", "row of vmap", "loop index", "differentiated")


class Skip(Exception):
    """Nothing fits here: another op is drawn."""


class Ops:
    rng: random.Random
    lines: list[str]
    indent: int
    scopes: list[list[V]]
    used: set[str]
    counts: Counter
    made: int
    ops: int
    reverse: bool
    derived: bool
    trips: int
    depth: int
    not_jax: set[str]
    dims: list[int]
    real: str
    others: bool
    without: frozenset[str]

    # Names and lines.
    def fresh(self, letter: str = "v") -> str:
        self._names = getattr(self, "_names", 0) + 1
        return f"{letter}{self._names}"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def line_of(self, text: str) -> str:
        """A line that gives an expression a name."""
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def flag(self, name: str) -> bool:
        return name in self.without

    def number(self) -> str:
        return repr(self.rng.choice((0.5, -0.5, 0.25, 1.5, -1.25, 0.75, 2.0)))

    def shape(self, rank: int) -> tuple[int, ...]:
        out = tuple(self.rng.choice(self.dims) for _ in range(rank))
        return out if math.prod(out) <= 600 else (*out[:-1], 2) if math.prod(out[:-1]) <= 300 else (3,) * rank

    # Operands.
    def use(self, v: V) -> V:
        self.used.add(v.name)
        if v.depth < self.depth:
            self.counts[f"captured: {v.origin}"] += 1
        return v

    def pick(self, fits: Callable[[V], bool], wild: bool = False) -> V:
        values, weights = [], []
        for depth, scope in enumerate(self.scopes):
            for k, v in enumerate(scope):
                if self.flag("captures") and v.depth < self.depth and v.origin not in GIVEN:
                    continue
                if (v.bound < 1e20 or wild) and fits(v):
                    values.append(v)
                    # The newest rather, and in bodies what was made before now and then.
                    weights.append((1 + 3 * (k + 1) / len(scope)) * (1 if depth != self.depth else 5 if self.derived else 2))
        if not values:
            raise Skip
        # Chains: often what was made last.
        if values[-1].depth == self.depth and self.rng.random() < (0.5 if self.derived else 0.35):
            return self.use(values[-1])
        return self.use(self.rng.choices(values, weights)[0])

    def exact(self, more: Callable[[V], bool] = lambda v: True) -> V:
        return self.pick(lambda v: v.exact and more(v))

    def reals(self, more: Callable[[V], bool] = lambda v: True) -> V:
        """A float, of whatever numbers."""
        return self.pick(lambda v: v.is_float and more(v))

    def let(self, text: str, dtype: str, shape: tuple[int, ...], exact: bool, bound: float, origin: str) -> V:
        if math.prod(shape) > ELEMENTS or (exact and dtype != "u8" and bound > LIMIT[dtype]):
            raise Skip
        if dtype == "u8":
            bound = 255
        if not exact and bound > (REAL if dtype not in ("f16", "bf16") else 16) and bound < 1e20:
            if bound > 1e9:
                raise Skip
            scale = 2.0 ** -math.ceil(math.log2(bound / 4))
            text, bound = f"({text}) * {scale!r}", bound * scale
            self.ops += 1
        v = V(self.fresh(), dtype, tuple(shape), exact, float(bound), origin, self.depth)
        self.line(f"{v.name} = {text}")
        self.scopes[-1].append(v)
        self.counts[origin] += 1
        self.ops += 1
        return v

    def view(self, v: V) -> V:
        """A value, or a part or another order of it in the same expression."""
        if not v.rank or v.dtype == "bool" or self.rng.random() > 0.3:
            return v
        a = self.rng.randrange(v.rank)
        n, lead = v.shape[a], ":, " * a
        options = [(f"{v.name}[{lead}::-1]", n), (f"{v.name}[{lead}::2]", (n + 1) // 2)]
        if n > 1:
            options += [(f"{v.name}[{lead}1:]", n - 1), (f"{v.name}[{lead}:-1]", n - 1)]
            options += [(f"xp.concat([{v.name}[{lead}1:], {v.name}[{lead}:1]], axis={a})", n)]
        if n:
            options += [(f"{v.name}.at[{lead}{self.rng.randrange(n)}].set(0)", n)]
            options += [(f"xp.pad({v.name}, {[(1, 0) if k == a else (0, 0) for k in range(v.rank)]})", n + 1)]
        text, m = self.rng.choice(options)
        self.ops += 1
        self.counts["part in place"] += 1
        return V(text, v.dtype, (*v.shape[:a], m, *v.shape[a + 1 :]), v.exact, v.bound, v.origin, v.depth)

    # Values as values of another type.
    def fitted(self, v: V, dtype: str, shape: tuple[int, ...], exact: bool, bound: float) -> str:
        """An expression that gives a value of this type out of another one."""
        text = self.shaped(v, shape)
        if exact:
            if v.bound > bound:
                text = f"xp.remainder({text}, {int(bound) + 1})" if v.dtype in INTS and self.rng.random() < 0.5 else f"xp.clip({text}, {-int(bound) if v.dtype != 'u8' else 0}, {int(bound)})"
            if dtype == "bool" and v.dtype != "bool":
                return f"({text} > 0)"
            if dtype == "u8" and v.dtype not in ("u8", "bool"):
                text = f"xp.abs({text})"
        if v.dtype != dtype:
            text = f"({text}).astype(ts.{dtype})"
        if not exact and v.bound > bound:
            text = self.rng.choice((f"xp.tanh({text})", f"xp.clip({text}, {-bound!r}, {bound!r})")) if v.bound > 1e6 or self.rng.random() < 0.5 else f"({text}) * {bound / v.bound!r}"
        if text == v.name and v.dtype != "bool" and self.rng.random() < 0.3:
            text = f"({text} + {text}) - {text}" if not exact and bound < 1e4 else text
        return text

    def shaped(self, v: V, shape: tuple[int, ...]) -> str:
        if v.shape == shape:
            return v.name
        n = math.prod(shape)
        if v.size == n and self.rng.random() < 0.8:
            return f"xp.reshape({v.name}, {shape})"
        if _stretches(v.shape, shape):
            return f"xp.broadcast_to({v.name}, {shape})"
        if v.size == 0:
            return f"xp.zeros({shape}, dtype=ts.{v.dtype})"
        kind = self.rng.random()
        if v.dtype != "bool" and kind < 0.4:
            return f"xp.broadcast_to(xp.{self.rng.choice(('max', 'min'))}({v.name}), {shape})"
        if n and kind < 0.8:
            return f"xp.reshape(xp.take(xp.reshape({v.name}, (-1,)), xp.arange({n}) % {v.size}, axis=0), {shape})"
        return f"xp.broadcast_to({v.name}{[self.rng.randrange(d) for d in v.shape] if v.shape else ''}, {shape})"

    def scalar(self, v: V, low: int, high: int) -> str:
        """A traced whole number between two, from an exact value."""
        text = self.point(v)
        return f"(xp.remainder(({text}).astype(ts.i64), {high - low + 1}) + {low})"

    def point(self, v: V) -> str:
        """One element or a reduction of an exact value."""
        if not v.shape:
            return v.name
        if v.size == 0:
            return f"xp.sum({v.name})"
        if v.dtype == "bool":
            return f"xp.{self.rng.choice(('any', 'all'))}({v.name})"
        if self.rng.random() < 0.3:
            return f"{v.name}{[self.rng.randrange(d) for d in v.shape]}"
        if self.rng.random() < 0.3:
            return f"xp.argmax({v.name})"
        return f"xp.{self.rng.choice(('max', 'min', 'sum') if v.bound * v.size <= LIMIT[v.dtype] else ('max', 'min'))}({v.name})"

    def predicate(self) -> str:
        v = self.exact()
        text = self.point(v)
        if v.dtype == "bool":
            return f"({text})" if v.size or not v.shape else f"({text} > 0)"
        return f"({text} {self.rng.choice(('>', '<=', '!=', '=='))} {self.rng.randint(-2, 3) if v.dtype != 'u8' else 60})"

    def positions(self, n: int, shape: tuple[int, ...], writes: bool = False) -> str:
        """Positions below ``n``, now and then outside."""
        if self.rng.random() < 0.25 and math.prod(shape) <= 40:
            flat = [self.rng.randrange(-n, n) for _ in range(math.prod(shape))]
            return f"np.array({flat}, np.int32).reshape({shape})"
        v = self.exact(lambda v: v.dtype in INTS)
        text = self.shaped(v, shape)
        if self.rng.random() < 0.8:
            return f"xp.remainder({text}, {n})" if v.dtype != "u8" or n < 256 else f"({text} % 7).astype(ts.i32)"
        self.counts["positions outside"] += 1
        self.not_jax.add("positions outside")
        return text if v.dtype != "u8" else f"({text}).astype(ts.i64)"

    # Elements.
    def unary(self) -> None:
        v = self.view(self.pick(lambda v: v.dtype != "bool"))
        x, b, r = v.name, v.bound, self.rng
        if v.exact:
            c = r.choice((2, 3, 5))
            options = [(f"-{x}", b), (f"xp.abs({x})", b), (f"{x} * {c}", b * c), (f"{x} + {c}", b + c), (f"xp.clip({x}, {0 if v.dtype == 'u8' else -c}, {c})", c),
                    (f"xp.sign({x})", 1), (f"xp.square({x})", b * b), (f"xp.maximum({x}, 0)", b), (f"{c} - {x}", b + c)]  # fmt: skip
            if v.dtype in INTS:
                options += [(f"{x} % {c}", c), (f"{x} // {c}", b), (f"{x} & {c}", c), (f"~{x}", b + 1), (f"{x} ^ {c}", 2 * b + 8), (f"{x} << 1", 2 * b), (f"{x} >> 1", b)]
            if v.dtype in FLOATS:
                options += [(f"xp.floor({x})", b), (f"xp.round({x})", b)]
            text, bound = r.choice(options)
            self.let(text, v.dtype, v.shape, True, bound, "elementwise")
        else:
            self.smooth(v)

    def smooth(self, v: V) -> None:
        x, b, r = v.name, v.bound, self.rng
        options = [(f"xp.tanh({x})", 1), (f"xp.sin({x})", 1), (f"xp.cos({x})", 1), (f"nn.sigmoid({x})", 1), (f"xp.exp(-{x} * {x})", 1),
                (f"xp.exp({x} * {2 / max(b, 1)!r})", 8), (f"xp.log1p({x} * {x})", math.log1p(b * b)), (f"xp.sqrt({x} * {x} + 1.0)", b + 1),
                (f"{x} / (1.0 + {x} * {x})", 1), (f"{x} * {self.number()}", 2 * b), (f"{x} + {self.number()}", b + 2), (f"nn.relu({x})", b),
                (f"xp.abs({x})", b), (f"xp.square({x})", b * b), (f"nn.gelu({x})", b), (f"nn.silu({x})", b), (f"xp.atan({x})", 2),
                (f"xp.erf({x})", 1), (f"{x} ** 3", b**3), (f"xp.clip({x}, -1.0, 1.5)", 1.5), (f"xp.rsqrt({x} * {x} + 0.5)", 2),
                (f"1.0 - {x}", b + 1), (f"nn.softplus({x})", b + 1), (f"ts.stop_gradient({x}) * {x}", b * b)]  # fmt: skip
        text, bound = r.choice(options)
        self.counts["stop_gradient"] += "stop_gradient" in text
        self.let(text, v.dtype, v.shape, False, bound, "elementwise")

    def becomes_real(self) -> None:
        """A smooth function of exact floats."""
        self.smooth(self.pick(lambda v: v.is_float and v.exact and v.bound <= 1000))

    def tame(self) -> None:
        """What has no bound, a derivative, within one."""
        v = self.pick(lambda v: v.bound > 1e20, wild=True)
        text, bound = self.rng.choice(((f"xp.tanh({v.name})", 1), (f"xp.clip({v.name}, -8.0, 8.0)", 8), (f"xp.sin({v.name} * 0.125)", 1)))
        self.let(text, v.dtype, v.shape, False, bound, "elementwise")

    def beside(self, v: V, more: Callable[[V], bool] = lambda v: True) -> V:
        """A value that can be combined with `v`: its shape broadcasts with it."""
        return self.pick(lambda w: w.dtype == v.dtype and w.bound < 1e20 and _broadcast(v.shape, w.shape) is not None and more(w))

    def binary(self) -> None:
        v = self.pick(lambda v: v.dtype != "bool")
        w = self.beside(v)
        shape = _broadcast(v.shape, w.shape)
        a, b = (v, w) if self.rng.random() < 0.5 else (w, v)
        options = [(f"{a.name} + {b.name}", a.bound + b.bound), (f"{a.name} - {b.name}", a.bound + b.bound), (f"{a.name} * {b.name}", a.bound * b.bound),
                (f"xp.maximum({a.name}, {b.name})", max(a.bound, b.bound)), (f"xp.minimum({a.name}, {b.name})", max(a.bound, b.bound))]  # fmt: skip
        if not (a.exact and b.exact):
            options += [(f"{a.name} / (1.0 + xp.abs({b.name}))", a.bound), (f"xp.hypot({a.name}, {b.name} + 2.0)", a.bound + b.bound + 2),
                     (f"xp.logaddexp({a.name}, {b.name})", max(a.bound, b.bound) + 1)]  # fmt: skip
        text, bound = self.rng.choice(options)
        self.let(text, v.dtype, shape or (), a.exact and b.exact, bound, "elementwise")

    def promoted(self) -> None:
        """Two dtypes are promoted to one."""
        v = self.pick(lambda v: v.is_float)
        w = self.pick(lambda w: (w.dtype in INTS and w.bound < 256 or w.dtype == "f32") and _broadcast(v.shape, w.shape) is not None and w.dtype != v.dtype)
        if w.dtype == "f32" and v.dtype in ("f32",):
            raise Skip
        dtype = "f64" if v.dtype == "f64" else "f32" if w.dtype == "f32" else v.dtype
        op = self.rng.choice("+-*")
        bound = v.bound * w.bound if op == "*" else v.bound + w.bound
        self.let(f"{v.name} {op} {w.name}", dtype, _broadcast(v.shape, w.shape) or (), v.exact and w.exact, bound, "promotion")

    def compare(self) -> None:
        v = self.exact(lambda v: v.dtype != "bool")
        op = self.rng.choice(("<", "<=", ">", ">=", "==", "!="))
        if self.rng.random() < 0.5:
            w = self.beside(v, lambda w: w.exact)
            self.let(f"{v.name} {op} {w.name}", "bool", _broadcast(v.shape, w.shape) or (), True, 1, "comparison")
        else:
            self.let(f"{v.name} {op} {self.rng.randint(0, 3)}", "bool", v.shape, True, 1, "comparison")

    def logical(self) -> None:
        v = self.pick(lambda v: v.dtype == "bool")
        w = self.beside(v)
        text = self.rng.choice((f"{v.name} & {w.name}", f"{v.name} | {w.name}", f"xp.logical_xor({v.name}, {w.name})", f"xp.logical_not({v.name})", f"~{v.name}"))
        shape = v.shape if w.name not in text or text.count("(") and "," not in text or text.startswith("~") else _broadcast(v.shape, w.shape)
        self.let(text, "bool", shape or (), True, 1, "logical")

    def where(self) -> None:
        v = self.pick(lambda v: True)
        w = self.beside(v)
        shape = _broadcast(v.shape, w.shape) or ()
        m = self.exact(lambda m: m.size > 0 or m.shape == shape)
        mask = self.shaped(m, shape)
        mask = mask if m.dtype == "bool" else f"({mask} > {1 if m.dtype != 'u8' else 90})"
        self.let(f"xp.where({mask}, {v.name}, {w.name})", v.dtype, shape, v.exact and w.exact, max(v.bound, w.bound), "where")

    def cast(self) -> None:
        v = self.pick(lambda v: True)
        if v.exact:
            fits = [d for d in (*FLOATS, *INTS) if LIMIT[d] >= v.bound and d != v.dtype and (d != "u8" or v.dtype == "bool")]
            fits = [d for d in fits if self.others or d not in ("bf16", "f16")]
        else:
            fits = [d for d in FLOATS if d != v.dtype and (self.others or d in ("f32", "f64"))]
        if not fits:
            raise Skip
        d = self.rng.choice(fits)
        self.let(f"{v.name}.astype(ts.{d})" if self.rng.random() < 0.5 else f"xp.astype({v.name}, ts.{d})", d, v.shape, v.exact, v.bound, "cast")

    # Reductions.
    def axes(self, v: V) -> tuple[str, tuple[int, ...], int]:
        """``axis=``, the axes, and how many elements go into one."""
        if not v.rank or self.rng.random() < 0.3:
            return "", tuple(range(v.rank)), v.size
        if v.rank > 1 and self.rng.random() < 0.2:
            some = tuple(sorted(self.rng.sample(range(v.rank), 2)))
            return f", axis={some}", some, math.prod(v.shape[a] for a in some)
        a = self.rng.randrange(v.rank)
        return f", axis={self.rng.choice((a, a - v.rank))}", (a,), v.shape[a]

    def reduction(self) -> None:
        v = self.view(self.pick(lambda v: True))
        text, axes, n = self.axes(v)
        keep = self.rng.random() < 0.3
        shape = tuple(1 if a in axes else d for a, d in enumerate(v.shape) if a not in axes or keep)
        options = {"sum": v.bound * n}
        wide = {"i32": "i64", "u8": "u64", "bool": "i64"}.get(v.dtype, v.dtype)
        if n:
            options |= {"max": v.bound, "min": v.bound}
            if v.bound > 1 and n * math.log2(v.bound) < 20 and v.dtype != "u8":
                options |= {"prod": v.bound**n}
        if v.dtype == "bool":
            options = {"any": 1, "all": 1, "sum": n}
        elif not v.exact and n:
            options |= {"mean": v.bound, "var": v.bound**2, "logsumexp": v.bound + math.log(n), "prod": max(v.bound, 1) ** n} if n < 12 else {"mean": v.bound}
            if not self.derived and n > 1:
                options |= {"std": v.bound}
        elif v.exact:
            options |= {"count_nonzero": n}
        how = self.rng.choice(list(options))
        if how == "sum" and v.dtype == "u8" or how == "count_nonzero" and text.startswith(", axis=("):
            raise Skip
        dtype = "bool" if how in ("any", "all") else "i64" if how == "count_nonzero" else wide if how in ("sum", "prod") else v.dtype
        if keep:
            text += ", keepdims=True"
        self.counts["sums over several axes"] += len(axes) > 1 and not v.exact
        self.let(f"xp.{how}({v.name}{text})", dtype, shape, v.exact, options[how], "reduction")

    def argreduce(self) -> None:
        v = self.exact(lambda v: v.size > 0 and v.rank > 0 and v.dtype != "bool")
        how = self.rng.choice(("argmax", "argmin"))
        if self.rng.random() < 0.3:
            self.let(f"xp.{how}({v.name})", "i64", (), True, v.size, "argmax")
            return
        a = self.rng.randrange(v.rank)
        keep = self.rng.random() < 0.3
        shape = v.shape[:a] + ((1,) if keep else ()) + v.shape[a + 1 :]
        self.let(f"xp.{how}({v.name}, axis={a}{', keepdims=True' if keep else ''})", "i64", shape, True, v.shape[a], "argmax")

    def softmax(self) -> None:
        v = self.view(self.reals(lambda v: v.rank > 0 and v.size > 0 and v.bound <= 1000))
        a = self.rng.randrange(-v.rank, v.rank)
        n = v.shape[a]
        options = [(f"nn.softmax({v.name}, axis={a})", 1, "softmax"), (f"nn.log_softmax({v.name}, axis={a})", 2 * v.bound + math.log(n), "softmax"),
                (f"{v.name} - xp.mean({v.name}, axis={a}, keepdims=True)", 2 * v.bound, "norm"),
                (f"{v.name} / xp.sqrt(xp.mean({v.name} * {v.name}, axis={a}, keepdims=True) + 0.1)", n**0.5 + 1, "norm")]  # fmt: skip
        if n > 1:
            options += [(f"nn.layernorm({v.name}, eps=0.1)", v.shape[-1] ** 0.5 + 1, "norm"), (f"nn.rmsnorm({v.name}, eps=0.1)", v.shape[-1] ** 0.5 + 1, "norm")]
        text, bound, origin = self.rng.choice(options)
        self.let(text, v.dtype, v.shape, False, bound, origin)

    def cumulative(self) -> None:
        v = self.view(self.pick(lambda v: v.rank > 0 and v.dtype not in ("bool", "u8")))
        a = self.rng.randrange(v.rank)
        n = max(v.shape[a], 1)
        how, bound = ("prod", max(v.bound, 1) ** n) if v.bound > 1 and n * math.log2(v.bound) < 20 and self.rng.random() < 0.3 else ("sum", v.bound * n)
        dtype = "i64" if v.dtype == "i32" else v.dtype
        text = f"xp.cumulative_{how}({v.name}, axis={a})"
        if self.rng.random() < 0.25:
            text = f"xp.flip(xp.cumulative_{how}(xp.flip({v.name}, axis={a}), axis={a}), axis={a})"
        self.let(text, dtype, v.shape, v.exact, bound, f"cumulative_{how}")

    def sort(self) -> None:
        v = self.pick(lambda v: v.rank > 0 and v.dtype != "bool")
        a = self.rng.randrange(v.rank)
        down = ", descending=True" if self.rng.random() < 0.3 else ""
        if v.exact and self.rng.random() < 0.4:
            self.let(f"xp.argsort({v.name}, axis={a}{down})", "i64", v.shape, True, v.shape[a], "argsort")
        elif v.exact and v.shape[a] > 1 and self.rng.random() < 0.4:
            k = self.rng.randint(1, v.shape[a])
            self.let(f"xp.top_k({v.name}, {k}, axis={a})[{0}]", v.dtype, v.shape[:a] + (k,) + v.shape[a + 1 :], True, v.bound, "top_k")
        else:
            self.let(f"xp.sort({v.name}, axis={a}{down})", v.dtype, v.shape, v.exact, v.bound, "sort")

    # Shapes.
    def slices(self) -> None:
        v = self.pick(lambda v: v.rank > 0)
        parts, shape = [], []
        for d in v.shape:
            kind = self.rng.random()
            if kind < 0.3:
                parts.append(":")
                shape.append(d)
            elif kind < 0.45 and d:
                parts.append(str(self.rng.randrange(-d, d)))
            elif kind < 0.55:
                parts.append("::-1")
                shape.append(d)
            elif kind < 0.6:
                parts.append("None, :")
                shape += [1, d]
            else:
                a, b = (self.rng.choice((None, self.rng.randint(0, d), -self.rng.randint(0, d))) for _ in range(2))
                step = self.rng.choice((1, 1, 1, 2, 3, -1, -2))
                if step < 0 and self.rng.random() < 0.7:
                    a, b = None, None
                s = slice(a, b, step)
                parts.append(f"{'' if a is None else a}:{'' if b is None else b}:{step}")
                shape.append(len(range(*s.indices(d))))
        if len(shape) > 4:
            raise Skip
        self.let(f"{v.name}[{', '.join(parts)}]", v.dtype, tuple(shape), v.exact, v.bound, "slice")

    def reshape(self) -> None:
        v = self.pick(lambda v: v.size > 0)
        n, shape = v.size, []
        while n > 1 and len(shape) < 3:
            d = self.rng.choice([k for k in range(1, n + 1) if n % k == 0])
            shape.append(d)
            n //= d
        shape.append(n)
        self.rng.shuffle(shape)
        self.let(f"xp.reshape({v.name}, {tuple(shape)})", v.dtype, tuple(shape), v.exact, v.bound, "reshape")

    def transpose(self) -> None:
        v = self.pick(lambda v: v.rank > 1)
        order = list(range(v.rank))
        self.rng.shuffle(order)
        self.let(f"xp.permute_dims({v.name}, {tuple(order)})", v.dtype, tuple(v.shape[a] for a in order), v.exact, v.bound, "transpose")

    def moved(self) -> None:
        v = self.pick(lambda v: v.rank > 0)
        a = self.rng.randrange(v.rank)
        kind = self.rng.choice(("flip", "roll", "pad", "tile", "repeat", "expand", "broadcast", "triangle", "neighbours", "columns"))
        shape = list(v.shape)
        if kind == "flip":
            text = f"xp.flip({v.name}, axis={a})"
        elif kind == "roll":
            text = f"xp.roll({v.name}, {self.rng.randint(-3, 3)}, axis={a})"
        elif kind == "neighbours":
            if v.dtype == "bool":
                raise Skip
            some = [tuple(self.rng.randint(-1, 1) for _ in v.shape) for _ in range(self.rng.randint(2, 4))]
            text = v.name
            for by in some:
                near = f"xp.roll({v.name}, {by}, axis={tuple(range(v.rank))})"
                text = f"xp.{self.rng.choice(('maximum', 'minimum'))}({text}, {near})"
        elif kind == "columns":
            # Components taken apart, changed and put together again, twice.
            if v.dtype == "bool" or not 1 < shape[a] <= 4:
                raise Skip
            parts = [f"{{0}}[{':, ' * a}{k}]" for k in range(shape[a])]
            inner = v.name
            for _ in range(2):
                self.rng.shuffle(parts)
                one = f"xp.{self.rng.choice(('maximum', 'minimum'))}({parts[0]}, {parts[-1]})"
                made = self.line_of(f"xp.stack([{', '.join([*parts[:-1], one])}], axis={a})".format(inner))
                inner = f"xp.maximum({made}, {v.name})"
            text = inner
        elif kind == "pad":
            widths = [(self.rng.randint(0, 2), self.rng.randint(0, 2)) if k == a else (0, self.rng.randint(0, 1)) for k in range(v.rank)]
            text, shape = f"xp.pad({v.name}, {widths})", [d + p + q for d, (p, q) in zip(shape, widths)]
        elif kind == "tile":
            text = f"xp.tile({v.name}, {tuple(2 if k == a else 1 for k in range(v.rank))})"
            shape[a] *= 2
        elif kind == "repeat":
            text = f"xp.repeat({v.name}, 2, axis={a})"
            shape[a] *= 2
        elif kind == "expand":
            text = f"xp.expand_dims({v.name}, axis={a})"
            shape.insert(a, 1)
        elif kind == "broadcast":
            shape.insert(0, self.rng.choice(self.dims))
            text = f"xp.broadcast_to({v.name}, {tuple(shape)})"
        else:
            if v.rank < 2:
                raise Skip
            text = f"xp.{self.rng.choice(('tril', 'triu'))}({v.name}, k={self.rng.randint(-1, 1)})"
        if len(shape) > 4:
            raise Skip
        self.let(text, v.dtype, tuple(shape), v.exact, v.bound, kind)

    def joined(self) -> None:
        v = self.pick(lambda v: True)
        w = self.pick(lambda w: w.dtype == v.dtype and w.shape == v.shape)
        bound, exact = max(v.bound, w.bound), v.exact and w.exact
        if v.rank and self.rng.random() < 0.6:
            a = self.rng.randrange(v.rank)
            w = self.pick(lambda w: w.dtype == v.dtype and w.rank == v.rank and all(k == a or d == e for k, (d, e) in enumerate(zip(v.shape, w.shape))))
            shape = tuple(d + w.shape[a] if k == a else d for k, d in enumerate(v.shape))
            self.let(f"xp.concat([{v.name}, {w.name}], axis={a})", v.dtype, shape, v.exact and w.exact, max(v.bound, w.bound), "concat")
        elif v.rank < 3:
            a = self.rng.randint(0, v.rank)
            self.let(f"xp.stack([{v.name}, {w.name}], axis={a})", v.dtype, v.shape[:a] + (2,) + v.shape[a:], exact, bound, "stack")
        else:
            raise Skip

    # Products.
    def matmul(self) -> None:
        v = self.view(self.pick(lambda v: v.rank in (1, 2, 3) and v.is_float))
        k = v.shape[-1]
        kind = self.rng.random()
        if kind < 0.3:
            w = self.pick(lambda w: w.dtype == v.dtype and w.rank in (1, 2) and w.shape[max(w.rank - 2, 0)] == k)
            shape = v.shape[:-1] + w.shape[1:]
            text = f"{v.name} @ {w.name}"
        elif kind < 0.5:
            w = self.pick(lambda w: w.dtype == v.dtype and w.rank == 2 and w.shape[1] == k)
            shape = v.shape[:-1] + w.shape[:1]
            text = f"{v.name} @ {w.name}.T"
        elif kind < 0.65:
            w = self.pick(lambda w: w.dtype == v.dtype and w.shape == v.shape)
            shape, text = v.shape[:-1], f"xp.vecdot({v.name}, {w.name})"
        elif kind < 0.8:
            w = self.pick(lambda w: w.dtype == v.dtype and w.rank in (1, 2) and w.shape[-1] == k)
            a, b = "xyz"[: v.rank - 1] + "k", "w" * (w.rank - 1) + "k"
            out = list(a[:-1] + b[:-1])
            self.rng.shuffle(out)
            sizes = dict(zip(a + b, v.shape + w.shape))
            shape, text = tuple(sizes[c] for c in out), f'xp.einsum("{a},{b}->{"".join(out)}", {v.name}, {w.name})'
        elif kind < 0.9:
            v = self.pick(lambda v: v.rank == 1 and v.is_float)
            w = self.pick(lambda w: w.rank == 1 and w.dtype == v.dtype)
            shape, text, k = v.shape + w.shape, f"xp.outer({v.name}, {w.name})", 1
        else:
            v = self.pick(lambda v: v.rank == 2 and v.is_float)
            w = v
            shape, text, k = (v.shape[1], v.shape[1]), f"{v.name}.T @ {v.name}", v.shape[0]
        self.let(text, v.dtype, shape, v.exact and w.exact, v.bound * w.bound * max(k, 1), "matmul")

    # Positions.
    def gather(self) -> None:
        v = self.pick(lambda v: v.rank > 0 and v.size > 0)
        a = self.rng.randrange(v.rank)
        n = v.shape[a]
        kind = self.rng.random()
        some = self.shape(self.rng.choice((0, 1, 1, 2)))
        if self.derived and not math.prod(some) and self.flag("scatter of nothing"):
            raise Skip
        if kind < 0.3:
            self.let(f"xp.take({v.name}, {self.positions(n, some)}, axis={a}, mode=\"clip\")", v.dtype, v.shape[:a] + some + v.shape[a + 1 :], v.exact, v.bound, "gather")
        elif kind < 0.6:
            shape = v.shape[:a] + (self.rng.choice((1, 2, 3, 5)),) + v.shape[a + 1 :]
            before, at = self.counts["positions outside"], self.positions(n, shape)
            # What is filled in outside, NaN or the least integer, has no bound.
            more = ', mode="clip"' if self.counts["positions outside"] > before else ""
            self.let(f"xp.take_along_axis({v.name}, {at}, axis={a}{more})", v.dtype, shape, v.exact, v.bound, "take_along_axis")
        elif kind < 0.8 or v.rank < 2:
            text = "[" + ", ".join([":"] * a + [self.positions(n, some)]) + "]"
            self.let(f"{v.name}{text}", v.dtype, v.shape[:a] + some + v.shape[a + 1 :], v.exact, v.bound, "gather")
        else:
            text = f"{v.name}[{self.positions(v.shape[0], some)}, {self.positions(v.shape[1], some)}]"
            self.let(text, v.dtype, some + v.shape[2:], v.exact, v.bound, "gather")

    def scatter(self) -> None:
        v = self.pick(lambda v: v.rank > 0 and v.size > 0 and v.dtype not in ("bool", "u8"))
        a = 0 if self.rng.random() < 0.7 else self.rng.randrange(v.rank)
        n = v.shape[a]
        how = self.rng.choice(("set", "add", "add", "add", "max", "min", "multiply"))
        kind = self.rng.random()
        if kind < 0.3:
            # Places that are known.
            low = self.rng.randrange(n)
            high = self.rng.randint(low + self.flag("scatter of nothing"), n)
            index, places = (f"{low}:{high}", (high - low,)) if self.rng.random() < 0.5 else (str(self.rng.randrange(-n, n)), ())
        else:
            places = self.shape(self.rng.choice((0, 1, 1, 1)))
            index = self.positions(n, places)
        shape = v.shape[:a] + places + v.shape[a + 1 :]
        times = max(math.prod(places), 1)
        if math.prod(shape) > 600 or not math.prod(shape) and self.flag("scatter of nothing"):
            raise Skip
        if how == "multiply":
            if self.derived:
                raise Skip  # no derivative where a place is named twice
            u = self.pick(lambda u: u.dtype == v.dtype and u.bound <= 2)
            bound = v.bound * max(u.bound, 1) ** min(times, 20) if u.exact or times < 6 else 1e9
        else:
            u = self.pick(lambda u: u.dtype == v.dtype)
            bound = v.bound + u.bound * times if how == "add" else max(v.bound, u.bound)
        value = self.shaped(u, shape)
        if how == "set" and kind >= 0.3 and places:
            # Which of several values stays is not said under JAX.
            self.not_jax.add("a place set twice")
        if how in ("max", "min") and self.derived:
            raise Skip
        self.let(f"{v.name}.at[{', '.join([':'] * a + [index])}].{how}({value})", v.dtype, v.shape, v.exact and u.exact, bound, f"scatter {how}")

    def dynamic(self) -> None:
        v = self.pick(lambda v: v.rank > 0 and v.size > 0)
        starts = []
        for d in v.shape:
            if self.rng.random() < 0.5:
                starts.append(str(self.rng.randint(0, d - 1)))
            else:
                starts.append(self.scalar(self.exact(lambda w: w.dtype in INTS), -1, d))
        if any(not s.isdigit() for s in starts):
            self.not_jax.add("a part before the array begins")  # counted from the end there
        extent = tuple(self.rng.randint(1, d) for d in v.shape)
        if self.rng.random() < 0.5:
            self.let(f"ts.dynamic_slice({v.name}, [{', '.join(starts)}], {extent})", v.dtype, extent, v.exact, v.bound, "dynamic_slice")
        else:
            u = self.pick(lambda u: u.dtype == v.dtype)
            part = self.shaped(u, extent)
            self.let(f"ts.dynamic_update_slice({v.name}, {part}, [{', '.join(starts)}])", v.dtype, v.shape, v.exact and u.exact, max(v.bound, u.bound), "dynamic_update_slice")

    def constant(self) -> None:
        n = self.rng.choice(self.dims)
        kind = self.rng.choice(("arange", "full", "eye", "one_hot", "array", "linspace"))
        d = self.rng.choice((self.real, "f32", "i32"))
        if kind == "arange":
            self.let(f"xp.arange({n}, dtype=ts.{d})", d, (n,), True, max(n, 1), "constant")
        elif kind == "full":
            shape = self.shape(self.rng.choice((0, 1, 2)))
            c = self.rng.randint(-3, 3)
            self.let(f"xp.full({shape}, {c}, dtype=ts.{d})", d, shape, True, abs(c), "constant")
        elif kind == "eye":
            m = min(n, 16)
            self.let(f"xp.eye({m}, dtype=ts.{d})", d, (m, m), True, 1, "constant")
        elif kind == "linspace" and n > 1 and self.real in ("f32", "f64"):
            self.let(f"xp.linspace(-1.0, 1.0, {n}, dtype=ts.{self.real})", self.real, (n,), False, 1, "constant")
        elif kind == "one_hot":
            v = self.exact(lambda v: v.dtype in ("i32", "i64") and v.size * max(n, 1) <= 2000)
            self.let(f"({v.name}[..., None] == xp.arange({n})).astype(ts.{d})", d, (*v.shape, n), True, 1, "one_hot")
        else:
            m = min(n, 8)
            self.let(f"xp.asarray(np.array({[self.rng.randint(-5, 5) for _ in range(m)]}), dtype=ts.{d})", d, (m,), True, 5, "constant")

    @property
    def table(self) -> list[tuple[float, Callable[[], None]]]:
        return [
            (5, self.unary), (2, self.becomes_real), (1.5, self.tame), (6, self.binary), (1, self.promoted), (1.5, self.compare), (0.5, self.logical),
            (2, self.where), (1.5, self.cast), (5, self.reduction), (1.5, self.argreduce), (3, self.softmax), (5 if self.derived else 2.5, self.cumulative), (1.5, self.sort),
            (3, self.slices), (1.5, self.reshape), (1.5, self.transpose), (2.5, self.moved), (2, self.joined), (4, self.matmul), (3, self.gather),
            (2.5, self.scatter), (1.5, self.dynamic), (1, self.constant),
        ]  # fmt: skip


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that two shapes broadcast to, or None."""
    n = max(len(a), len(b))
    out = []
    for d, e in zip((1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b):
        if d != e and 1 not in (d, e):
            return None
        out.append(e if d == 1 else d)
    return tuple(out)


def _stretches(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return len(a) <= len(b) and _broadcast(a, b) == b

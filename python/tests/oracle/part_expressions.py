"""Random tiles in parts: slices and elements, concatenation, sorting, combinations by functions of the program's."""

from __future__ import annotations

from typing import Any

from .asm_texts import AsmExpressions
from .expressions import INTS, SCALARS, STORAGE, Scope, W
from .values import carrier

#: Extents of a tile of two axes, by how many elements it has.
SHAPES = {2: [(1, 2), (2, 1)], 3: [(1, 3), (3, 1)], 4: [(2, 2), (4, 1)], 5: [(5, 1), (1, 5)], 6: [(2, 3), (3, 2)], 8: [(2, 4), (4, 2), (8, 1)]}


class PartExpressions(AsmExpressions):
    """Draws expressions that take tiles apart and put them together."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.combiners: list[dict[str, Any]] = []

    def combiner(self, number: int) -> list[str]:
        """A function of two elements, or of two tuples of them: not associative, which decides the order in `strict`."""
        dts = [self.pick(SCALARS) for _ in range(self.pick([1, 1, 1, 2, 2, 3]))]
        left, right = [f"a{k}" for k in range(len(dts))], [f"b{k}" for k in range(len(dts))]
        s = Scope({}, "", dict(zip(left + right, dts * 2)))
        self.plain += 1
        self.in_helper = True
        body = []

        def back() -> str:
            return f"return {', '.join(self.expr(s, dt, self.rng.randint(1, 2)) for dt in dts)}"

        form = self.pick(["plain", "plain", "plain", "early", "side"])
        self.count(f"combiner: {form}, of {len(dts)}")
        if form == "early":
            body += [f"if {self.cond(s, 1)}:", *("    " + line for line in [back()])]
        body.append(f"return {', '.join(self.pick([left, right]))}" if form == "side" else back())
        self.plain -= 1
        self.in_helper = False
        name = f"c{number}"
        self.combiners.append({"name": name, "dts": dts})
        return ["@ts.func", f"def {name}({', '.join(left + right)}):", *("    " + line for line in body), ""]

    def starts(self, s: Scope) -> list[str]:
        """Numbers of run time that a slice may start at."""
        return [v for v, d in s.names.items() if d in ("i32", "i64") and (v not in self.looped or self.has("loop_var_slice"))]

    # Elements.
    def element_of(self, s: Scope, dt: str) -> str | None:
        """An element of a tile that has a name."""
        names = [(t, n) for t, (d, n) in s.tiles.items() if d == dt]
        if not names or not self.has("tile_parts"):
            return None
        t, n = self.pick(names)
        ints = [v for v, d in s.names.items() if d in ("i32", "i64")]
        if ints and self.chance(0.5):
            self.count("element of a tile at run time")
            v = self.pick(ints)
            return f"{t}[{self.pick([v, f'{v} % {n}', f'{v} % {n + 1} - 1'])}]"
        self.count("element of a tile")
        return f"{t}[{self.rng.randint(-n, n - 1)}]"

    # Tiles of one axis.
    PARTS = [
        "slice", "slice", "steps", "start", "start", "flip", "roll", "concat", "concat", "split", "stack", "gather", "gather",
        "take", "sort", "sort", "places", "topk", "scan", "scan", "scan_by", "scan_by", "scan_by", "histogram", "histogram", "two", "two",
        "two", "two", "two", "two", "narrow", "narrow", "narrow", "blocks", "blocks", "blocks", "blocks",
    ]  # fmt: skip

    def part(self, s: Scope, dt: str, n: int, depth: int) -> str:
        """A tile that is a part of others, or made of parts."""
        kinds = [k for k in self.PARTS if "part_" + k not in self.without]
        if not self.has("sort"):
            kinds = [k for k in kinds if k not in ("sort", "places", "topk", "histogram")]
        if not self.has("own_combiners"):
            kinds = [k for k in kinds if k != "scan_by"]
        if not self.has("block_formats") or dt != "f32":
            kinds = [k for k in kinds if k != "blocks"]
        kind = self.pick(kinds)
        out = getattr(self, "p_" + kind)(s, dt, n, depth)
        return f"ts.tile.cast({out}, ts.{dt})" if kind in ("places", "histogram") and dt != "i32" else out

    def larger(self, n: int) -> int:
        return self.pick([m for m in (2, 3, 4, 5, 6, 8) if m >= n])

    def p_slice(self, s: Scope, dt: str, n: int, depth: int) -> str:
        m = self.larger(n)
        a = self.rng.randint(0, m - n)
        lower = self.pick([str(a), str(a - m)]) if a else self.pick(["", "0", str(-m)])
        upper = self.pick([str(a + n), str(a + n - m)]) if a + n < m else self.pick(["", str(m)])
        self.count("slice of a tile")
        return f"{self.tile(s, dt, m, depth)}[{lower}:{upper}]"

    def p_steps(self, s: Scope, dt: str, n: int, depth: int) -> str:
        m = self.larger(n)
        steps = [c for c in (1, 2, 3) if (n - 1) * c < m]
        c = self.pick(steps)
        a = self.rng.randint(0, m - 1 - (n - 1) * c)
        last = a + (n - 1) * c
        self.count("slice of a tile with a step")
        t = self.tile(s, dt, m, depth)
        if self.chance(0.5):
            return f"{t}[{a}:{self.rng.randint(last + 1, min(m, last + c))}:{c}]"
        self.count("slice of a tile that runs backwards")
        return f"{t}[{last}:{'' if a - c < 0 and self.chance(0.5) else a - 1 if a else ''}:{-c}]"

    def p_start(self, s: Scope, dt: str, n: int, depth: int) -> str:
        ints = self.starts(s)
        near = [v for v in ints if v in s.fixed]
        if not ints:
            return self.p_slice(s, dt, n, depth)
        v = self.pick(near) if near and self.chance(0.7) else self.pick(ints)
        m = self.larger(n)
        self.count("slice of a tile from a position of run time")
        if self.chance(0.2) and (n - 1) * 2 < m:
            return f"{self.tile(s, dt, m, depth)}[{v}:{v} + {2 * n - self.rng.randint(0, 1)}:2]"
        back = self.rng.randint(0, 1)
        return f"{self.tile(s, dt, m, depth)}[{v}{f' - {back}' if back else ''}:{v} + {n - back}]"

    def p_flip(self, s: Scope, dt: str, n: int, depth: int) -> str:
        self.count("flip")
        t = self.tile(s, dt, n, depth)
        return self.pick([f"ts.tile.flip({t})", f"ts.tile.flip({t}, axis=0)", f"{t}[::-1]"])

    def p_roll(self, s: Scope, dt: str, n: int, depth: int) -> str:
        self.count("roll")
        shift = str(self.rng.randint(-n - 1, n + 1)) if self.chance(0.5) else self.expr(s, self.pick(["i32", "i64"]), 1)
        return f"ts.tile.roll({self.tile(s, dt, n, depth)}, {shift})"

    def p_concat(self, s: Scope, dt: str, n: int, depth: int) -> str:
        cuts = sorted(self.rng.sample(range(1, n), min(n - 1, self.pick([1, 1, 2]))))
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, n])]
        self.count("concat")
        return f"ts.tile.concat(({', '.join(self.tile(s, dt, m, depth) for m in sizes)},))"

    def p_split(self, s: Scope, dt: str, n: int, depth: int) -> str:
        equal = [k for k in (2, 3, 4) if k * n <= W]
        self.count("split")
        if equal and self.chance(0.6):
            k = self.pick(equal)
            return f"ts.tile.split({self.tile(s, dt, k * n, depth)}, {k})[{self.rng.randint(0, k - 1)}]"
        a = self.rng.randint(0, W - n)
        return f"ts.tile.split({self.tile(s, dt, W, depth)}, ({a}, {a + n}))[1]"

    def p_stack(self, s: Scope, dt: str, n: int, depth: int) -> str:
        self.count("stack")
        if n % 2 == 0 and self.chance(0.6):
            pair = f"({self.tile(s, dt, n // 2, depth)}, {self.tile(s, dt, n // 2, depth)})"
            return f"ts.tile.reshape(ts.tile.stack({pair}, axis={self.pick([0, 1, -1])}), {self.pick([f'({n},)', '(-1,)'])})"
        pair = f"({self.tile(s, dt, n, depth)}, {self.tile(s, dt, n, depth)})"
        k = self.pick([0, 1, -1])
        return self.pick([f"ts.tile.stack({pair})[{k}]", f"ts.tile.stack({pair}, axis=1)[:, {k}]"])

    def p_gather(self, s: Scope, dt: str, n: int, depth: int) -> str:
        self.count("gather from a tile")
        m = self.larger(2)
        at = self.positions(s, n, False) if self.chance(0.5) else self.tile(s, self.pick(INTS), n, 0)
        return f"{self.tile(s, dt, m, depth)}[{at}]"

    def p_take(self, s: Scope, dt: str, n: int, depth: int) -> str:
        self.count("take_along_axis")
        at = self.positions(s, n, False) if self.chance(0.5) else f"{self.tile(s, self.pick(['i32', 'i64']), n, 0)} % {W}"
        return f"ts.tile.take_along_axis({self.tile(s, dt, self.larger(2), depth)}, {at}, 0)"

    def p_sort(self, s: Scope, dt: str, n: int, depth: int) -> str:
        self.count("sort")
        return f"ts.tile.sort({self.tile(s, dt, n, depth)}{self.pick(['', ', descending=True', ', axis=0'])})"

    def p_places(self, s: Scope, dt: str, n: int, depth: int) -> str:
        self.count("argsort")
        return f"ts.tile.argsort({self.tile(s, self.pick(SCALARS), n, depth)}{self.pick(['', ', descending=True'])})"

    def p_topk(self, s: Scope, dt: str, n: int, depth: int) -> str:
        self.count("topk")
        if dt == "i32" and self.chance(0.4):
            return f"ts.tile.topk({self.tile(s, self.pick(SCALARS), self.larger(n), depth)}, {n})[1]"
        return f"ts.tile.topk({self.tile(s, dt, self.larger(n), depth)}, {n})[0]"

    def scan_options(self) -> str:
        return self.pick(["", "", ", reverse=True", ", exclusive=True", ", exclusive=True, reverse=True"])

    def p_scan(self, s: Scope, dt: str, n: int, depth: int) -> str:
        self.count("scan by name")
        t = self.tile(s, dt, n, depth)
        if self.chance(0.5):
            return f"ts.tile.{self.pick(['cumsum', 'cumprod'])}({t}{self.scan_options()})"
        ops = ["sum", "max", "min", "prod"] + (["and", "or", "xor"] if dt in INTS else [])
        return f'ts.tile.scan({t}, "{self.pick(ops)}"{self.scan_options()})'

    def combined(self, s: Scope, dt: str, draw: Any) -> tuple[str, str, str] | None:
        """Tiles to combine, the function, and which of its results is of the type."""
        fit = [c for c in self.combiners if dt in c["dts"]]
        if not fit:
            return None
        c = self.pick(fit)
        tiles = [draw(d) for d in c["dts"]]
        which = self.pick([k for k, d in enumerate(c["dts"]) if d == dt])
        if len(tiles) == 1:
            return tiles[0], c["name"], ""
        return f"({', '.join(tiles)})", c["name"], f"[{which}]"

    def p_scan_by(self, s: Scope, dt: str, n: int, depth: int) -> str:
        found = self.combined(s, dt, lambda d: self.tile(s, d, n, depth - 1))
        if found is None:
            return self.p_scan(s, dt, n, depth)
        self.count("scan by a function")
        tiles, f, which = found
        return f"ts.tile.{self.pick(['scan', 'associative_scan'])}({tiles}, {f}{self.pick(['', ', reverse=True'])}){which}"

    def p_histogram(self, s: Scope, dt: str, n: int, depth: int) -> str:
        self.count("histogram")
        m, d = self.larger(2), self.pick(INTS)
        mask = ""
        if self.chance(0.4):
            self.count("histogram with a mask")
            mask = f", mask={self.tile(s, d, m, 0)} {self.pick(['<', '>=', '!='])} {self.tile(s, d, m, 0)}"
        return f"ts.tile.histogram({self.tile(s, d, m, depth)}, {n}{mask})"

    FORMATS = ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "nvfp4"]

    def p_blocks(self, s: Scope, dt: str, n: int, depth: int) -> str:
        """The elements or the scales of a tile in a block format, or what is left of its values."""
        fmt = self.pick(self.FORMATS)
        scale = f", tensor_scale={self.pick(['1.0', '0.25', '0.0'])}" if fmt == "nvfp4" else ""
        form = self.pick(["elements", "elements", "scales", "values"])
        self.count(f"block format: {form}")
        if form == "values":
            names = [t for t, (d, m) in s.tiles.items() if m == n and d not in ("u64", "bool")]
            if names:
                both = [f'ts.tile.quantize({self.pick(names)}, "{fmt}"{scale})[{k}]' for k in (0, 1)]
                return f"ts.tile.dequantize({both[0]}, {both[1]}{scale})"
        t = f'ts.tile.quantize({self.tile(s, self.pick(["f32", "f32", "i32"]), n, depth)}, "{fmt}"{scale})'
        if form == "scales":
            return f"ts.tile.cast({t}[1][0], ts.f32) * {self.tile(s, dt, n, 0)}"
        return f"ts.tile.cast({t}[0], ts.f32)"

    def p_two(self, s: Scope, dt: str, n: int, depth: int) -> str:
        """Back from a tile of two axes."""
        depth = max(depth, 1)
        if self.chance(0.3) and n in SHAPES:
            self.count("reshape")
            return f"ts.tile.reshape({self.tile2(s, dt, self.pick(SHAPES[n]), depth)}, {self.pick([f'({n},)', '(-1,)', '-1'])})"
        m = self.pick([1, 2, 3])
        axis = self.pick([0, 1])
        t = self.tile2(s, dt, (m, n) if axis == 0 else (n, m), depth)
        roll = self.rng.random()
        if roll < 0.3:
            self.count("row of a tile")
            ints = [v for v, d in s.names.items() if d in ("i32", "i64")]
            at = self.pick(ints) if ints and self.chance(0.4) else self.rng.randint(-m, m - 1)
            return f"{t}[{at}]" if axis == 0 else self.pick([f"{t}[:, {at}]", f"{t}[..., {at}]"])
        if roll < 0.6:
            found = self.combined(s, dt, lambda d: self.tile2(s, d, (m, n) if axis == 0 else (n, m), depth - 1))
            if found is not None and self.has("own_combiners"):
                self.count("reduce by a function along an axis")
                return f"ts.tile.reduce({found[0]}, {found[1]}, axis={self.pick([axis, axis - 2])}){found[2]}"
        if dt == "i32" and self.chance(0.2):
            self.count("max with its place")
            other = self.tile2(s, self.pick(SCALARS), (m, n) if axis == 0 else (n, m), depth - 1)
            return f"ts.tile.{self.pick(['max', 'min'])}({other}, axis={axis}, return_indices=True)[1]"
        self.count("reduce along an axis")
        return f"ts.tile.{self.pick(['sum', 'max', 'min', 'prod'])}({t}, axis={self.pick([axis, axis - 2, f'({axis},)'])})"

    def p_narrow(self, s: Scope, dt: str, n: int, depth: int) -> str:
        """Parts of a tile of a storage type, which stay of that type."""
        names = [a for a in self.arrays_of(s, lambda d: d in STORAGE and carrier(d) == dt) if a not in self.shared]
        if not names:
            return self.p_slice(s, dt, n, depth)
        name = self.pick(names)
        self.count("part of a narrow tile")

        def whole(m: int) -> str:
            return f"{name}[{self.pre(s, name)}{self.span(m)}]"

        kind = self.pick(["slice", "flip", "concat", "gather", "roll"] + (["sort", "topk"] if self.has("sort") else []))
        if kind == "slice":
            m = self.larger(n)
            a = self.rng.randint(0, m - n)
            out = f"{whole(m)}[{a}:{a + n}]"
        elif kind == "concat" and n > 1:
            k = self.rng.randint(1, n - 1)
            out = f"ts.tile.concat(({whole(k)}, {whole(n - k)}))"
        elif kind == "gather":
            out = f"{whole(self.larger(2))}[{self.positions(s, n, False)}]"
        elif kind == "roll":
            out = f"ts.tile.roll({whole(n)}, {self.expr(s, 'i32', 1)})"
        elif kind == "sort":
            out = f"ts.tile.sort({whole(n)}{self.pick(['', ', descending=True'])})"
        elif kind == "topk":
            out = f"ts.tile.topk({whole(self.larger(n))}, {n})[0]"
        else:
            out = f"ts.tile.flip({whole(n)})"
        return f"ts.tile.cast({out}, ts.{dt})"

    # Tiles of two axes.
    def tile2(self, s: Scope, dt: str, shape: tuple[int, int], depth: int) -> str:
        p, q = shape
        kinds = ["stack", "outer", "outer", "reshape", "transpose"]
        if depth > 0:
            kinds += ["binary", "flip", "roll", "slice", "concat", "sort", "scan", "keep", "gather", "take", "points", "scan_by", "cut"]
        kind = self.pick([k for k in kinds if "two_" + k not in self.without])
        t = lambda a, b, d=dt: self.tile2(s, d, (a, b), depth - 1)  # noqa: E731
        self.count(f"tile of two axes: {kind}")
        if kind == "reshape" and p * q in (2, 3, 4, 5, 6, 8):
            return f"ts.tile.reshape({self.tile(s, dt, p * q, depth - 1)}, {self.pick([f'({p}, {q})', f'({p}, -1)', f'(-1, {q})'])})"
        if kind == "transpose":
            return self.pick(["ts.tile.transpose({}, (1, 0))", "ts.tile.transpose({})", "ts.tile.transpose({}, (-1, 0))"]).format(t(q, p))
        if kind == "stack":
            axis = self.pick([0, 1])
            items = [self.tile(s, dt, q if axis == 0 else p, depth - 1) for _ in range(p if axis == 0 else q)]
            return f"ts.tile.stack(({', '.join(items)},), axis={axis})"
        if kind == "binary":
            return f"({t(p, q)} {self.pick(['+', '-', '*'])} {t(self.pick([1, p]), self.pick([1, q]))})"
        if kind == "flip":
            x = t(p, q)
            return self.pick([f"ts.tile.flip({x})", f"ts.tile.flip({x}, axis=1)", f"{x}[::-1]", f"{x}[:, ::-1]", f"ts.tile.flip({x}, axis=(0, 1))"])
        if kind == "roll":
            shift = str(self.rng.randint(-4, 4)) if self.chance(0.5) else self.expr(s, "i32", 1)
            return f"ts.tile.roll({t(p, q)}, {shift}{self.pick(['', ', axis=0', ', axis=1', ', axis=-1'])})"
        if kind == "slice":
            a, b = self.rng.randint(0, p < W), self.rng.randint(0, q < W)
            return f"{t(p + a, q + b)}[{a}:, :{q}]"
        if kind == "cut":
            ints = self.starts(s)
            if ints:
                v, w = self.pick(ints), self.pick(ints)
                x = t(p, q)
                return self.pick([f"{x}[{v}:{v} + {p}]", f"{x}[:, {v}:{v} + {q}]", f"{x}[{v}:{v} + {p}, {w}:{w} + {q}]"])
        if kind == "concat":
            axis = self.pick([k for k, n in enumerate(shape) if n > 1] or [None])
            if axis is not None:
                k = self.rng.randint(1, shape[axis] - 1)
                pair = (t(k, q), t(p - k, q)) if axis == 0 else (t(p, k), t(p, q - k))
                return f"ts.tile.concat(({pair[0]}, {pair[1]}), axis={self.pick([axis, axis - 2])})"
        if kind == "sort" and self.has("sort"):
            return f"ts.tile.sort({t(p, q)}{self.pick(['', ', axis=0', ', axis=0, descending=True'])})"
        if kind == "scan":
            return f"ts.tile.{self.pick(['cumsum', 'cumprod'])}({t(p, q)}, axis={self.pick([0, 1, -1])}{self.scan_options()})"
        if kind == "scan_by" and self.has("own_combiners"):
            found = self.combined(s, dt, lambda d: t(p, q, d))
            if found is not None:
                return f"ts.tile.associative_scan({found[0]}, {found[1]}, axis={self.pick([0, 1])}{self.pick(['', ', reverse=True'])}){found[2]}"
        if kind == "keep":
            x, axis = t(p, q), self.pick([0, 1])
            return f"({t(p, q)} {self.pick(['+', '-'])} ts.tile.{self.pick(['sum', 'max', 'min'])}({x}, axis={self.pick([axis, '(0, 1)'])}, keepdims=True))"
        if kind == "gather":
            return self.pick([f"{t(self.rng.randint(1, 3), q)}[{self.positions(s, p, False)}]", f"{t(p, self.rng.randint(1, 3))}[:, {self.positions(s, q, False)}]"])
        if kind == "take":
            k = self.rng.randint(1, 3)
            return f"ts.tile.take_along_axis({t(p, k)}, {t(p, q, 'i32')} % {k + 1}, {self.pick([1, -1])})"
        if kind == "points":
            rows, cols = self.positions(s, p, False), self.positions(s, q, False)
            return f"{t(self.rng.randint(1, 3), self.rng.randint(1, 3))}[({rows})[:, None], ({cols})[None, :]]"
        op = self.pick(["+", "-", "*"])
        return f"({self.tile(s, dt, p, 0)}[:, None] {op} {self.tile(s, dt, q, 0)}[None, :])"

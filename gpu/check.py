"""Conformance: every kernel of the examples and the library on the device, beside float64 and beside the interpreter.

In the profile `default` results are within the bounds of the language, in `strict` they have the interpreter's bits. Arrays
that are made for results are poisoned first, and what lies beside an array must stay as it was.
"""

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Callable

import numpy as np

import tessera as ts

from . import engines, gallery, library, moved
from .compare import Mismatch, near, same_bits, within
from .device import Placed, Skip

#: The interpreter is slow: what it is to run has at most so many elements.
STRICT_ELEMENTS = 20000


@dataclass(frozen=True)
class Item:
    """A row of the report: its name, and what does it. Gives how many cases there were, and other figures."""

    name: str
    run: Callable


@contextmanager
def interpreter():
    ts.runtime.select_backend("interp")
    try:
        yield
    finally:
        ts.runtime.select_backend(None)


class Runner:
    """Runs cases on a device."""

    def __init__(self, device, exact=False, tiny=False):
        self.device, self.exact, self.tiny = device, exact, tiny
        self._why_not: str | None = None

    # The examples

    def on_device(self, name, run, args):
        """The results of an example's `run`, as NumPy arrays."""
        args = gallery.copied(args)
        if name in gallery.ON_HOST:
            with moved.poisoned(self.device), moved.on(self.device, self.exact):
                return [np.asarray(r) for r in gallery.outputs(run(*args))]
        placed = [Placed(self.device, a, self.exact) if isinstance(a, np.ndarray) else None for a in args]
        there = [a if p is None else p.array for a, p in zip(args, placed)]
        with moved.poisoned(self.device):
            results = gallery.outputs(run(*there))
        self.device.synchronize()
        for p in filter(None, placed):
            if told := p.damage(p.fetch()):
                raise moved.Damage(f"an argument of {p.dtype} {p.shape}: {told}")
        return [self.device.to_host(r) for r in results]

    def example(self, name, strict=False, spread=False):
        module = gallery.load(name)
        cases = list(module.cases())
        if self.tiny or strict or spread:
            cases = gallery.some(cases)
        worst, skipped = 0.0, 0
        for number, args in enumerate(cases):
            if spread:
                args = tuple(gallery.apart(a) if isinstance(a, np.ndarray) and a.ndim else a for a in args)
            what = f"case {number}, {' '.join(str(getattr(a, 'shape', a)) for a in args)}"
            try:
                worst = max(worst, (self._strict if strict else self._default)(module, name, args, what))
            except Skip:
                skipped += 1
        return {"cases": len(cases) - skipped, "used": worst, "skipped": skipped}

    def large(self, name, args):
        """Several times, for it is chance which group is first."""
        module = gallery.load(name)
        turns = 5 if self.device.is_cuda else 1
        worst = max(self._default(module, name, args, f"turn {turn}") for turn in range(turns))
        return {"cases": turns, "used": worst}

    def _default(self, module, name, args, what):
        expected = gallery.outputs(module.reference(*gallery.copied(args)))
        results = self.on_device(name, module.run, args)
        if len(results) != len(expected):
            raise Mismatch(f"{what}: expected {len(expected)} results, got {len(results)}")
        rows = [
            within(r, e, module.TOLERANCE, f"{what}, result {i}") for i, (r, e) in enumerate(zip(results, expected))
        ]
        return max(rows, default=0.0)

    def _strict(self, module, name, args, what):
        with ts.numerics.profile("strict"):
            try:
                results = self.on_device(name, module.run, args)
            except ts.TesseraError as error:
                results = self._refused(error)
                if name in gallery.BY_ORDER:
                    raise Skip("its results could depend on the order of groups, as far as a GPU's compiler knows") from None
            with interpreter():
                try:
                    expected = gallery.outputs(module.run(*gallery.copied(args)))
                except ts.TesseraError as error:
                    expected = self._refused(error)
        return self._bits(results, expected, what)

    @staticmethod
    def _refused(error):
        """Some kernels are refused where bits must be the same: by everybody, or by nobody."""
        if error.code != "E_NONDETERMINISTIC":
            raise error
        return []

    @staticmethod
    def _bits(results, expected, what):
        if len(results) != len(expected):
            raise Mismatch(f"{what}: {len(results)} results on the device, {len(expected)} on the interpreter")
        for i, (r, e) in enumerate(zip(results, expected)):
            same_bits(r, np.asarray(e), f"{what}, result {i}")
        return 0.0

    # The library

    def why_not_direct(self):
        """Why the library's operations do not take arrays of the device, or an empty text. Asked once."""
        if self._why_not is None:
            x = np.ones((2, 3), np.float32)
            try:
                y = ts.op.softmax(Placed(self.device, x).array)
                assert self.device.to_host(y).shape == x.shape
                self._why_not = ""
            except Exception as error:
                self._why_not = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return self._why_not

    def results(self, case, tiles):
        """What an operation gives on the device. Where the library takes no arrays of the device, its launches are moved."""
        args = gallery.copied(case.args)
        if not self.device.is_cuda or case.more.get("numpy") or self.why_not_direct():
            with moved.poisoned(self.device), moved.on(self.device, self.exact):
                return [np.asarray(r) for r in case.call(ts.op, *args, **tiles)]
        placed = [Placed(self.device, a, self.exact) for a in args]
        if any(any(s < 0 for s in p.strides) for p in placed):
            raise Skip("PyTorch has no negative strides")
        with moved.poisoned(self.device):
            results = case.call(ts.op, *(p.array for p in placed), **tiles)
        self.device.synchronize()
        for p in placed:
            if told := p.damage(p.fetch()):
                raise moved.Damage(f"an argument of {p.dtype} {p.shape}: {told}")
        return [self.device.to_host(r) for r in results]

    def operation(self, case, tiles, strict=False):
        if strict:
            with ts.numerics.profile("strict"):
                try:
                    results = self.results(case, tiles)
                except ts.TesseraError as error:
                    # Told by name and documented; anything else that is refused is an error.
                    if "no published sequence of basic operations" in str(error):
                        raise Skip(str(error)) from None
                    raise
                with interpreter():
                    expected = [np.asarray(r) for r in case.call(ts.op, *gallery.copied(case.args), **tiles)]
            return self._bits(results, expected, case.name)
        expected = case.expect(*case.args)
        results = self.results(case, tiles)
        if len(results) != len(expected):
            raise Mismatch(f"expected {len(expected)} results, got {len(results)}")
        return max(near(r, *e, f"result {i}") for i, (r, e) in enumerate(zip(results, expected)))


# The items


def items(device, seed, *, exact=False, tiny=False):
    """All of them, the most telling first."""
    runner = Runner(device, exact, tiny)
    yield Item("library takes arrays of the device", lambda: _direct(runner))
    fixed = [*library.fixed(seed), *engines.fixed(seed)]
    groups: dict[str, list] = {}
    for shape, case, tiles in fixed:
        groups.setdefault(case.name, []).append((shape, case, tiles))
    for name, cases in groups.items():
        cases = _smallest(cases) if tiny else cases
        yield Item(f"op {name}", lambda cases=cases: _each(runner, cases))
    for name in gallery.names():
        yield Item(f"example {name}", lambda name=name: runner.example(name))
    if not tiny:
        for name, args in gallery.large(np.random.default_rng(seed)).items():
            yield Item(f"large example {name}", lambda name=name, args=args: runner.large(name, args))
    for shape, dtype in PRODUCTS[:2] if tiny else PRODUCTS:
        yield Item(f"gemm {dtype} {'x'.join(map(str, shape))}", lambda s=shape, d=dtype: _product(runner, s, d))
    if tiny:
        return
    if device.is_cuda:
        yield Item("huge line", lambda: huge_line(device))
        yield Item("huge strides", lambda: huge_strides(device))
    for name in gallery.names():
        yield Item(f"strict example {name}", lambda name=name: runner.example(name, strict=True))
    for name, cases in groups.items():
        few = [c for c in cases if sum(a.size for a in c[1].args) <= STRICT_ELEMENTS][:6]
        yield Item(f"strict op {name}", lambda few=few: _each(runner, few, strict=True))
    for name in gallery.names():
        if name not in gallery.PAIRS:
            yield Item(f"spread example {name}", lambda name=name: runner.example(name, spread=True))
    for turn in range(40 if device.is_cuda else 3):
        yield Item(f"random {turn}", lambda turn=turn: _random(runner, np.random.default_rng([seed, 2, turn])))


def _direct(runner):
    if not runner.device.is_cuda:
        raise Skip("a trial run has arrays of the host only")
    if told := runner.why_not_direct():
        raise Mismatch(f"ts.op refuses PyTorch's tensors, so that only its launches are tested: {told}")
    return {"cases": 1}


def _smallest(cases):
    """Few small cases of an operation: each configuration once. What the matrix units do needs a tile or two."""
    large = cases[0][1].name.startswith(("product", "attention"))
    sizes = [(case[1].args[0].size, case) for case in cases]
    few = [pair for pair in sizes if 0 < pair[0] <= (200_000 if large else 3000)]
    return [case for _, case in sorted(few, key=lambda pair: pair[0])[-6 if large else -2:]]


def _each(runner, cases, strict=False):
    worst, wrong = 0.0, []
    for shape, case, tiles in cases:
        what = f"{case.args[0].dtype} {shape}{f' {tiles}' if tiles else ''}"
        try:
            worst = max(worst, runner.operation(case, tiles, strict))
        except Skip:
            continue
        except (Mismatch, moved.Damage) as error:
            wrong.append(f"{what}: {error}")
    return _told(wrong, {"cases": len(cases), "used": worst})


def _told(wrong, figures):
    if wrong:
        raise Mismatch(f"{len(wrong)} of {figures['cases']} cases: " + " | ".join(wrong[:4]))
    return figures


def _random(runner, rng, count=12):
    worst, wrong = 0.0, []
    for _ in range(count):
        what, case = library.drawn(rng)
        try:
            worst = max(worst, runner.operation(case, {}))
        except Skip:
            continue
        except (Mismatch, moved.Damage) as error:
            wrong.append(f"{case.name} {what}: {error}")
    return _told(wrong, {"cases": count, "used": worst})


# Products


PRODUCTS = [
    ((100, 70, 50), "bf16"), ((33, 65, 17), "f16"), ((128, 128, 64), "bf16"), ((1, 1, 1), "bf16"), ((257, 129, 65), "bf16"),
    ((5, 3, 0), "bf16"), ((0, 4, 8), "bf16"), ((256, 384, 512), "bf16"), ((64, 64, 64), "f32"), ((96, 40, 72), "fp8_e4m3"),
]  # fmt: skip


def _product(runner, shape, dtype):
    """`gpu/kernels.py`'s own product, on numbers whose sums are exact and on others."""
    from tessera.arrays.create import numpy_dtype

    from .kernels import gemm
    from .works import loss

    (m, n, k), kind, device = shape, numpy_dtype(dtype), runner.device
    out = np.float32 if dtype in ("f32", "fp8_e4m3") else kind
    worst = 0.0
    for exact in (True, False):
        rng = np.random.default_rng(k)
        draw = (lambda s: rng.integers(-3, 4, s)) if exact else rng.standard_normal
        a, b = (draw(s).astype(np.float32).astype(kind) for s in ((m, k), (k, n)))
        c = np.zeros((m, n), out)
        with moved.on(device, runner.exact):
            gemm(a, b, c)
        wide_a, wide_b = (x.astype(np.float64) for x in (a, b))
        right = wide_a @ wide_b
        if exact:
            same_bits(c, right.astype(np.float32).astype(out), "integers")
        else:
            bound = loss(dtype, k) * (np.abs(wide_a) @ np.abs(wide_b))
            worst = max(worst, near(c, right, bound, "random numbers"))
    return {"cases": 2, "used": worst}


# More than 32 bits can count


def huge_line(device):
    """More elements than 2**32."""
    from .kernels import twice_line

    torch, n = device.torch, 2**32 + 12345
    if torch.cuda.mem_get_info()[0] < 4 * n:
        raise Skip("too little memory")
    x = torch.empty(n, dtype=torch.float8_e5m2, device=device.device)
    x.view(torch.uint8).fill_(0x3C)  # 1.0
    y = device.empty((n,), "fp8_e5m2")
    places = [0, 4095, 2**31 - 1, 2**31, 2**32 - 1, 2**32, n - 1]
    x.view(torch.uint8)[places] = 0x44  # 4.0
    twice_line(x, y)
    device.synchronize()
    bits = y.view(torch.uint8)
    if bits[places].tolist() != [0x48] * len(places):
        raise Mismatch(f"at {places} the bits are {bits[places].tolist()}, expected {0x48}")
    if (count := int((bits == 0x40).sum())) != n - len(places):
        raise Mismatch(f"{n - len(places) - count} of {n} elements are wrong")
    return {"cases": 1}


def huge_strides(device):
    """Rows that lie more than 2**32 bytes apart."""
    from .kernels import twice_lanes, twice_rows

    torch, step = device.torch, 2**31 + 24
    if torch.cuda.mem_get_info()[0] < 16 * step:
        raise Skip("too little memory")
    for kernel in (twice_rows, twice_lanes):
        memory = [torch.empty(3 * step, dtype=torch.bfloat16, device=device.device) for _ in range(2)]
        x, y = (m.as_strided((3, 100), (step, 1), 7) for m in memory)
        x.copy_(torch.randn(3, 100, device=device.device))
        y.fill_(float("nan"))
        kernel(x, y)
        device.synchronize()
        if not torch.equal(y, x * 2):
            raise Mismatch(f"{kernel.name}: {int((y != x * 2).sum())} of 300 elements are wrong")
        del x, y, memory
    torch.cuda.empty_cache()
    return {"cases": 2}


def wanted(found, only):
    """The items whose name has the pattern."""
    return [item for item in found if re.search(only, item.name)] if only else list(found)



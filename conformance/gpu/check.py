"""Conformance: every kernel of the examples and the library on the device, compared with float64 and with the interpreter.

In the profile `default` results are within the error bounds of the language. In `strict` they have the interpreter's bits. Arrays
for results are poisoned first, and memory around an array must stay unchanged. See docs/perf/nvidia.md.

    scripts/gpu-extension.sh                                                            here: builds build/gpu
    PYTHONPATH=build/gpu python3 -m conformance.gpu.check --out $OUT/check.jsonl        there
    .venv/bin/python -m conformance.gpu.check --what check --dry-run  on the host, without a GPU
"""

import sys
from contextlib import contextmanager

import numpy as np

import tessera as ts

from gpurun import run
from gpurun.compare import Mismatch, near, same_bits, within
from gpurun.device import Placed, Skip
from gpurun.error_bounds import loss
from gpurun.items import Item
from ledger.kernels import gemm

from . import example_kernels, huge_arrays, op_cases, python_tests, redirected_calls, sanitize, tensor_core_cases, tile_op_cases

#: The interpreter is slow: its cases have at most this many elements.
STRICT_ELEMENTS = 20000


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
        args = example_kernels.copied(args)
        if name in example_kernels.ON_HOST:
            with redirected_calls.poisoned(self.device), redirected_calls.on(self.device, self.exact):
                return [np.asarray(r) for r in example_kernels.outputs(run(*args))]
        placed = [Placed(self.device, a, self.exact) if isinstance(a, np.ndarray) else None for a in args]
        there = [a if p is None else p.array for a, p in zip(args, placed)]
        with redirected_calls.poisoned(self.device):
            results = example_kernels.outputs(run(*there))
        self.device.synchronize()
        for p in filter(None, placed):
            if damage := p.damage(p.fetch()):
                raise redirected_calls.Damage(f"an argument of {p.dtype} {p.shape}: {damage}")
        return [self.device.to_host(r) for r in results]

    def example(self, name, strict=False, spread=False):
        module = example_kernels.load(name)
        cases = list(module.cases())
        if self.tiny or strict or spread:
            cases = example_kernels.some(cases)
        worst, skipped = 0.0, 0
        for number, args in enumerate(cases):
            if spread:
                args = tuple(example_kernels.apart(a) if isinstance(a, np.ndarray) and a.ndim else a for a in args)
            what = f"case {number}, {' '.join(str(getattr(a, 'shape', a)) for a in args)}"
            try:
                worst = max(worst, (self._strict if strict else self._default)(module, name, args, what))
            except Skip:
                skipped += 1
        return {"cases": len(cases) - skipped, "used": worst, "skipped": skipped}

    def large(self, name, args):
        """Several times: which group is first varies from run to run."""
        module = example_kernels.load(name)
        runs = 5 if self.device.is_cuda else 1
        worst = max(self._default(module, name, args, f"run {index}") for index in range(runs))
        return {"cases": runs, "used": worst}

    def _default(self, module, name, args, what):
        expected = example_kernels.outputs(module.reference(*example_kernels.copied(args)))
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
                if name in example_kernels.BY_ORDER:
                    raise Skip("its results could depend on the order of groups, as far as a GPU's compiler knows") from None
            with interpreter():
                try:
                    expected = example_kernels.outputs(module.run(*example_kernels.copied(args)))
                except ts.TesseraError as error:
                    expected = self._refused(error)
        return self._bits(results, expected, what)

    @staticmethod
    def _refused(error):
        """`strict` refuses some kernels: then every backend must refuse them."""
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
        """Why the library's operations do not take arrays of the device, or an empty text. Found out once."""
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
        """The results of an operation on the device. If the library takes no arrays of the device, its launches are redirected."""
        args = example_kernels.copied(case.args)
        if not self.device.is_cuda or case.more.get("numpy") or self.why_not_direct():
            with redirected_calls.poisoned(self.device), redirected_calls.on(self.device, self.exact):
                return [np.asarray(r) for r in case.call(ts.op, *args, **tiles)]
        placed = [Placed(self.device, a, self.exact) for a in args]
        if any(any(s < 0 for s in p.strides) for p in placed):
            raise Skip("PyTorch has no negative strides")
        with redirected_calls.poisoned(self.device):
            results = case.call(ts.op, *(p.array for p in placed), **tiles)
        self.device.synchronize()
        for p in placed:
            if damage := p.damage(p.fetch()):
                raise redirected_calls.Damage(f"an argument of {p.dtype} {p.shape}: {damage}")
        return [self.device.to_host(r) for r in results]

    def operation(self, case, tiles, strict=False):
        if strict:
            with ts.numerics.profile("strict"):
                try:
                    results = self.results(case, tiles)
                except ts.TesseraError as error:
                    # A documented limit. Any other refusal is an error.
                    if "no published sequence of basic operations" in str(error):
                        raise Skip(str(error)) from None
                    raise
                with interpreter():
                    expected = [np.asarray(r) for r in case.call(ts.op, *example_kernels.copied(case.args), **tiles)]
            return self._bits(results, expected, case.name)
        expected = case.expect(*case.args)
        results = self.results(case, tiles)
        if len(results) != len(expected):
            raise Mismatch(f"expected {len(expected)} results, got {len(results)}")
        return max(near(r, *e, f"result {i}") for i, (r, e) in enumerate(zip(results, expected)))


# The items


def items(device, seed, *, exact=False, tiny=False):
    """All items, the most informative first."""
    runner = Runner(device, exact, tiny)
    yield Item("library takes arrays of the device", lambda: _direct(runner))
    fixed = [*op_cases.fixed(seed), *tensor_core_cases.fixed(seed)]
    groups: dict[str, list] = {}
    for shape, case, tiles in fixed:
        groups.setdefault(case.name, []).append((shape, case, tiles))
    for name, cases in groups.items():
        cases = _smallest(cases) if tiny else cases
        yield Item(f"op {name}", lambda cases=cases: _each(runner, cases))
    for name in example_kernels.names():
        yield Item(f"example {name}", lambda name=name: runner.example(name))
    for name, cases in tile_op_cases.cases().items():
        cases = cases[1::4] if tiny else cases
        yield Item(f"tile op {name}", lambda cases=cases: _tile_ops(runner, cases))
    if not tiny:
        for name, args in example_kernels.large(np.random.default_rng(seed)).items():
            yield Item(f"large example {name}", lambda name=name, args=args: runner.large(name, args))
    for shape, dtype in GEMMS[:2] if tiny else GEMMS:
        yield Item(f"gemm {dtype} {'x'.join(map(str, shape))}", lambda s=shape, d=dtype: _gemm(runner, s, d))
    if tiny:
        return
    if device.is_cuda:
        yield Item("huge line", lambda: huge_arrays.huge_line(device))
        yield Item("huge strides", lambda: huge_arrays.huge_strides(device))
    for name in example_kernels.names():
        yield Item(f"strict example {name}", lambda name=name: runner.example(name, strict=True))
    for name, cases in tile_op_cases.cases().items():
        yield Item(f"strict tile op {name}", lambda cases=cases[::2]: _tile_ops(runner, cases, strict=True))
    for name, cases in groups.items():
        few = [c for c in cases if sum(a.size for a in c[1].args) <= STRICT_ELEMENTS][:6]
        yield Item(f"strict op {name}", lambda few=few: _each(runner, few, strict=True))
    for name in example_kernels.names():
        if name not in example_kernels.PAIRS:
            yield Item(f"spread example {name}", lambda name=name: runner.example(name, spread=True))
    for number in range(40 if device.is_cuda else 3):
        yield Item(f"random {number}", lambda number=number: _random(runner, np.random.default_rng([seed, 2, number])))


def _direct(runner):
    if not runner.device.is_cuda:
        raise Skip("a trial run has arrays of the host only")
    if reason := runner.why_not_direct():
        raise Mismatch(f"ts.op refuses PyTorch's tensors, so only its launches are tested: {reason}")
    return {"cases": 1}


def _smallest(cases):
    """Few small cases of an operation: each configuration once. What tensor cores compute needs a tile or two."""
    large = cases[0][1].name.startswith(("matmul", "attention"))
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
        except Mismatch as error:
            wrong.append(f"{what}: {error}")
    return _result(wrong, {"cases": len(cases), "used": worst})


def _tile_ops(runner, cases, strict=False):
    """Elements must be equal to NumPy's, and in `strict` bits to the interpreter's."""
    wrong = []
    for what, make in cases:
        kernel, args, expected = make()
        with ts.numerics.profile("strict" if strict else "default"):
            with redirected_calls.poisoned(runner.device), redirected_calls.on(runner.device, runner.exact):
                results = [np.asarray(r) for r in example_kernels.outputs(kernel(*args))]
            try:
                if strict:
                    with interpreter():
                        runner._bits(results, [np.asarray(r) for r in example_kernels.outputs(kernel(*args))], what)
                else:
                    [near(r, e, None, f"{what}, result {i}") for i, (r, e) in enumerate(zip(results, expected()))]
            except Mismatch as error:
                wrong.append(str(error))
    return _result(wrong, {"cases": len(cases), "used": 0.0})


def _result(wrong, figures):
    if wrong:
        raise Mismatch(f"{len(wrong)} of {figures['cases']} cases: " + " | ".join(wrong[:4]))
    return figures


def _random(runner, rng, count=12):
    worst, wrong = 0.0, []
    for _ in range(count):
        what, case = op_cases.drawn(rng)
        try:
            worst = max(worst, runner.operation(case, {}))
        except Skip:
            continue
        except Mismatch as error:
            wrong.append(f"{case.name} {what}: {error}")
    return _result(wrong, {"cases": count, "used": worst})


# Matmul


GEMMS = [
    ((100, 70, 50), "bf16"), ((33, 65, 17), "f16"), ((128, 128, 64), "bf16"), ((1, 1, 1), "bf16"), ((257, 129, 65), "bf16"),
    ((5, 3, 0), "bf16"), ((0, 4, 8), "bf16"), ((256, 384, 512), "bf16"), ((64, 64, 64), "f32"), ((96, 40, 72), "fp8_e4m3"),
]  # fmt: skip


def _gemm(runner, shape, dtype):
    """The matmul of `ledger/kernels.py`, on integers with exact sums and on random numbers."""
    from tessera.arrays.create import numpy_dtype

    (m, n, k), kind, device = shape, numpy_dtype(dtype), runner.device
    out = np.float32 if dtype in ("f32", "fp8_e4m3") else kind
    worst = 0.0
    for exact in (True, False):
        rng = np.random.default_rng(k)
        draw = (lambda s: rng.integers(-3, 4, s)) if exact else rng.standard_normal
        a, b = (draw(s).astype(np.float32).astype(kind) for s in ((m, k), (k, n)))
        c = np.zeros((m, n), out)
        with redirected_calls.on(device, runner.exact):
            gemm(a, b, c)
        wide_a, wide_b = (x.astype(np.float64) for x in (a, b))
        right = wide_a @ wide_b
        if exact:
            same_bits(c, right.astype(np.float32).astype(out), "integers")
        else:
            bound = loss(dtype, k) * (np.abs(wide_a) @ np.abs(wide_b))
            worst = max(worst, near(c, right, bound, "random numbers"))
    return {"cases": 2, "used": worst}


# The program


def _items(options, device):
    return items(device, options.seed, exact=options.tiny and device.is_cuda, tiny=options.tiny)


PROGRAM = run.Program(
    sanitize.PROGRAM,
    __doc__.splitlines()[0],
    {
        "check": run.Phase(120, _items, jobs=4),
        "tests": run.Phase(120, run=python_tests.run_all),
        "sanitize": run.Phase(200, run=sanitize.run_all),
    },
)


if __name__ == "__main__":
    sys.exit(run.main(PROGRAM, run.parse(PROGRAM)))

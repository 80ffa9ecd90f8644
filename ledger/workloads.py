"""Workloads of the benchmark and the ledger: kernels, their arrays, and their expected results.

A result has rows and columns. `reference` gives any part of it in float64, with a bound on the error before rounding to the
result's dtype. It works with NumPy and with PyTorch: on the GPU it checks every element, and without one the few elements that
the ledger keeps.
"""

import functools
import math
from dataclasses import dataclass, field
from typing import Callable

import numpy as np

from tessera.arrays.create import numpy_dtype
from tessera.kernels import elementwise, machine, schedule

from gpurun import inputs
from gpurun.error_bounds import ROUNDING, U

from . import kernels
from .recipe import Recipe

#: Groups that keep busy the machine whose rows the ledger holds.
GROUPS = machine.target("sm90").groups
BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1, "int32": 4}

LAYERNORM_EPS = 1e-5
RMSNORM_EPS = 1e-6


@dataclass(frozen=True)
class Declared:
    """An array: its shape, its dtype, and for inputs the kind of its elements. `transposed`: the last axis but one is
    contiguous."""

    shape: tuple
    dtype: str
    kind: str = ""
    transposed: bool = False

    @property
    def bytes(self):
        return math.prod(self.shape) * BYTES[self.dtype]


@dataclass(frozen=True)
class Step:
    """A launch. Arguments are names of arrays, `(name, shape)` for a reshaped array, and numbers."""

    recipe: Recipe
    args: tuple


@dataclass(frozen=True)
class Workload:
    kind: str
    shape: tuple
    dtype: str
    arrays: dict
    output: str
    steps: tuple
    #: From `(xp, inputs, rows, columns)` to values and error bound; `columns` is None for all.
    reference: Callable
    #: The bytes that a launch must at least read and write, and its operations if arithmetic is the limit.
    bytes: int
    flops: int = 0
    #: Rows and columns of the result.
    grid: tuple = (1, 1)
    #: Elements of inputs that one row of the result depends on: the cost of checking it.
    row_cost: int = 1
    peers: tuple = ("copy", "eager", "compile")
    #: What else a row keeps to make the workload again.
    more: dict = field(default_factory=dict)
    #: For a library operation: takes the inputs by name and returns the result. The steps are its launches.
    call: Callable | None = None
    #: Whether inexact operations follow the sums.
    approximate: bool = False

    @property
    def name(self):
        return f"{self.kind} {self.dtype} {'x'.join(map(str, self.shape))}"

    @property
    def inputs(self):
        return [name for name, array in self.arrays.items() if array.kind]

    @property
    def exact(self):
        """Whether the result is exact: it has no sums, or only exact ones."""
        whole = all(self.arrays[name].kind in inputs.WHOLE for name in self.inputs)
        return not self.approximate and (self.kind == "transpose" or whole)

    def judge(self, xp, result, values, bound):
        """The error of a result in float64, and its bound."""
        dtype = self.arrays[self.output].dtype
        if self.exact:
            return xp.abs(result - xp.rounded(values, dtype)), 0.0 * xp.abs(values)
        half, least = ROUNDING[dtype]
        return xp.abs(result - values), bound + half * (xp.abs(values) + bound) + least


class NumpyMath:
    """The functions that references need, in NumPy."""

    abs, exp, sqrt, tanh, concat = np.abs, np.exp, np.sqrt, np.tanh, np.concatenate
    erf = staticmethod(np.vectorize(math.erf, otypes=[np.float64]))

    @staticmethod
    def seen(scores, keep):
        """Scores, minus infinity where `keep` of rows and columns is false."""
        rows, columns = np.ogrid[: scores.shape[0], : scores.shape[1]]
        return np.where(keep(rows, columns), scores, -np.inf)

    @staticmethod
    def max(x):
        return x.max(-1, keepdims=True)

    @staticmethod
    def sum(x):
        return x.sum(-1, keepdims=True)

    @staticmethod
    def mean(x):
        return x.mean(-1, keepdims=True)

    @staticmethod
    def rounded(values, dtype):
        return rounded(values, dtype).astype(np.float64)

    @staticmethod
    def without_nan(x):
        return np.where(np.isnan(x), np.inf, x)


class TorchMath:
    """The same in PyTorch."""

    def __init__(self, torch):
        self.dtypes = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
        self.dtypes |= {"int32": torch.int32}
        self.abs, self.exp, self.sqrt, self.tanh = torch.abs, torch.exp, torch.sqrt, torch.tanh
        self.erf, self.concat, self.arange = torch.erf, torch.cat, torch.arange
        self.max = functools.partial(torch.amax, dim=-1, keepdim=True)
        self.sum = functools.partial(torch.sum, dim=-1, keepdim=True)
        self.mean = functools.partial(torch.mean, dim=-1, keepdim=True)
        self.without_nan = functools.partial(torch.nan_to_num, nan=math.inf, posinf=math.inf)

    def rounded(self, values, dtype):
        return values.to(self.dtypes[dtype]).double()

    def seen(self, scores, keep):
        rows, columns = (self.arange(n, device=scores.device) for n in scores.shape)
        return scores.masked_fill(~keep(rows[:, None], columns[None, :]), -math.inf)


class Generated:
    """The inputs of a workload, generated on demand in NumPy: rounded to their dtype, as float64."""

    def __init__(self, work, seed):
        self.work, self.seed = work, seed

    def at(self, name, rows, columns=None):
        """The elements at these rows and columns, or all columns."""
        array = self.work.arrays[name]
        width = array.shape[-1]
        columns = np.arange(width) if columns is None else np.asarray(columns)
        places = np.asarray(rows, np.int64)[:, None] * width + columns[None, :]
        whole = inputs.values(places, self.seed, name, array.kind).astype(np.float32)
        return rounded(whole / np.float32(inputs.scale(array.kind)), array.dtype).astype(np.float64)

    def rows_of(self, name):
        array = self.work.arrays[name]
        return math.prod(array.shape) // array.shape[-1]


class Held:
    """The inputs of a workload, read from memory, as float64."""

    def __init__(self, work, arrays, device):
        self.work, self.arrays, self.device = work, arrays, device

    def at(self, name, rows, columns=None):
        array = self.arrays[name]
        part = array.reshape(-1, array.shape[-1])[_index(rows)]
        return self.device.wide(part if columns is None else part[:, _index(columns)])

    def rows_of(self, name):
        array = self.arrays[name]
        return math.prod(array.shape) // array.shape[-1]


def _index(places):
    return slice(places.start, places.stop) if isinstance(places, range) else list(places)


def rounded(values, dtype):
    """Values in a dtype, as NumPy has it."""
    return values.astype(numpy_dtype(dtype))


# Rows


def _softmax(xp, inputs, rows, columns):
    x = inputs.at("x", rows)
    weights = xp.exp(x - xp.max(x))
    y = weights / xp.sum(weights)
    y = y if columns is None else y[:, columns]
    return y, 4 * U * (x.shape[-1] + 8) * y


def _norm(centre, xp, inputs, rows, columns):
    x = inputs.at("x", rows)
    n = x.shape[-1]
    mean = xp.mean(x) if centre else 0.0 * x[:, :1]
    rstd = 1 / xp.sqrt(xp.mean((x - mean) ** 2) + (LAYERNORM_EPS if centre else RMSNORM_EPS))
    scale = inputs.at("scale", [0], columns)
    x = x if columns is None else x[:, columns]
    y = (x - mean) * rstd * scale
    size = (xp.abs(x) + xp.abs(mean)) * rstd * xp.abs(scale)
    if centre:
        y = y + inputs.at("shift", [0], columns)
    return y, (n + 16) * U * (size + xp.abs(y))


def _rows_arrays(M, N, dtype):
    return {"x": Declared((M, N), dtype, "bell"), "y": Declared((M, N), dtype)}


def softmax(M, N, dtype):
    arrays = _rows_arrays(M, N, dtype)
    tile = schedule.rows(1, M, N, BYTES[dtype], groups=GROUPS)
    types = {"x": dtype, "y": dtype}
    if tile.whole:
        recipe = Recipe("tessera.kernels.softmax:rows_whole", types, {"N": N, "R": tile.rows, "log": False})
    else:
        recipe = Recipe("tessera.kernels.softmax:rows_pieces", types, {"T": tile.block, "log": False})
    steps = (Step(recipe, (("x", (1, M, N)), ("y", (1, M, N)))),)
    return Workload(
        "softmax", (M, N), dtype, arrays, "y", steps, _softmax, bytes=2 * arrays["x"].bytes, grid=(M, N), row_cost=N,
        peers=("copy", "eager", "compile", "jax"),
    )  # fmt: skip


def _normed(kind, M, N, dtype):
    centre = kind == "layernorm"
    arrays = _rows_arrays(M, N, dtype)
    arrays["scale"] = Declared((N,), dtype, "bell")
    if centre:
        arrays["shift"] = Declared((N,), dtype, "bell")
    # Not stored, so never accessed.
    arrays |= {"mean": Declared((1, M), "f32"), "rstd": Declared((1, M), "f32")}
    types = {"a.x": dtype, "a.scale": dtype, "a.shift": dtype, "y": dtype, "mean": "f32", "rstd": "f32", "eps": "f32"}
    flags = {"a.centre": centre, "a.scaled": True, "a.shifted": centre, "keep": False}
    tile = schedule.rows(1, M, N, BYTES[dtype], groups=GROUPS)
    if tile.whole:
        recipe = Recipe("tessera.kernels.norm:whole", types, {"N": N, "R": tile.rows, **flags})
    else:
        recipe = Recipe("tessera.kernels.norm:pieces", types, {"T": tile.block, **flags})
    eps = LAYERNORM_EPS if centre else RMSNORM_EPS
    shape = (1, M, N)
    args = (("x", shape), "scale", "shift" if centre else "scale", ("y", shape), "mean", "rstd", eps)
    return Workload(
        kind, (M, N), dtype, arrays, "y", (Step(recipe, args),), functools.partial(_norm, centre),
        bytes=2 * arrays["x"].bytes, grid=(M, N), row_cost=N, peers=("copy", "eager", "compile", "jax"),
    )  # fmt: skip


def layernorm(M, N, dtype):
    return _normed("layernorm", M, N, dtype)


def rmsnorm(M, N, dtype):
    return _normed("rmsnorm", M, N, dtype)


# Elementwise: rows are only a view of the elements.


def _gelu_times(xp, inputs, rows, columns):
    x, w = inputs.at("x", rows, columns), inputs.at("w", rows, columns)
    t = x + w
    inner = math.sqrt(2 / math.pi) * (t + 0.044715 * t**3)
    y = 0.5 * t * (1 + xp.tanh(inner)) * x
    # 1 + tanh loses digits where tanh is near -1; what is lost is absolute.
    return y, U * xp.abs(x * t) * (16 + 8 * xp.abs(t))


def _scaled_sum(xp, inputs, rows, columns):
    x, y = inputs.at("x", rows, columns), inputs.at("w", rows, columns)
    return 1.5 * x + y, 2 * U * (xp.abs(1.5 * x) + xp.abs(y))


def _line(kind, function, reference, M, N, dtype):
    arrays = {"x": Declared((M, N), dtype, "bell"), "w": Declared((M, N), dtype, "bell"), "y": Declared((M, N), dtype)}
    n = M * N
    config = {"f.of": {"function": f"ledger.kernels:{function}"}, "f.kinds": "--", "f.given": True, "T": schedule.line(n, BYTES[dtype], groups=GROUPS)}
    types = dict.fromkeys([f"f.arrays.{i}" for i in range(elementwise.MOST)], dtype)
    recipe = Recipe("tessera.kernels.elementwise:line", types | {"y": dtype}, config)
    flat = {name: (name, (n,)) for name in "xwy"}
    steps = (Step(recipe, (flat["x"], flat["w"], flat["x"], flat["x"], flat["y"])),)
    return Workload(
        kind, (M, N), dtype, arrays, "y", steps, reference, bytes=3 * arrays["x"].bytes, grid=(M, N), row_cost=2 * N
    )


def gelu(M, N, dtype):
    return _line("gelu", "gelu_times", _gelu_times, M, N, dtype)


def saxpy(M, N, dtype):
    return _line("saxpy", "scaled_sum", _scaled_sum, M, N, dtype)


# Sums


def _sum_rows(depth, xp, inputs, rows, columns):
    """`depth` is the longest chain of additions. The language allows one per element, a bound that is useless for millions of
    elements; the kernels promise this one."""
    x = inputs.at("x", rows)
    return xp.sum(x), 2 * depth * U * xp.sum(xp.abs(x))


def _sum_step(M, N, C, chunk, T, source, dtype, result):
    types = {"x": dtype, "y": "f32", "identity": "f32"}
    recipe = Recipe("tessera.kernels.reduce:rows_pieces", types, {"T": T, "op": "sum", "mean": False})
    pieces = -(-chunk // T)
    return Step(recipe, ((source, (1, M, N)), (result, (1, M, C)), 0.0, 1, pieces)), pieces + math.log2(T) + 2


def sum_rows(M, N, dtype):
    """A number for each row, in one launch."""
    arrays = {"x": Declared((M, N), dtype, "positive"), "y": Declared((M, 1), "f32")}
    if N * BYTES[dtype] <= schedule.ROW:
        types = {"x": dtype, "y": "f32", "identity": "f32"}
        config = {"N": N, "R": schedule.rows(1, M, N, BYTES[dtype], groups=GROUPS).rows, "op": "sum", "mean": False}
        step = Step(Recipe("tessera.kernels.reduce:rows_whole", types, config), (("x", (1, M, N)), ("y", (1, M)), 0.0, 1))
        # A thread holds at most 128 elements.
        depth = 128 + math.log2(N) + 2
    else:
        T = schedule.piece(BYTES[dtype])
        step, depth = _sum_step(M, N, 1, -(-N // T) * T, T, "x", dtype, "y")
    return Workload(
        "sum_rows", (M, N), dtype, arrays, "y", (step,), functools.partial(_sum_rows, depth), bytes=arrays["x"].bytes,
        grid=(M, 1), row_cost=N,
    )  # fmt: skip


def sum_all(M, N, dtype):
    """One number for all elements, in two launches: groups compute partial sums, and the second launch adds those."""
    n, T = M * N, schedule.piece(BYTES[dtype])
    C, chunk = schedule.chunks(1, n, T, groups=GROUPS)
    C = schedule.parts(C)
    arrays = {"x": Declared((1, n), dtype, "positive"), "parts": Declared((1, C), "f32"), "y": Declared((1, 1), "f32")}
    first, depth = _sum_step(1, n, C, chunk, T, "x", dtype, "parts")
    types = {"x": "f32", "y": "f32", "identity": "f32"}
    recipe = Recipe("tessera.kernels.reduce:rows_whole", types, {"N": C, "R": 1, "op": "sum", "mean": False})
    last = Step(recipe, (("parts", (1, 1, C)), ("y", (1, 1)), 0.0, 1))
    return Workload(
        "sum", (M, N), dtype, arrays, "y", (first, last), functools.partial(_sum_rows, depth + C + 2),
        bytes=arrays["x"].bytes, grid=(1, 1), row_cost=n,
    )  # fmt: skip


# Transpose and matmul


def _transpose(xp, inputs, rows, columns):
    columns = range(inputs.rows_of("x")) if columns is None else columns
    x = inputs.at("x", columns, rows)
    y = x.T
    return y, 0.0 * y


def transpose(M, N, dtype):
    """The library moves elements as integers of their size. Here they have their own dtype, with the same bits."""
    arrays = {"x": Declared((M, N), dtype, "bell"), "y": Declared((N, M), dtype)}
    A, B = schedule.square(M, N, BYTES[dtype], groups=GROUPS)
    recipe = Recipe("tessera.kernels.move:turn", {"x": dtype, "y": dtype}, {"A": A, "B": B})
    steps = (Step(recipe, (("x", (1, 1, M, N)), ("y", (1, 1, N, M)))),)
    return Workload(
        "transpose", (M, N), dtype, arrays, "y", steps, _transpose, bytes=2 * arrays["x"].bytes, grid=(N, M), row_cost=M
    )


def _gemm(xp, inputs, rows, columns):
    a = inputs.at("A", rows)
    b = inputs.at("B", range(inputs.rows_of("B")), columns)
    # Tensor cores truncate in their accumulation where other units round, so the error bound is twice as large.
    return a @ b, (a.shape[-1] + 2) * 2 * U * (xp.abs(a) @ xp.abs(b))


def gemm(M, N, K, dtype, kind="integers", config=None):
    arrays = {"A": Declared((M, K), dtype, kind), "B": Declared((K, N), dtype, kind), "C": Declared((M, N), dtype)}
    # Rows of an odd length begin at odd addresses.
    aligned = {name: next(n for n in (16, 8, 4, 2, 1) if a.bytes // a.shape[0] % n == 0) for name, a in arrays.items()}
    layouts = {name: {"axis": 1, "align": n} for name, n in aligned.items() if n < 16}
    recipe = Recipe("ledger.kernels:gemm", dict.fromkeys("ABC", dtype), dict(config or kernels.GEMM), layouts=layouts)
    return Workload(
        "gemm", (M, N, K), dtype, arrays, "C", (Step(recipe, ("A", "B", "C")),), _gemm,
        bytes=sum(a.bytes for a in arrays.values()), flops=2 * M * N * K, grid=(M, N), row_cost=8 * K, peers=("eager",),
    )  # fmt: skip


MAKERS = {
    "softmax": softmax, "layernorm": layernorm, "rmsnorm": rmsnorm, "gelu": gelu, "saxpy": saxpy, "sum": sum_all,
    "sum_rows": sum_rows, "transpose": transpose, "gemm": gemm,
}  # fmt: skip


def timed(gemm_config=None):
    """The table of the benchmark. Arrays of rows have 256 MiB: four times the L2 cache, and large enough that launch
    overhead does not matter."""
    rows = [(2**27 // n, n) for n in (4096, 8192, 32768, 131072)]
    found = [make(m, n, "bf16") for m, n in rows for make in (softmax, layernorm, rmsnorm)]
    found += [gelu(16384, 8192, "bf16"), gelu(8192, 8192, "f32"), saxpy(8192, 8192, "f32"), saxpy(16384, 8192, "bf16")]
    found += [sum_all(8192, 8192, "f32"), sum_all(16384, 8192, "bf16"), sum_rows(8192, 8192, "f32")]
    found += [transpose(16384, 8192, "bf16"), transpose(8192, 8192, "f32")]
    found += [gemm(n, n, n, "bf16", config=gemm_config) for n in (4096, 8192, 1024, 4095)]
    return found


def tried():
    """The same workloads, so small that a run without a GPU takes seconds."""
    found = [make(m, n, "bf16") for m, n in ((24, 96), (5, 1000)) for make in (softmax, layernorm, rmsnorm)]
    found += [make(40, 64, dtype) for make in (gelu, saxpy) for dtype in ("bf16", "f32")]
    found += [sum_all(20, 2048, "f32"), sum_rows(6, 5000, "f32"), transpose(70, 40, "bf16"), transpose(33, 9, "f32")]
    found += [gemm(96, 64, 80, "bf16"), gemm(33, 40, 17, "bf16")]
    return found

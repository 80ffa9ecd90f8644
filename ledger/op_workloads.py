"""Workloads of the library's operations: the launches of `ts.op` for a shape, as rows of the ledger keep them."""

import functools
import inspect
import math

import tessera as ts

from gpurun.error_bounds import ROUNDING, U, loss

from . import kernels, workloads
from .recorded_launches import without_memory, recorded
from .workloads import Declared, Step, Workload


def _steps(arrays, call):
    """The launches of an operation, found without a GPU."""
    given = {name: without_memory(a.shape, a.dtype, a.transposed) for name, a in arrays.items() if a.kind}
    with recorded(run=False) as found:
        call(given)
    return tuple(Step(launch.recipe, ()) for launch in found)


# Matmul


def _gelu(xp, x):
    return 0.5 * x * (1 + xp.erf(x / math.sqrt(2.0)))


def _matmul(dtype, fast, epilogue, xp, inputs, rows, columns):
    a, b = inputs.at("A", rows), inputs.at("B", range(inputs.rows_of("B")), columns)
    values = a @ b
    bound = loss(dtype, a.shape[-1], fast) * (xp.abs(a) @ xp.abs(b))
    if epilogue:
        values = values + inputs.at("bias", [0], columns)
        # The error of an approximate erf is about that of rounding to bf16.
        values, bound = _gelu(xp, values), 2 * bound + 1e-5 * (1 + xp.abs(values))
    return values, bound


#: Result dtypes, where they differ from the operands'.
OUT = {"fp8_e4m3": "bf16", "fp8_e5m2": "bf16", "tf32": "f32", "int8": "int32"}


def matmul(M, N, K, dtype, a="row", b="row", mode="", epilogue=False):
    """`ts.op.matmul` of integers so small that every sum is exact. `mode` is "fast" for fp8 accumulation without promotion."""
    stored, out = "f32" if dtype == "tf32" else dtype, OUT.get(dtype, dtype)
    kind = "units" if dtype.startswith("fp8") else "integers"
    arrays = {
        "A": Declared((M, K), stored, kind, a == "column"), "B": Declared((K, N), stored, kind, b == "column"),
        "C": Declared((M, N), out),
    }  # fmt: skip
    if epilogue:
        arrays["bias"] = Declared((N,), stored, kind)
    more = {"out_dtype": out} if out != stored else {}
    more |= {"precision": "tf32" if dtype == "tf32" else mode} if dtype == "tf32" or mode else {}

    def call(given):
        extra = {"bias": given["bias"], "activation": "gelu"} if epilogue else {}
        return inspect.unwrap(ts.op.matmul)(given["A"], given["B"], **more, **extra)

    return Workload(
        "matmul", (M, N, K), dtype, arrays, "C", _steps(arrays, call),
        functools.partial(_matmul, dtype, mode == "fast", epilogue), bytes=sum(x.bytes for x in arrays.values()),
        flops=2 * M * N * K, grid=(M, N), row_cost=8 * K, call=call, approximate=epilogue,
        more={"a": a, "b": b, "mode": mode, "epilogue": epilogue},
    )  # fmt: skip


# Attention


#: The soft cap of scores, and the error bound of the approximate tanh.
CAP, CAP_LOSS = 30.0, 30.0 * 2.0**-10


def _attention(shape, causal, window, cap, documents, xp, inputs, rows, columns):
    _, H, HK, Sq, Sk, D = shape
    scale, offset = 1 / math.sqrt(D), Sk - Sq
    parts = []
    for row, count in _by_head(rows, Sq):
        head, first = divmod(row, Sq)
        batch, head = divmod(head, H)
        of_keys = (batch * HK + head // (H // HK)) * Sk
        q, k = inputs.at("Q", range(row, row + count)), inputs.at("K", range(of_keys, of_keys + Sk))
        v = inputs.at("V", range(of_keys, of_keys + Sk), columns)
        s = q @ k.T * scale
        # The absolute error of a score: accumulation, scaling, exponent. After exp it is a relative error.
        lost = (D + 8) * U * scale * (xp.abs(q) @ xp.abs(k).T)
        if cap:
            s, lost = CAP * xp.tanh(s / CAP), lost + CAP_LOSS
        if causal or window:
            low = -window if window else -Sk
            s = xp.seen(s, lambda i, j: (j - i - first - offset <= 0) & (j - i - first - offset > low))
        if documents:
            of = inputs.at("documents", [0])[0]
            s = xp.seen(s, lambda i, j: of[first + i] == of[j])
        weights = xp.exp(s - xp.max(s))
        weights = weights / xp.sum(weights)
        # Weights are rounded to bf16 before they are multiplied.
        part = 2.02 * ROUNDING["bf16"][0] + 4 * xp.max(lost) + (Sk + 16) * U
        parts.append((weights @ v, part * (weights @ xp.abs(v))))
    values, bounds = zip(*parts)
    return xp.concat(values), xp.concat(bounds)


def _by_head(rows, Sq):
    """Runs of consecutive rows of one head: the first row and their number."""
    runs = []
    for row in rows:
        if runs and row == runs[-1][0] + runs[-1][1] and row % Sq:
            runs[-1][1] += 1
        else:
            runs.append([row, 1])
    return runs


def attention(B, H, HK, Sq, Sk, D, dtype, causal=False, window=None, cap=False, std=1, ramp=False, documents=0):
    """`ts.op.flash_attention`. Inputs are bells `std` times as wide; with `ramp`, scores grow with every block of keys. With
    `documents`, tokens attend only to their own document. The block mask is computed too, but not timed."""
    shape = (B, H, HK, Sq, Sk, D)
    bell = {1: "bell", 4: "bell4", 16: "bell16"}[std]
    kinds = (f"queries {D}", f"keys {D} {Sk}") if ramp else (bell, bell)
    arrays = {
        "Q": Declared((B, H, Sq, D), dtype, kinds[0]), "K": Declared((B, HK, Sk, D), dtype, kinds[1]),
        "V": Declared((B, HK, Sk, D), dtype, "bell"), "O": Declared((B, H, Sq, D), dtype),
    }  # fmt: skip
    if documents:
        arrays["documents"] = Declared((Sk,), "int32", f"documents {documents} {Sk}")
    more = {"window": window} if window else {}
    more |= {"score_mod": kernels.soft_cap} if cap else {}

    def call(given):
        if documents:
            mask = ts.bind(kernels.same_document, documents=given["documents"])
            blocks = inspect.unwrap(ts.op.block_mask)(mask, given["Q"], given["K"], given["V"])
            return inspect.unwrap(ts.op.flash_attention)(given["Q"], given["K"], given["V"], mask_mod=blocks)
        return inspect.unwrap(ts.op.flash_attention)(given["Q"], given["K"], given["V"], causal=causal, **more)

    return Workload(
        "attention", shape, dtype, arrays, "O", _steps(arrays, call), functools.partial(_attention, shape, causal, window, cap, documents),
        bytes=sum(x.bytes for x in arrays.values()), flops=4 * B * H * Sq * Sk * D // (2 if causal else 1), grid=(B * H * Sq, D),
        row_cost=2 * Sk * D, call=call, approximate=True,
        more={"causal": causal, "window": window, "cap": cap, "std": std, "ramp": ramp} | ({"documents": documents} if documents else {}),
    )  # fmt: skip


MAKERS = workloads.MAKERS | {"matmul": matmul, "attention": attention}


def of(kind, shape, dtype, **more):
    """The workload that a row of the ledger names."""
    return MAKERS[kind](*shape, dtype, **more)

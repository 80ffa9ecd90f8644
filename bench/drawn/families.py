"""The families of programs, and how each draws one."""

import functools
import math

from .meanings import EPS, TILE_SOURCE
from .programs import BYTES, Array, Program

ACTIVATIONS = ("relu", "silu", "gelu", "gelu_tanh", "tanh", "sigmoid")
#: What the arithmetic of each dtype may lose, as a part of the result's size, beyond one rounding of the result.
LOSS = {"bf16": 2.0**-9, "f16": 2.0**-11, "f32": 3e-5, "fp8_e4m3": 2.0**-6}
#: Attention also rounds its weights.
ATTENTION_LOSS = {"bf16": 2.0**-6, "f16": 2.0**-8, "f32": 2e-4}

DRAWN = {}
_SLOTS = []


def drawn(name, times):
    """Registers a family, and how many of the places of a round it has."""

    def register(function):
        @functools.wraps(function)
        def make(draw, limits, seed, index, family):
            return Program(seed=seed, index=index, family=family, **function(draw, limits))

        DRAWN[name] = make
        _SLOTS.extend((place / times, name) for place in range(times))
        return make

    return register


def at(index):
    """The family of an index: each has its places in every round."""
    order = sorted(_SLOTS)
    return order[index % len(order)][1]


def signature(arrays, out):
    """Parameters of a kernel: `arrays` and `out` give each its dims as text."""
    given = [f'    {name}: ts.Tensor[{dims}, ts.{dtype}],' for name, (dims, dtype) in arrays.items()]
    dims, dtype = out
    return "\n".join([*given, f"    out: ts.Out[{dims}, ts.{dtype}],"])


def kernel(parameters, body):
    """The source of a kernel `drawn` with candidates."""
    indented = "\n".join(f"    {line}" if line else "" for line in body.strip("\n").splitlines())
    return f"{TILE_SOURCE}@ts.kernel.autotune(space=dict({{space}}))\ndef drawn(\n{parameters}\n):\n{indented}\n    return out\n"


def fitting(sides, extent):
    """The sides of tiles that an author offers for an axis: none that twice covers it, and always one."""
    return [s for s in sides if s < 2 * extent] or sides[:1]


def areas(draw, rows, columns, M, N, elements):
    """A space of tiles `R` by `C` that suit `[M, N]`, of about `elements` elements: narrow arrays get tall tiles."""
    wide = draw.some(fitting(columns, N)[-4:])
    tall = [r for r in rows if elements // 2 <= r * wide[-1] <= elements] or [next((r for r in rows if r * wide[-1] >= elements), rows[-1])]
    return {"R": draw.some(fitting(tall, M)), "C": wide}


POWERS = tuple(2**e for e in range(13))


# Matmul


def _sides(draw, limits, dtype, low=1):
    most = limits.flops / (8 if dtype == "f32" else 1)
    while True:
        M, N, K = (draw.length(low, limits.side) for _ in range(3))
        if 2.0 * M * N * K <= most:
            return M, N, K


def _epilogue(draw, M, N, dtype):
    """Arrays of an epilogue, the names of its parts, and the expression around `{}`."""
    arrays, parts, text = {}, [], "{}"
    if draw.random() < 0.5:
        arrays["bias"] = Array((N,), dtype)
        parts.append("bias")
        text = "({} + bias)"
    if draw.random() < 0.5:
        activation = draw.choice(ACTIVATIONS)
        parts.append(activation)
        text = f"{activation}({text})"
    if draw.random() < 0.3:
        arrays["rest"] = Array((M, N), dtype)
        parts.append("residual")
        text = f"({text} + rest)"
    return arrays, parts, text


@drawn("matmul", 7)
def matmul(draw, limits):
    dtype = draw.choice((*limits.dtypes, "bf16", *(["fp8_e4m3"] if limits.fp8 else [])))
    M, N, K = _sides(draw, limits, dtype)
    fp8 = dtype.startswith("fp8")
    if fp8:  # what the peer takes: sides that are multiples of 16
        M, N, K = (max(16, n // 16 * 16) for n in (M, N, K))
    turned = (False, True) if fp8 else (draw.random() < 0.5, draw.random() < 0.5)
    arrays = {"a": Array((M, K), dtype, turned=turned[0]), "b": Array((K, N), dtype, turned=turned[1])}
    out = Array((M, N), "bf16" if fp8 else dtype)
    extra, parts, text = _epilogue(draw, M, N, out.dtype) if draw.random() < 0.4 else ({}, [], "{}")
    activation = next((p for p in parts if p in ACTIVATIONS), None)
    own = activation in ("tanh", "sigmoid")  # not among the library's names
    options = [f"activation={activation if own else repr(activation)}"] if activation else []
    options += ["bias=bias"] * ("bias" in extra) + ["residual=rest"] * ("rest" in extra)
    options += ["out_dtype='bf16'"] * fp8
    peers = {}
    if fp8:
        product = "torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)"
        peers["cublaslt"] = text.format(product)
    elif not parts:
        peers = {library: f"blas({library!r}) or torch.mm(a, b, out=out)" for library in ("cublas", "cublaslt")}
    elif parts == ["bias"]:
        peers["addmm"] = "torch.addmm(bias, a, b)"
    elif parts in (["bias", "relu"], ["bias", "gelu_tanh"]):
        peers["addmm"] = f"torch._addmm_activation(bias, a, b, use_gelu={parts[1] != 'relu'})"
    lies = "".join("T" if t else "N" for t in turned)
    return {
        "kind": " ".join([lies, *parts]), "dtype": dtype, "shape": (M, N, K), "arrays": {**arrays, **extra}, "out": out,
        "call": f"ts.op.matmul({', '.join(['a', 'b', *options])})", "meaning": text.format("matmul(a, b)"),
        "flops": 2.0 * M * N * K, "along": ("a", "rest"), "size": math.sqrt(K), "loss": LOSS[dtype], "torch": peers,
        "source": TILE_SOURCE if own else "", "tensor_cores": dtype != "f32",
    }  # fmt: skip


@drawn("textbook matmul", 3)
def textbook_matmul(draw, limits):
    dtype = draw.choice(limits.dtypes)
    M, N, K = _sides(draw, limits, dtype, low=min(64, limits.side // 4))
    turned = draw.random() < 0.5, draw.random() < 0.5
    arrays = {"a": Array((M, K), dtype, turned=turned[0]), "b": Array((K, N), dtype, turned=turned[1])}
    extra, parts, text = _epilogue(draw, M, N, dtype)
    out = Array((M, N), draw.choice((dtype, "f32")))
    shared = draw.random() < 0.3
    wide = dtype == "f32"
    space = {"BM": draw.some([32, 64, 128] if wide else [64, 128, 256]), "BN": draw.some([32, 64, 128] if wide else [64, 128, 256])}
    if space["BM"] == [256]:  # nobody offers only what no register file holds
        space["BN"] = [n for n in space["BN"] if n < 256] or [128]
    space |= {"BK": draw.some([8, 16] if wide else [32, 64])}
    if not wide and draw.random() < 0.5:
        space["num_warps"] = [4, 8]
    products = (
        f"""
a_s = ts.tile.alloc_shared((t.BM, t.BK), ts.{dtype})
b_s = ts.tile.alloc_shared((t.BK, t.BN), ts.{dtype})
for k0 in ts.tile.range(0, K, t.BK):
    ts.tile.cp_async(a_s, a[m0:m0 + t.BM, k0:k0 + t.BK])
    ts.tile.cp_async(b_s, b[k0:k0 + t.BK, n0:n0 + t.BN])
    ts.tile.barrier()
    acc = ts.tile.mma(a_s, b_s, accumulator=acc)
"""
        if shared
        else """
for k0 in ts.tile.range(0, K, t.BK):
    acc = ts.tile.mma(a[m0:m0 + t.BM, k0:k0 + t.BK], b[k0:k0 + t.BK, n0:n0 + t.BN], accumulator=acc)
"""
    )
    expression = text.format("acc").replace("+ bias", "+ bias[n0:n0 + t.BN][None, :]")
    expression = expression.replace("+ rest", "+ rest[m0:m0 + t.BM, n0:n0 + t.BN]")
    body = f"""
t = ts.tile.context()
m0 = ts.tile.program_id(0) * t.BM
n0 = ts.tile.program_id(1) * t.BN
acc = ts.tile.zeros((t.BM, t.BN), ts.f32){products}out[m0:m0 + t.BM, n0:n0 + t.BN] = ts.tile.cast({expression}, ts.{out.dtype})
"""
    dims = {"a": '"M", "K"', "b": '"K", "N"', "bias": '"N"', "rest": '"M", "N"'}
    arrays |= extra
    parameters = signature({name: (dims[name], x.dtype) for name, x in arrays.items()}, ('"M", "N"', out.dtype))
    lies = "".join("T" if t else "N" for t in turned)
    peers = {library: f"blas({library!r}) or torch.mm(a, b)" for library in ("cublas", "cublaslt")} if not parts else {}
    return {
        "kind": " ".join([lies, *parts, *["shared"] * shared, *["f32 result"] * (out.dtype != dtype)]), "dtype": dtype, "shape": (M, N, K),
        "arrays": arrays, "out": out, "call": f"drawn({', '.join(arrays)}, out)", "meaning": text.format("matmul(a, b)"),
        "source": kernel(parameters, body), "space": space, "flops": 2.0 * M * N * K, "along": ("a", "rest"), "size": math.sqrt(K),
        "loss": LOSS[dtype], "torch": peers, "tensor_cores": dtype != "f32",
    }  # fmt: skip


# Attention


def _sequence(draw, limits, queries_too=False):
    while True:
        Sk = draw.length(16, limits.tokens)
        Sq = draw.length(1, Sk) if queries_too and draw.random() < 0.3 else Sk
        if Sq * Sk <= limits.scores:
            return Sq, Sk


def _scores(draw, Sq, Sk):
    """Options of the scores, and how many of them are seen."""
    options = {}
    if Sq == Sk and draw.random() < 0.5:
        options["causal"] = True
        if draw.random() < 0.3:
            options["window"] = draw.length(1, Sk)
    part = 0.5 if options.get("causal") else 1.0
    if window := options.get("window"):
        part = min(part, window / Sk)
    return options, part


SDPA = "scaled_dot_product_attention(q, k, v, is_causal={causal}{more})"


@drawn("attention", 2)
def attention(draw, limits):
    dtype = draw.choice([d for d in limits.dtypes if d != "f32"] or limits.dtypes)
    D = draw.choice((32, 64, 64, 80, 96, 128, 128))
    Sq, Sk = _sequence(draw, limits, queries_too=True)
    options, part = _scores(draw, Sq, Sk)
    heads = draw.choice((1, 2, 4, 8))
    H = heads * draw.choice((1, 1, 2, 4))
    while H * Sq * Sk > limits.scores and H > heads:
        H //= 2
    most = max(1, int(limits.flops / (4.0 * H * Sq * Sk * D)))
    B = min(draw.length(1, 64), most)
    arrays = {"q": Array((B, H, Sq, D), dtype), "k": Array((B, heads, Sk, D), dtype), "v": Array((B, heads, Sk, D), dtype)}
    given = "".join(f", {name}={value}" for name, value in options.items())
    peers = {}
    if "window" not in options:
        more = ", enable_gqa=True" if H != heads else ""
        text = SDPA.format(causal=bool(options), more=more)
        peers = {kind: f"sdpa({kind!r}, lambda: {text})" for kind in ("cudnn", "flash", "efficient")}
    return {
        "kind": f"{H}/{heads} heads, {', '.join(f'{n}={v}' for n, v in options.items()) or 'full'}", "dtype": dtype,
        "shape": (B, H, Sq, Sk, D), "arrays": arrays, "out": Array((B, H, Sq, D), dtype),
        "call": f"ts.op.flash_attention(q, k, v{given})", "meaning": f"attention(q, k, v{given})",
        "flops": 4.0 * B * H * Sq * Sk * D * part, "along": ("q", "k", "v"), "loss": ATTENTION_LOSS[dtype], "torch": peers,
        "tensor_cores": True,
    }  # fmt: skip


@drawn("textbook attention", 2)
def textbook_attention(draw, limits):
    dtype = draw.choice([d for d in limits.dtypes if d != "f32"] or limits.dtypes)
    D = draw.choice((32, 64, 64, 128, 128))
    S, _ = _sequence(draw, limits)
    options, part = _scores(draw, S, S)
    if draw.random() < 0.25:
        options["cap"] = draw.choice((10.0, 30.0))
    if draw.random() < 0.25:
        options["slope"] = round(2.0 ** -draw.uniform(1, 8), 4)
    most = max(1, int(limits.flops / (4.0 * S * S * D)))
    BH = min(draw.length(1, 128), most)
    causal, window = options.get("causal", False), options.get("window", 0)
    lines = [f"s = ts.tile.mma(q_t, k[h, k0:k0 + BN, :], transpose_b=True) * {1 / math.sqrt(D)!r}"]
    if cap := options.get("cap"):
        lines.append(f"s = {cap} * ts.tile.tanh(s * {1 / cap!r})")
    if window or options.get("slope"):
        lines.append("apart = (k0 + ts.tile.arange(BN))[None, :] - (q0 + ts.tile.arange(BM))[:, None]")
    if slope := options.get("slope"):
        lines.append(f"s = s - {slope} * ts.tile.cast(ts.tile.abs(apart), ts.f32)")
    # A finite number: a row may see nothing of the first block, and every row sees itself.
    lines.append("s = ts.tile.bounds_mask(s, cols=S - k0, value=-1e30)")
    if window:
        lines.append(f"s = ts.tile.where((apart <= 0) & (apart > -{window}), s, -1e30)")
    elif causal:
        lines.append("s = ts.tile.causal_mask(s, q0, k0)")
    scores = "\n    ".join(lines)
    low = f"max(0, q0 - {window - 1}) // BN * BN" if window else "0"
    body = f"""
t = ts.tile.context()
BM, BN = t.BM, t.BN
h = ts.tile.program_id(0)
q0 = ts.tile.program_id(1) * BM
q_t = q[h, q0:q0 + BM, :]
acc = ts.tile.zeros((BM, D), ts.f32)
m = ts.tile.full((BM,), -1e30, ts.f32)
l = ts.tile.zeros((BM,), ts.f32)
for k0 in ts.tile.range({low}, {"min(S, q0 + BM)" if causal else "S"}, BN):
    {scores}
    m_new = ts.tile.maximum(m, ts.tile.row_max(s))
    alpha = ts.tile.exp(m - m_new)
    p = ts.tile.exp(s - m_new[:, None])
    l = alpha * l + ts.tile.row_sum(p)
    acc = alpha[:, None] * acc + ts.tile.mma(ts.tile.cast(p, ts.{dtype}), v[h, k0:k0 + BN, :])
    m = m_new
out[h, q0:q0 + BM, :] = ts.tile.cast(acc / l[:, None], ts.{dtype})
"""
    dims = '"BH", "S", "D"'
    arrays = {name: Array((BH, S, D), dtype) for name in ("q", "k", "v")}
    given = "".join(f", {name}={value}" for name, value in options.items())
    peers = {}
    if not set(options) - {"causal"}:
        text = SDPA.format(causal=causal, more="").replace("q, k, v", "q[None], k[None], v[None]") + "[0]"
        peers = {kind: f"sdpa({kind!r}, lambda: {text})" for kind in ("cudnn", "flash", "efficient")}
    return {
        "kind": ", ".join(f"{n}={v}" for n, v in options.items()) or "full", "dtype": dtype, "shape": (BH, S, D), "arrays": arrays,
        "out": Array((BH, S, D), dtype), "call": "drawn(q, k, v, out)", "meaning": f"attention(q, k, v{given})",
        "source": kernel(signature({name: (dims, dtype) for name in arrays}, (dims, dtype)), body),
        "space": {"BM": draw.some([64, 128]), "BN": draw.some([64, 128]), "num_warps": [4, 8]}, "flops": 4.0 * BH * S * S * D * part,
        "along": ("q", "k", "v"), "loss": ATTENTION_LOSS[dtype], "torch": peers, "tensor_cores": True,
    }  # fmt: skip


# Rows


NORMS = ("softmax", "layernorm", "rmsnorm")


@drawn("rows", 4)
def rows(draw, limits):
    """A row operation of the library."""
    dtype = draw.choice(limits.dtypes)
    M, N = draw.matrix(*limits.bytes, BYTES[dtype])
    kind = draw.choice((*NORMS, "log_softmax", "gelu", "bias"))
    x, vector = Array((M, N), dtype), Array((N,), dtype, "weights")
    texts = {
        "layernorm": (f"ts.op.layernorm(x, scale, shift, {EPS})", "layernorm(x, scale, shift)", {"scale": vector, "shift": vector}),
        "rmsnorm": (f"ts.op.rmsnorm(x, scale, {EPS})", "rmsnorm(x, scale)", {"scale": vector}),
        "gelu": ("ts.op.gelu(x)", "gelu(x)", {}), "bias": ("ts.op.bias_activation(x, scale, 'silu')", "silu(x + scale)", {"scale": vector}),
    }  # fmt: skip
    call, meaning, extra = texts.get(kind, (f"ts.op.{kind}(x)", f"{kind}(x)", {}))
    return {
        "kind": kind, "dtype": dtype, "shape": (M, N), "arrays": {"x": x, **extra}, "out": x, "call": call, "meaning": meaning,
        "along": ("x",), "loss": LOSS[dtype],
    }  # fmt: skip


def _chain(draw, first):
    """Elementwise steps around `first`, and the vectors that they use."""
    vectors, text = [], first
    for _ in range(draw.randint(0, 2)):
        step = draw.choice((*ACTIVATIONS, "scale", "shift"))
        if step in ("scale", "shift"):
            if step not in vectors:
                vectors.append(step)
                text = f"({text} * scale)" if step == "scale" else f"({text} + shift)"
        else:
            text = f"{step}({text})"
    return text, vectors


#: Statistics of a row that is read in pieces: how a piece `u` changes them, and how they change a piece.
PIECES = {
    "softmax": (
        "new = ts.tile.maximum(top, ts.tile.max(u))", "total = total * ts.tile.exp(top - new) + ts.tile.sum(ts.tile.exp(u - new))",
        "top = new",
    ),
    "rmsnorm": ("total = total + ts.tile.sum(u * u)",),
    "layernorm": ("top = top + ts.tile.sum(u)", "total = total + ts.tile.sum(u * u)"),
}  # fmt: skip
APPLIED = {
    "softmax": ((), "ts.tile.exp(u - top) / total"),
    "rmsnorm": ((f"total = ts.tile.rsqrt(total / N + {EPS})",), "u * total"),
    "layernorm": (("top = top / N", f"total = ts.tile.rsqrt(total / N - top * top + {EPS})"), "(u - top) * total"),
}  # fmt: skip
#: Rows of more elements are read in pieces.
WHOLE = 16384


@drawn("textbook rows", 3)
def textbook_rows(draw, limits):
    """Elementwise steps, a normalisation, elementwise steps: one group for some rows, or one for each row in pieces."""
    dtype = draw.choice(limits.dtypes)
    M, N = draw.matrix(*limits.bytes, BYTES[dtype])
    norm = draw.choice(NORMS)
    before, first = _chain(draw, "{x}")
    after, last = _chain(draw, "{n}")
    vectors = sorted({*first, *last})
    arrays = {"x": Array((M, N), dtype), **{name: Array((N,), dtype, "weights") for name in vectors}}
    pieces = N > WHOLE or N > 1024 and draw.random() < 0.3
    if pieces:
        at = lambda text: text.replace("scale", "scale[n:n + t.T]").replace("shift", "shift[n:n + t.T]")  # noqa: E731
        folds = "\n    ".join(PIECES[norm])
        settled, applied = APPLIED[norm]
        outside = "-math.inf" if norm == "softmax" else "0.0"
        lines = "\n".join(settled)
        body = f"""
t = ts.tile.context()
row = ts.tile.program_id(0)
top = {"-math.inf" if norm == "softmax" else "0.0"}
total = 0.0
for n in ts.tile.range(0, N, t.T):
    u = ts.tile.bounds_mask(ts.tile.cast({at(before).format(x="x[row, n:n + t.T]")}, ts.f32), cols=N - n, value={outside})
    {folds}
{lines}
for n in ts.tile.range(0, N, t.T):
    u = {at(before).format(x="x[row, n:n + t.T]")}
    u = {applied}
    out[row, n:n + t.T] = ts.tile.cast({at(after).format(n="u")}, ts.{dtype})
"""
        space = {"T": draw.some(fitting([1024, 2048, 4096, 8192], N))}
    else:
        at = lambda text: text.replace("scale", "scale[:][None, :]").replace("shift", "shift[:][None, :]")  # noqa: E731
        body = f"""
t = ts.tile.context()
m = ts.tile.program_id(0) * t.R
u = {at(before).format(x="x[m:m + t.R, :]")}
u = {norm}(u)
out[m:m + t.R, :] = ts.tile.cast({at(after).format(n="u")}, ts.{dtype})
"""
        tall = [r for r in POWERS[:11] if 1024 <= r * N <= 8192] or [1 if N > 4096 else 1024]
        space = {"R": draw.some(fitting(tall, M))}
    parameters = signature({"x": ('"M", "N"', dtype), **{v: ('"N"', dtype) for v in vectors}}, ('"M", "N"', dtype))
    meaning = after.format(n=f"{norm}({before.format(x='x')})")
    return {
        "kind": f"{meaning}, {'pieces' if pieces else 'whole'}", "dtype": dtype, "shape": (M, N), "arrays": arrays, "out": Array((M, N), dtype),
        "call": f"drawn({', '.join(arrays)}, out)", "meaning": meaning, "source": kernel(parameters, body), "space": space, "along": ("x",),
        "loss": 4 * LOSS[dtype] if norm == "layernorm" else 2 * LOSS[dtype],
    }  # fmt: skip


# Elements


@drawn("elementwise", 2)
def elementwise(draw, limits):
    """A drawn function of one to three arrays, by `ts.op.elementwise`."""
    dtype = draw.choice(limits.dtypes)
    count = draw.randint(1, 3)
    M, N = draw.matrix(*limits.bytes, BYTES[dtype], passes=count + 1)
    arrays = {"x": Array((M, N), dtype)}
    for name in ("y", "z")[: count - 1]:
        arrays[name] = Array((M, N) if draw.random() < 0.7 else (N,), dtype)
    text, _ = "x", None
    for name in arrays:
        step = draw.choice(ACTIVATIONS)
        text = f"{step}({text})" if name == "x" else f"{step}({text} {draw.choice('+*-')} {name})"
    names = ", ".join(arrays)
    source = f"{TILE_SOURCE}@ts.func\ndef f({names}):\n    return {text}\n"
    return {
        "kind": text, "dtype": dtype, "shape": (M, N), "arrays": arrays, "out": Array((M, N), dtype), "call": f"ts.op.elementwise(f, {names})",
        "meaning": text, "source": source, "along": tuple(n for n, a in arrays.items() if len(a.shape) > 1), "size": 1.0, "loss": LOSS[dtype],
    }  # fmt: skip


# Reductions


OPS = ("sum", "max", "mean", "min")


def _size(op, count):
    return {"sum": math.sqrt(count), "mean": 1 / math.sqrt(count)}.get(op, 1.0)


def _reduction(draw, limits, axis):
    dtype = draw.choice(limits.dtypes)
    M, N = draw.matrix(*limits.bytes, BYTES[dtype], passes=1)
    op = draw.choice(OPS)
    out = Array((N if axis == 0 else M,), dtype)
    x = Array((M, N), dtype)
    given = {"kind": op, "dtype": dtype, "shape": (M, N), "arrays": {"x": x}, "out": out, "along": ("x",) if axis else ()}
    given |= {"size": _size(op, (M, N)[axis]), "loss": LOSS[dtype]}
    if draw.random() < 0.5:
        return {**given, "call": f"ts.op.{op}(x, axis={axis})", "meaning": f"reduced(x, {op!r}, {axis})"}
    # A function of the elements, which are 0 where they are padding and stay so.
    function = draw.choice(("square", "absolute", "relu", "silu", "tanh"))
    op = draw.choice(("sum", "mean"))
    if dtype == "f16" and (M, N)[axis] > MOST_SUMMANDS:
        op = "mean"
    given |= {"kind": f"{op}({function}(x)), textbook", "meaning": f"reduced({function}(x), {op!r}, {axis})", "call": "drawn(x, out)"}
    given |= {"size": _size(op, (M, N)[axis]) }
    part = f" / {'N' if axis else 'M'}" if op == "mean" else ""
    if axis:
        space = areas(draw, POWERS[:9], [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048], M, N, 4096)
        body = f"""
t = ts.tile.context()
m = ts.tile.program_id(0) * t.R
acc = ts.tile.zeros((t.R, t.C), ts.f32)
for n in ts.tile.range(0, N, t.C):
    acc = acc + {function}(x[m:m + t.R, n:n + t.C])
out[m:m + t.R] = ts.tile.cast(ts.tile.sum(acc, axis=1){part}, ts.{dtype})
"""
        return {**given, "source": kernel(signature({"x": ('"M", "N"', dtype)}, ('"M"', dtype)), body), "space": space}
    space = areas(draw, POWERS[:10], [4, 8, 16, 32, 64, 128], M, N, 4096)
    loop = f"acc = ts.tile.zeros((t.R, t.C), ts.f32)\nfor m in ts.tile.range({{}}, {{}}, t.R):\n    acc = acc + {function}(x[m:m + t.R, n:n + t.C])"
    if N >= FEW_STRIPS * space["C"][-1]:
        body = f"""
t = ts.tile.context()
n = ts.tile.program_id(0) * t.C
{loop.format(0, "M")}
out[n:n + t.C] = ts.tile.cast(ts.tile.sum(acc, axis=0){part}, ts.{dtype})
"""
        return {**given, "source": kernel(signature({"x": ('"M", "N"', dtype)}, ('"N"', dtype)), body), "space": space}
    # Few strips of columns: groups share them, and add what they have to the result.
    # Chunks of rows are whole tiles, so that no row is counted twice.
    chunk = -(-M // (512 * space["R"][-1])) * space["R"][-1]
    body = f"""
t = ts.tile.context()
i, j = ts.tile.grid(ts.cdiv(M, {chunk}), ts.cdiv(N, t.C))
n = j * t.C
{loop.format(f"i * {chunk}", f"min(M, i * {chunk} + {chunk})")}
out[n:n + t.C] += ts.tile.sum(acc, axis=0){part}
"""
    parameters = signature({"x": ('"M", "N"', dtype)}, ('"N"', "f32"))
    parameters = parameters.replace('out: ts.Out["N", ts.f32]', 'out: ts.Region[ts.reduce_sum, ts.Tensor["N", ts.f32]]')
    given |= {"kind": f"{given['kind']}, shared", "out": Array(out.shape, "f32"), "call": "drawn(x, zeroed(out))"}
    return {**given, "source": kernel(parameters, body), "space": space}


#: The sum of more squares is likely to be infinite in f16.
MOST_SUMMANDS = 1 << 14

#: With fewer strips of columns, groups share each.
FEW_STRIPS = 64


@drawn("row reduction", 2)
def row_reduction(draw, limits):
    return _reduction(draw, limits, 1)


@drawn("column reduction", 2)
def column_reduction(draw, limits):
    return _reduction(draw, limits, 0)


# Moves


@drawn("transpose", 2)
def transpose(draw, limits):
    dtype = draw.choice(limits.dtypes)
    M, N = draw.matrix(*limits.bytes, BYTES[dtype])
    given = {"dtype": dtype}
    if draw.random() < 0.6:
        if draw.random() < 0.5 and M >= 4:  # three axes
            P = draw.randint(2, min(M, 64))
            shape, axes = (P, max(1, M // P), N), draw.choice(((0, 2, 1), (2, 1, 0), (1, 0, 2), (1, 2, 0)))
        else:
            shape, axes = (M, N), (1, 0)
        out = Array(tuple(shape[a] for a in axes), dtype)
        call = {"call": f"ts.op.transpose(x, {axes})", "meaning": f"transposed(x, {axes})", "kind": f"axes {axes}"}
        return {**given, **call, "shape": shape, "arrays": {"x": Array(shape, dtype)}, "out": out}
    function = draw.choice(("relu", "silu", "square"))
    body = f"""
t = ts.tile.context()
i, j = ts.tile.grid(ts.cdiv(M, t.A), ts.cdiv(N, t.B))
m = i * t.A
n = j * t.B
out[n:n + t.B, m:m + t.A] = ts.tile.cast({function}(ts.tile.transpose(x[m:m + t.A, n:n + t.B])), ts.{dtype})
"""
    return {
        **given, "kind": f"{function}(x).T, textbook", "shape": (M, N), "arrays": {"x": Array((M, N), dtype)}, "out": Array((N, M), dtype),
        "call": "drawn(x, out)", "meaning": f"transposed({function}(x), (1, 0))", "size": 1.0, "loss": LOSS[dtype],
        "source": kernel(signature({"x": ('"M", "N"', dtype)}, ('"N", "M"', dtype)), body),
        "space": {"A": draw.some(fitting([8, 16, 32, 64, 128], M)[-3:]), "B": draw.some(fitting([8, 16, 32, 64, 128], N)[-3:])},
    }  # fmt: skip


@drawn("stencil", 2)
def stencil(draw, limits):
    """A weighted sum of shifted copies, with zeros around, and perhaps a function of it."""
    dtype = draw.choice(limits.dtypes)
    M, N = draw.matrix(*limits.bytes, BYTES[dtype])
    radius = draw.randint(1, 3)
    places = [(i, j) for i in range(-radius, radius + 1) for j in range(-radius, radius + 1)]
    if draw.random() < 0.5:
        places = [(i, j) for i, j in places if i == 0 or j == 0]
    places = [(0, 0), *(p for p in draw.some(places, least=2) if p != (0, 0))]
    weights = [round(draw.uniform(-1, 1), 3) or 0.5 for _ in places]
    function = draw.choice(("", "", "relu", "tanh"))
    r = max(max(abs(i), abs(j)) for i, j in places)
    at = lambda base, d: f"{base}{d:+d}" if d else base  # noqa: E731
    terms = [f"{w} * x[{at('m', i)}:{at('m', i)} + t.R, {at('n', j)}:{at('n', j)} + t.C]" for w, (i, j) in zip(weights, places)]
    whole = [f"{w} * p[{r + i}:{r + i} + M, {r + j}:{r + j} + N]" for w, (i, j) in zip(weights, places)]
    apply = lambda text: f"{function}({text})" if function else text  # noqa: E731
    body = f"""
t = ts.tile.context()
i, j = ts.tile.grid(ts.cdiv(M, t.R), ts.cdiv(N, t.C))
m = i * t.R
n = j * t.C
u = {(" + ").join(terms)}
out[m:m + t.R, n:n + t.C] = ts.tile.cast({apply("u")}, ts.{dtype})
"""
    size = sum(abs(w) for w in weights)
    return {
        "kind": f"{len(places)} points{', ' + function if function else ''}", "dtype": dtype, "shape": (M, N), "arrays": {"x": Array((M, N), dtype)},
        "out": Array((M, N), dtype), "call": "drawn(x, out)", "meaning": f"(lambda p, M={M}, N={N}: {apply(' + '.join(whole))})(padded(x, {r}))",
        "source": kernel(signature({"x": ('"M", "N"', dtype)}, ('"M", "N"', dtype)), body),
        "space": areas(draw, POWERS[:9], [4, 8, 16, 32, 64, 128, 256], M, N, 4096), "size": size, "loss": LOSS[dtype],
        "torch": {"conv2d": apply(f"F.conv2d(x[None, None], taps({r}, {places}, {weights}), padding={r})") + "[0, 0]"},
    }  # fmt: skip


@drawn("gather", 2)
def gather(draw, limits):
    """Rows of a table, or elements of each row, at random positions."""
    dtype = draw.choice(limits.dtypes)
    M, N = draw.matrix(*limits.bytes, BYTES[dtype])
    function = draw.choice(("", "", "silu", "square"))
    apply = lambda text: f"{function}({text})" if function else text  # noqa: E731
    index = draw.choice(("int32", "int64"))
    x, given = Array((M, N), dtype), {"dtype": dtype, "size": 1.0, "loss": LOSS[dtype]}
    each = BYTES[dtype]
    if draw.random() < 0.6:
        count = draw.length(1, 2 * M) if M > 1 else 1
        arrays = {"x": x, "rows": Array((count,), index, f"below {M}")}
        body = f"""
t = ts.tile.context()
i, j = ts.tile.grid(ts.cdiv(n, t.R), ts.cdiv(N, t.C))
i0 = i * t.R
j0 = j * t.C
at = rows[i0:i0 + t.R]
u = ts.tile.load(x, (at[:, None], (j0 + ts.tile.arange(t.C))[None, :]), other=0.0)
out[i0:i0 + t.R, j0:j0 + t.C] = ts.tile.cast({apply("u")}, ts.{dtype})
"""
        dims, shape = {"x": '"M", "N"', "rows": '"n"', "out": '"n", "N"'}, (M, N, count)
        out, meaning, kind = Array((count, N), dtype), apply("taken(x, rows)"), "rows"
        # A row that is taken several times is read once at best.
        moved = out.bytes + arrays["rows"].bytes + min(count, M) * N * each
    else:
        count = min(max(1, draw.length(1, 2 * N)), max(1, 2**28 // M))
        arrays = {"x": x, "columns": Array((M, count), index, f"below {N}")}
        body = f"""
t = ts.tile.context()
i, j = ts.tile.grid(ts.cdiv(M, t.R), ts.cdiv(n, t.C))
i0 = i * t.R
j0 = j * t.C
at = columns[i0:i0 + t.R, j0:j0 + t.C]
u = ts.tile.load(x, ((i0 + ts.tile.arange(t.R))[:, None], at), other=0.0)
out[i0:i0 + t.R, j0:j0 + t.C] = ts.tile.cast({apply("u")}, ts.{dtype})
"""
        dims, shape = {"x": '"M", "N"', "columns": '"M", "n"', "out": '"M", "n"'}, (M, N, count)
        out, meaning, kind = Array((M, count), dtype), apply("taken_along(x, columns)"), "elements of rows"
        moved = out.bytes + arrays["columns"].bytes + M * min(count, N) * each
    parameters = signature({name: (dims[name], a.dtype) for name, a in arrays.items()}, (dims["out"], dtype))
    return {
        **given, "kind": f"{kind}, {index}{', ' + function if function else ''}", "shape": shape, "arrays": arrays, "out": out, "moved": moved,
        "call": f"drawn({', '.join(arrays)}, out)", "meaning": meaning, "source": kernel(parameters, body),
        "space": areas(draw, POWERS[:9], [4, 8, 16, 32, 64, 128, 256], *out.shape, 2048),
    }  # fmt: skip

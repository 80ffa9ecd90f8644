"""Every function of `ts.xp`, `ts.op` and `ts.nn` on arrays on a mesh, immediately and under `ts.jit`: the values of the same call on arrays
of the host, as arrays on the mesh."""

import re
from pathlib import Path

import graph_ops
import numpy as np
import pytest
import xp_cases

import tessera as ts
from tessera import dist, nn, op, xp
from tessera.trace.execute import oracle

MESH = dist.mesh(4, ("a", "b"), (2, 2))
#: Even and uneven, one axis and several, on any dim.
SPECS = [dist.spec("a", "b"), dist.spec("b"), dist.spec(None, "a"), dist.spec(("a", "b")), dist.spec(None, dist.Cyclic(("b",))), dist.spec("a", sum=("b",))]


def f(*shape, low=-2.0, high=2.0, seed=0):
    return xp_cases.f(*shape, low=low, high=high, seed=seed)


X, Y, W, SQUARE = f(4, 6), f(4, 6, seed=1), f(6, 5), f(4, 4)
TRUE, I, J = X > 0, xp_cases.i(4, 6), xp_cases.i(4, 6, low=0, high=4, seed=3)
IDS, POSITIONS, LABELS = np.int32([0, 2, 0, 1]), np.array([2, 0]), np.array([1, 0, 3, 5])
SOFT = np.exp(X) / np.exp(X).sum(-1, keepdims=True)
Q, K = f(2, 3, 5, 4), f(2, 3, 7, 4)
MEAN, RSTD = X.mean(-1), 1 / np.sqrt(X.var(-1) + 1e-5)


@ts.func
def twice(x):
    return x * 2.0


#: What has no row in the tables of other tests: by space and name, or names, the call and its arrays.
ROWS = {
    "xp asarray": (lambda x: xp.asarray(x, dtype="f64"), (X,)), "xp full_like": (lambda x: xp.full_like(x, 3.0), (X,)),
    "xp ones_like zeros_like empty_like": (lambda x: (xp.ones_like(x), xp.zeros_like(x, dtype="i32"), xp.empty_like(x)), (X,)),
    "xp asarray of a list": (lambda x, y: xp.asarray([x, y]), (X, Y)), "xp full": (lambda v: xp.full((3, 2), v), (np.float32(2.5),)),
    "xp linspace": (lambda v: xp.linspace(v, 4.0, 5), (f(4),)), "nn one_hot": (lambda i: nn.one_hot(i, 4), (IDS,)),
    "xp bitwise_and bitwise_or bitwise_xor": (lambda a, b: (xp.bitwise_and(a, b), xp.bitwise_or(a, b), xp.bitwise_xor(a, b)), (I, J)),
    "xp bitwise_invert": (xp.bitwise_invert, (I,)),
    "xp bitwise_left_shift bitwise_right_shift": (lambda a, b: (xp.bitwise_left_shift(a, b), xp.bitwise_right_shift(a, b)), (I, J)),
    "xp searchsorted": (xp.searchsorted, (np.float32([-1, 0, 1, 2]), Y)), "xp getitem at": (lambda x, v: xp.getitem(xp.at(x)[1].set(v), (slice(None), 2)), (X, X[1])),
    "xp lgamma gammaln digamma": (lambda x: (xp.lgamma(x), xp.digamma(x)), (f(4, 6, low=0.5),)),
    "xp polygamma erfinv": (lambda x: (xp.polygamma(1, x), xp.erfinv(x - 1)), (f(4, 6, low=0.5, high=1.5),)),
    "xp segment_sum segment_prod segment_max segment_min": (lambda x, i: [getattr(xp, f"segment_{n}")(x, i, 3) for n in ("sum", "prod", "max", "min")], (X, IDS)),
    "xp bincount": (lambda i: xp.bincount(i, length=4), (IDS,)), "xp argpartition lexsort": (lambda x, y: (xp.argpartition(x, 2), xp.lexsort([x, y])), (X[0], Y[0])),
    "xp cummax cummin cumlogsumexp partition": (lambda x: (xp.cummax(x, axis=1), xp.cummin(x, axis=0), xp.cumlogsumexp(x, axis=1), xp.partition(x, 2)), (X,)),
    "xp cumsum cumprod": (lambda x: (xp.cumsum(x), xp.cumprod(x, 0)), (X,)), "xp put_along_axis": (lambda x, v: xp.put_along_axis(x, np.array([[1, 0]] * 4), v, 1), (X, X[:, :2])),
    "xp argwhere flatnonzero nonzero": (lambda x: (xp.argwhere(x), xp.flatnonzero(x), xp.nonzero(x)), (TRUE,)),
    "xp extract compress": (lambda t, x: (xp.extract(t, x), xp.compress([True, False, True], x, 0)), (TRUE, X)), "xp a mask": (lambda t, x: x[t], (TRUE, X)),
    "xp unique unique_all unique_counts unique_inverse unique_values": (
        lambda x: (xp.unique(x), xp.unique_all(x), xp.unique_counts(x), xp.unique_inverse(x), xp.unique_values(x)), (J,)),
    "xp union1d intersect1d setdiff1d setxor1d": (lambda a, b: [getattr(xp, n)(a, b) for n in ("union1d", "intersect1d", "setdiff1d", "setxor1d")], (J[0], J[1])),
    "xp sizes": (lambda x: (xp.unique(x, size=4), xp.nonzero(x, size=5), xp.argwhere(x, size=3), xp.union1d(x, x, size=4)), (J,)),
    "nn dropout": (lambda x: nn.dropout(ts.random.key(3), x, 0.5), (X,)), "nn conv_transpose": (lambda x, w: nn.conv_transpose(x, w, 2), (f(1, 2, 4), f(2, 3, 2))),
    "nn rope": (nn.rope, (f(2, 4, 6, 4),)), "nn standardize": (lambda x: nn.standardize(x, 0), (X,)),
    "op matmul": (lambda a, b, c: op.matmul(a, b, bias=c, activation="gelu", residual=c, scale=0.5), (X, W, f(5))), "op gemm": (lambda a, b: op.gemm(a, b, trans_b=True), (X, Y)),
    "op batched_gemm gemv factorized_matmul": (lambda x, w, v: (op.batched_gemm(x, w), op.gemv(x, w[:, 0]), op.factorized_matmul(x, w, v)), (X, W, f(5, 2))),
    "op grouped_gemm": (op.grouped_gemm, (X, f(3, 6, 5), np.array([2, 0, 1]))), "op flash_attention": (lambda q, k: op.flash_attention(q, k, k, causal=True), (Q, K)),
    "op softmax log_softmax softmax_safe": (lambda x: (op.softmax(x), op.log_softmax(x, axis=0), op.softmax_safe(x)), (X,)),
    "op softmax_backward log_softmax_backward": (lambda d, y: (op.softmax_backward(d, y), op.log_softmax_backward(d, xp.log(y), axis=0)), (X, SOFT)),
    "op layernorm rmsnorm layer_norm rms_norm": (lambda x, w: (op.layernorm(x, w, w, return_stats=True), op.rmsnorm(x, w, return_stats=True)), (X, f(6))),
    "op layernorm_safe rmsnorm_safe layer_norm_safe": (lambda x, w: (op.layernorm_safe(x, w), op.rmsnorm_safe(x, w)), (X, f(6))),
    "op layernorm_backward": (op.layernorm_backward, (Y, X, MEAN, RSTD, f(6))), "op rmsnorm_backward": (op.rmsnorm_backward, (Y, X, RSTD, f(6))),
    "op layernorm_backward of a vector": (lambda d, x, m, r: op.layernorm_backward(d, x, m, r)[0], (Y[0], X[0], MEAN[0], RSTD[0])),
    "op cross_entropy": (lambda x, i: op.cross_entropy(x, i, reduction="sum", return_lse=True), (X, LABELS)),
    "op cross_entropy_backward": (lambda x, i, n: op.cross_entropy_backward(1.5, x, i, n, ignore_index=3), (X, LABELS, np.log(np.exp(X).sum(-1)))),
    "op cross_entropy_backward of each": (lambda d, x, i, n: op.cross_entropy_backward(d, x, i, n, reduction="none"), (X[:, 0], X, LABELS, np.log(np.exp(X).sum(-1)))),
    "op sum mean max min prod": (lambda x: [getattr(op, n)(x, 1, keepdims=True) for n in ("sum", "mean", "max", "min", "prod")], (X,)),
    "op argmax argmin transpose": (lambda x: (op.argmax(x, 1), op.argmin(x), op.transpose(x)), (X,)), "op elementwise": (lambda x: op.elementwise(twice, x), (X,)),
    "op saxpy": (lambda x, y: op.saxpy(2.0, x, y), (X, Y)), "op gelu gelu_safe": (lambda x: (op.gelu(x, approximate=True), op.gelu_safe(x)), (X,)),
    "op bias_activation logsumexp_safe silu_mul": (lambda x, b: (op.bias_activation(x, b, "silu"), op.logsumexp_safe(x), op.silu_mul(x, x)), (X, f(6))),
    "op gather": (lambda x, i: op.gather(x, i, 1), (X, POSITIONS)), "op scatter": (lambda x, i, v: op.scatter(x, i, v), (X, POSITIONS, Y[:2])),
    "op scatter_add": (lambda x, i, v: op.scatter_add(x, i, v, axis=1), (X, POSITIONS, Y[:, :2])), "op segment_reduce": (lambda x, i: op.segment_reduce(x, i, 3, "mean"), (X, IDS)),
    "op names of others": (lambda x, y: (op.add(x, y), op.var(x), op.mse(x, y), op.swish(x), op.concat([x, y], axis=1), op.where(x > y, x, y)), (X, Y)),
}  # fmt: skip
#: These run on arrays of the host: what they give has a size that depends on values, or they are kernels written in the tile language.
OUTSIDE = {"xp argwhere flatnonzero nonzero", "xp extract compress", "xp a mask", "xp unique unique_all unique_counts unique_inverse unique_values",
           "xp union1d intersect1d setdiff1d setxor1d", "op elementwise"}  # fmt: skip
#: Functions that give no arrays of their arguments' elements, and why.
NO_ARRAYS = {
    **dict.fromkeys("can_cast finfo iinfo isdtype result_type promote_types issubdtype".split(), "tell of dtypes"),
    **dict.fromkeys("broadcast_shapes ndim shape size iterable isscalar isrealobj iscomplexobj".split(), "tell of shapes"),
    **dict.fromkeys("arange eye ones zeros empty".split(), "take no arrays"), "from_dlpack": "takes arrays in one memory: refused",
    "block_mask": "gives an object for later calls", "leaf": "declares a field of a module", "static": "declares a field of a module",
}  # fmt: skip
#: Functions of `ts.xp` and of `ts.nn` under other names.
SAME = {"tanh", "sigmoid", "hard_swish", "swish"}
#: By the shape of their arguments alone.
BY_SHAPE = {"diag_indices_from", "tril_indices_from", "triu_indices_from", "indices", "mask_indices"}


def placed(args, shift=0):
    return [dist.shard(a, SPECS[(k + shift) % len(SPECS)] if a.ndim > 1 else SPECS[3 if a.ndim else 5] if a.ndim else None, MESH) if isinstance(a, np.ndarray) and a.ndim else
            dist.replicate(a, MESH) if isinstance(a, (np.ndarray, np.generic)) else a for k, a in enumerate(args)]  # fmt: skip


def leaves(x):
    return [v for part in x for v in leaves(part)] if isinstance(x, (list, tuple)) else [x]


def others():
    """A call of each function in the tables of other tests, on arrays with axes where there is one."""
    best = {}
    for c in xp_cases.CASES:
        args = tuple(np.asarray(a) if isinstance(a, np.generic) else a for a in c.args)
        best.setdefault(f"xp {c.names}", []).append((lambda *a, c=c: c.call(xp, *a), args))
    for o in graph_ops.OPS:
        if o.name != "dynamic_slice":  # a primitive of traces alone
            best[f"row {o.name}"] = [(o.fn, tuple(graph_ops.arguments(o, s))) for s in o.shapes]
    return {n: max(found, key=lambda row: sum(np.size(a) > 1 for a in row[1])) for n, found in best.items() if any(isinstance(a, np.ndarray) for a in found[0][1])}


CALLS = {**others(), **ROWS}


def check(name, how, shift):
    fn, args = CALLS[name]
    with oracle():
        want = leaves(fn(*args))
    given = placed(args, shift)
    got = leaves(ts.jit(fn)(*given) if how == "jit" else fn(*given))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        if g is None and w is None:
            continue
        assert isinstance(g, dist.DistArray) and g.mesh == MESH or set(name.split()) & BY_SHAPE, type(g)
        g, w = np.asarray(g), np.asarray(w)
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g.astype("f8"), w.astype("f8"), rtol=2e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:W_UNEVEN", "ignore:Mean of empty")
@pytest.mark.parametrize("name", CALLS)
def test_on_a_mesh_as_on_the_host(name):
    at = list(CALLS).index(name)
    check(name, "immediately", at)
    # Of the tables of other tests some: what runs immediately is a program too.
    if name not in OUTSIDE and (name in ROWS or at % 16 == 0):
        check(name, "jit", at + 1)


@pytest.mark.parametrize("name", ["op matmul", "op names of others", "op softmax_backward log_softmax_backward", "row where", "row concat"])
def test_arrays_of_the_host_beside_one_on_a_mesh(name):
    fn, args = CALLS[name]
    for got in leaves(fn(*placed(args[:1]), *args[1:])):
        assert isinstance(got, dist.DistArray)


def test_results_like_an_array_are_where_it_is():
    x = dist.shard(X, dist.spec("a", "b"), MESH)
    assert xp.zeros_like(x).placements == xp.asarray(x).placements == x.placements
    parts = dist.shard(X, dist.spec(None, "b", sum=("a",)), MESH)
    assert ts.jit(xp.ones_like)(parts).placements == ("R", "S(1)")


def test_functions_of_tiles_are_refused_in_a_program():
    with pytest.raises(ts.TesseraError) as found:
        op.matmul(dist.replicate(X, MESH), W, epilogue=twice)
    assert found.value.code == "E_UNSUPPORTED" and found.value.file == __file__


def test_no_function_is_left_out_without_a_reason():
    rows = Path(graph_ops.__file__).read_text().partition("LEFT_OUT")[0]
    named = {n for key in (*ROWS, *(f"xp {c.names}" for c in xp_cases.CASES)) for n in key.split()}
    bare = []
    for space in (xp, nn, op):
        public = {n: v for n, v in vars(space).items() if not n.startswith("_") and callable(v) and not isinstance(v, (type, ts.DType)) and (space is not op or n in op.__all__)}
        for name, value in public.items():
            # Other names of one function share its row; those of `ts.op` are mostly functions of the two others.
            names = {n for n, v in public.items() if v is value}
            if space is op and (name in op._names._XP or name in {entry.partition(":")[0] for entry in op._names._NN}):
                continue
            if not names & (named | NO_ARRAYS.keys() | SAME) and not any(re.search(rf'\b(xp|nn)\.{n}\b|"{n}"', rows) for n in names):
                bare.append(f"{space.__name__}.{name}")
    assert not bare

"""`ts.op.flash_attention` against float64, over a grid of its options."""

import itertools
import math

import numpy as np
import pytest

import tessera as ts


def wide(x):
    return np.asarray(x).astype(np.float64)


def reference(q, k, v, causal=False, scale=None, window=None, score=None, mask=None):
    """Scores in full. ``score(s, h, q, k)`` and ``mask(h, q, k)`` get places that broadcast against ``[H, Sq, Sk]``."""
    q, k, v = wide(q), wide(k), wide(v)
    (_, H, Sq, D), (HK, Sk) = q.shape, k.shape[1:3]
    k, v = np.repeat(k, H // HK, 1), np.repeat(v, H // HK, 1)
    s = np.einsum("bhqd,bhkd->bhqk", q, k) * (1 / math.sqrt(D) if scale is None else scale)
    h, i, j = np.arange(H)[:, None, None], np.arange(Sq)[:, None], np.arange(Sk)[None, :]
    s = s if score is None else score(s, h, i, j)
    at = i if causal == "top_left" else i + Sk - Sq
    seen = np.ones((Sq, Sk), bool)
    if causal:
        seen &= j <= at
    if window is not None:
        left, right = window if isinstance(window, tuple) else (window - 1, None if causal else window - 1)
        left, right = (None if side == -1 else side for side in (left, right))
        seen = seen if left is None else seen & (j >= at - left)
        seen = seen if right is None else seen & (j <= at + right)
    if mask is not None:
        seen = seen & mask(h, i, j)
    s = np.where(seen, s, -np.inf)
    top = s.max(-1, keepdims=True)
    top = np.where(np.isinf(top), 0, top)
    p = np.exp(s - top)
    l = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(l))[..., 0]
    return (p / np.where(l > 0, l, 1)) @ v, lse


def arrays(rng, B, H, HK, Sq, Sk, D, DV, dtype="f32"):
    made = [rng.standard_normal(shape) for shape in ((B, H, Sq, D), (B, HK, Sk, D), (B, HK, Sk, DV))]
    return [ts.array(x, dtype) for x in made]


def close(got, expected, bound):
    difference = np.zeros_like(expected)
    with np.errstate(invalid="ignore"):
        np.subtract(wide(got), expected, out=difference, where=wide(got) != expected)
    assert np.abs(difference).max(initial=0) <= bound


LENGTHS = [(1, 1), (70, 70), (33, 130), (130, 33)]
MASKS = [(c, w) for c in (False, True, "top_left") for w in (None, 1, 20, (5, 3), (None, 2), (64, 0))]


@pytest.mark.parametrize(("D", "DV"), [(32, 32), (96, 40), (64, 64), (256, 16)])
@pytest.mark.parametrize(("H", "HK"), [(2, 2), (4, 1), (6, 2)])
def test_the_grid(D, DV, H, HK):
    """With the two lists above 864 combinations."""
    rng = np.random.default_rng(D + H)
    for (Sq, Sk), (causal, window) in itertools.product(LENGTHS, MASKS):
        q, k, v = arrays(rng, 1, H, HK, Sq, Sk, D, DV)
        o, lse = ts.op.flash_attention(q, k, v, causal, window=window, return_lse=True)
        expected, sums = reference(q, k, v, causal, window=window)
        close(o, expected, 1e-5)
        close(lse, sums, 1e-4)


@pytest.mark.parametrize(("dtype", "bound"), [("bf16", 2e-2), ("f16", 3e-3)])
def test_narrow_dtypes(dtype, bound):
    q, k, v = arrays(np.random.default_rng(0), 2, 4, 2, 100, 200, 64, 64, dtype)
    got = ts.op.flash_attention(q, k, v, causal=True)
    assert got.dtype == q.dtype
    close(got, reference(q, k, v, True)[0], bound)


def test_layouts_are_the_same_numbers():
    q, k, v = arrays(np.random.default_rng(1), 2, 4, 2, 50, 60, 32, 32)
    expected = ts.op.flash_attention(q, k, v, is_causal=True)
    turned = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v)]
    assert (ts.op.flash_attention(*turned, causal=True, layout="bshd").swapaxes(1, 2) == expected).all()
    flat = [x.reshape(-1, *x.shape[2:]) for x in (q, np.repeat(k, 2, 1), np.repeat(v, 2, 1))]
    o, lse = ts.op.flash_attention(*flat, causal=True, return_lse=True)
    assert (o == expected.reshape(o.shape)).all() and lse.shape == o.shape[:2]
    wide_rows = [np.concatenate([x, x], -1)[..., : x.shape[-1]] for x in (q, k, v)]
    assert (ts.op.flash_attention(*wide_rows, causal=True) == expected).all()


@ts.func
def capped(s, b, h, q, k):
    return 5.0 * ts.tile.tanh(s / 5.0)


@ts.func
def alibi(s, b, h, q, k, slopes):
    return s + slopes[h] * ts.tile.cast(k - q, ts.f32)


@ts.func
def biased(s, b, h, q, k, bias, more):
    return s + bias[h, q, k] + more[k]


@ts.func
def same_document(b, h, q, k, documents):
    return documents[q] == documents[k]


@ts.func
def even(b, h, q, k):
    return (q + k) % 2 == 0


def test_scores_are_changed():
    rng = np.random.default_rng(2)
    q, k, v = arrays(rng, 2, 2, 1, 70, 90, 32, 32)
    close(ts.op.flash_attention(q, k, v, score_mod=capped), reference(q, k, v, score=lambda s, h, i, j: 5 * np.tanh(s / 5))[0], 1e-5)
    slopes = np.array([0.5, 0.25], np.float32)
    expected, _ = reference(q, k, v, True, score=lambda s, h, i, j: s + slopes[h] * (j - i))
    close(ts.op.flash_attention(q, k, v, True, score_mod=ts.bind(alibi, slopes=slopes)), expected, 1e-5)
    bias, more = rng.standard_normal((2, 70, 90)).astype(np.float32), rng.standard_normal(90).astype(np.float32)
    expected, _ = reference(q, k, v, score=lambda s, h, i, j: s + bias + more)
    close(ts.op.flash_attention(q, k, v, score_mod=ts.bind(biased, more=more, bias=bias)), expected, 1e-5)


def test_keys_are_masked():
    q, k, v = arrays(np.random.default_rng(3), 1, 2, 2, 80, 80, 32, 32)
    documents = np.repeat(np.arange(5), 16).astype(np.int32)
    expected, sums = reference(q, k, v, mask=lambda h, i, j: documents[i] == documents[j])
    o, lse = ts.op.flash_attention(q, k, v, mask_mod=ts.bind(same_document, documents=documents), return_lse=True)
    close(o, expected, 1e-5)
    close(lse, sums, 1e-4)
    expected, _ = reference(q, k, v, True, window=9, score=lambda s, h, i, j: 5 * np.tanh(s / 5), mask=lambda h, i, j: (i + j) % 2 == 0)
    close(ts.op.flash_attention(q, k, v, True, window=9, score_mod=capped, mask_mod=even), expected, 1e-5)


def test_rows_that_see_nothing_give_zeros():
    q, k, v = arrays(np.random.default_rng(4), 1, 1, 1, 40, 8, 32, 32)
    o, lse = ts.op.flash_attention(q, k, v, causal=True, return_lse=True)
    assert (o[0, 0, :32] == 0).all() and (lse[0, 0, :32] == -np.inf).all() and np.isfinite(lse[0, 0, 32:]).all()


def test_nan_stays_in_its_row():
    q, k, v = arrays(np.random.default_rng(5), 1, 2, 2, 70, 70, 32, 32)
    clean = ts.op.flash_attention(q, k, v, causal=True)
    q[0, 1, 7, 3] = np.nan
    got = ts.op.flash_attention(q, k, v, causal=True)
    assert np.isnan(got[0, 1, 7]).all()
    got[0, 1, 7] = clean[0, 1, 7]
    assert (got == clean).all()


def test_a_row_does_not_depend_on_the_batch():
    q, k, v = arrays(np.random.default_rng(6), 5, 2, 2, 70, 70, 32, 32)
    all_of_them = ts.op.flash_attention(q, k, v, causal=True)
    for b in range(5):
        assert (ts.op.flash_attention(q[b : b + 1], k[b : b + 1], v[b : b + 1], causal=True) == all_of_them[b : b + 1]).all()


def test_strict_is_the_interpreter():
    q, k, v = arrays(np.random.default_rng(7), 1, 2, 1, 20, 30, 16, 16)
    with ts.numerics.profile("strict"):
        compiled = ts.op.flash_attention(q, k, v, causal=True, window=9)
        ts.runtime.select_backend("interp")
        try:
            assert ts.op.flash_attention(q, k, v, causal=True, window=9).tobytes() == compiled.tobytes()
        finally:
            ts.runtime.select_backend(None)


@ts.func
def wrong_shape(s, b, h, q, k):
    return ts.tile.row_sum(s)


X = np.zeros((1, 2, 8, 16), np.float32)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: ts.op.flash_attention(X, X[0], X), "E_SHAPE_MISMATCH"),
        (lambda: ts.op.flash_attention(X, X[:, :, :4], X), "E_SHAPE_MISMATCH"),
        (lambda: ts.op.flash_attention(np.zeros((1, 3, 8, 16), np.float32), X, X), "E_SHAPE_MISMATCH"),
        (lambda: ts.op.flash_attention(X, X[..., :8], X), "E_SHAPE_MISMATCH"),
        (lambda: ts.op.flash_attention(X, X.astype(np.float16), X), "E_TYPE"),
        (lambda: ts.op.flash_attention(X.astype(int), X.astype(int), X.astype(int)), "E_TYPE"),
        (lambda: ts.op.flash_attention(X, X, X, causal="left"), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(X, X, X, window=-1), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(X, X, X, window=(1, 2, 3)), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(X, X, X, window=(5, -2)), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(X, X, X, layout="sbhd"), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(X, X, X, score_mod=lambda s, b, h, q, k: s), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(X, X, X, score_mod=wrong_shape), "E_SHAPE_MISMATCH"),
        (lambda: ts.op.flash_attention(X[..., :0], X[..., :0], X), "E_SHAPE_MISMATCH"),
        (lambda: ts.op.flash_attention(X, X, X, causal=np.ones(2)), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(X, X, X, window=True), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(X, X, X, window=(1.5, 2)), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(X, X, X, scale="x"), "E_TYPE"),
        (lambda: ts.op.flash_attention(X, X, X, scale=np.ones(2)), "E_TYPE"),
        (lambda: ts.op.flash_attention(X, X, X, scale=[0.5]), "E_TYPE"),
        (lambda: ts.op.flash_attention(X, X, X, scale=1j), "E_TYPE"),
        (lambda: ts.op.flash_attention(X, X, X, scale=True), "E_TYPE"),
        (lambda: ts.op.flash_attention(X, X, X, scale=10**400), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(X, X, X, scale=1e300), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(X, X, X, return_lse="yes"), "E_TYPE"),
        (lambda: ts.op.flash_attention(X, X, X, lazy_rescale=1), "E_TYPE"),
        (lambda: ts.op.flash_attention(X, X, X, tile="large"), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention("a", "b", "c"), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(*[X.astype(str)] * 3), "E_UNSUPPORTED_DTYPE"),
        (lambda: ts.op.flash_attention(*[X.astype(">f4")] * 3), "E_LAUNCH_BAD_LAYOUT"),
        (lambda: ts.op.flash_attention(X, X, X, tile=(64,)), "E_ARGUMENT"),
        (lambda: ts.bind(capped, q=X, h=X), "E_ARGUMENT"),
        (lambda: ts.bind(len, q=X), "E_ARGUMENT"),
    ],
)
def test_refused_at_the_line_of_the_caller(call, code):
    with pytest.raises(ts.TesseraError) as caught:
        call()
    assert caught.value.code == code, caught.value
    assert (caught.value.file, caught.value.line) == (__file__, call.__code__.co_firstlineno) or "wrong_shape" in str(caught.value)
    assert caught.value.help, caught.value


def two(f):
    """An operation on arrays, and the same inside a trace."""
    return f, lambda *a: ts.jit(f)(*a)


Z = np.zeros((1, 4, 8, 16), np.float32)


@pytest.mark.parametrize(
    ("arrays", "options", "code", "message"),
    [
        ((Z, Z[:, :3], Z[:, :3]), {}, "E_SHAPE_MISMATCH", "heads of q in multiples of 3"),
        ((Z, Z, Z[:, :2]), {}, "E_SHAPE_MISMATCH", "4 and 2 heads"),
        ((Z, Z, Z[:, :, :5]), {}, "E_SHAPE_MISMATCH", "of 8 and 5 keys"),
        ((Z, np.concatenate([Z, Z]), np.concatenate([Z, Z])), {}, "E_SHAPE_MISMATCH", "one batch, got 1, 2 and 2"),
        ((Z, Z[..., :12], Z), {}, "E_SHAPE_MISMATCH", "one head dim, got 16 and 12"),
        ((Z, Z, Z[0]), {}, "E_SHAPE_MISMATCH", "rank 4, or all of rank 3"),
        ((Z[0, 0], Z[0, 0], Z[0, 0]), {}, "E_SHAPE_MISMATCH", "rank 4, or all of rank 3"),
        ((Z, Z.astype(np.float16), Z), {}, "E_TYPE", "one dtype, got f32, f16, f32"),
        ((Z.astype(int),) * 3, {}, "E_TYPE", "got i64"),
        ((Z, Z, Z), {"layout": "sbhd"}, "E_ARGUMENT", "`layout`"),
        ((Z, Z, Z), {"scale": "x"}, "E_TYPE", "`scale`: expected a number"),
        ((Z, Z, Z), {"scale": 1j}, "E_TYPE", "`scale`: expected a number"),
        ((Z, Z, Z), {"scale": 10**400}, "E_ARGUMENT", "`scale`: expected a number in the range of f32"),
        ((Z, Z, Z), {"window": 0}, "E_ARGUMENT", "`window`"),
        ((Z, Z, Z), {"tile": (1, 2, 3)}, "E_ARGUMENT", "`tile`"),
        ((Z, Z, Z), {"lazy_rescale": 3}, "E_TYPE", "`lazy_rescale`"),
        ((Z, Z, Z), {"return_lse": 3}, "E_TYPE", "`return_lse`"),
        ((Z, Z, Z), {"score_mod": len}, "E_ARGUMENT", "`score_mod`: expected a `@ts.func`"),
    ],
)
def test_a_trace_refuses_what_the_operation_does(arrays, options, code, message):
    for call in two(lambda q, k, v: ts.op.flash_attention(q, k, v, **options)):
        with pytest.raises(ts.TesseraError) as caught:
            call(*arrays)
        assert caught.value.code == code and message in caught.value.message, caught.value
        assert caught.value.file == __file__


def test_numbers_of_numpy_are_numbers():
    q, k, v = arrays(np.random.default_rng(8), 1, 2, 2, 40, 40, 32, 32)
    for options, same in (
        ({"scale": np.float32(0.25)}, {"scale": 0.25}),
        ({"scale": np.array(0.25)}, {"scale": 0.25}),
        ({"window": np.int64(7)}, {"window": 7}),
        ({"window": (np.int32(3), 2)}, {"window": (3, 2)}),
        ({"window": 2**70}, {}),
        ({"window": (2**63 - 1, 4)}, {"window": (None, 4)}),
        ({"window": (5, -1)}, {"window": (5, None)}),
        ({"window": (-1, 3)}, {"window": (None, 3)}),
        ({"window": (np.int64(-1), -1)}, {}),
        ({"causal": True, "window": (5, -1)}, {"causal": True, "window": (5, 0)}),
        ({"causal": np.True_}, {"causal": True}),
        ({"tile": (np.int64(32), 32)}, {"tile": (32, 32)}),
    ):
        for call in (ts.op.flash_attention, lambda *a, **o: ts.jit(lambda *a: ts.op.flash_attention(*a, **o))(*a)):
            assert (call(q, k, v, **options) == call(q, k, v, **same)).all(), options


def test_queries_without_keys_and_heads_that_are_none():
    for call in two(lambda q, k, v: ts.op.flash_attention(q, k, v, causal=True, return_lse=True)):
        o, lse = call(Z, Z[:, :, :0], Z[:, :, :0])
        assert o.shape == Z.shape and (np.asarray(o) == 0).all() and (np.asarray(lse) == -np.inf).all() and lse.shape == (1, 4, 8)
        o, lse = call(Z[:, :0], Z[:, :0], Z[:, :0])
        assert o.shape == (1, 0, 8, 16) and lse.shape == (1, 0, 8)


def test_heads_are_shared_without_a_batch():
    q, k, v = arrays(np.random.default_rng(9), 1, 4, 2, 30, 20, 16, 16)
    expected = reference(q, k, v)[0][0]
    for call in two(lambda q, k, v: ts.op.flash_attention(q, k, v)):
        close(call(q[0], k[0], v[0]), expected, 1e-5)


@ts.func
def raises(s, b, h, q, k):
    raise ValueError("no")


@ts.func
def branches(s, b, h, q, k):
    if s > 0:
        return s
    return 2 * s


@ts.func
def returns_early(s, b, h, q, k):
    if h > 0:
        return s
    return 2 * s


@ts.func
def two_of_them(s, b, h, q, k):
    return s, s


@ts.func
def narrow(s, b, h, q, k):
    return ts.tile.cast(s, ts.bf16)


@ts.func
def four(s, b, h, q):
    return s


@pytest.mark.parametrize(
    ("function", "code", "line", "help"),
    [
        (wrong_shape, "E_SHAPE_MISMATCH", 2, "at its place"),
        (raises, "E_SYNTAX", 2, "assert condition"),
        (branches, "E_TYPE", 2, "ts.tile.where"),
        (two_of_them, "E_TYPE", 1, "one tile"),
        (narrow, "E_TYPE", 2, "ts.tile.cast(x, ts.f32)"),
        (four, "E_ARGUMENT", 1, "called with 5"),
        (alibi, "E_ARGUMENT", 1, "ts.bind(alibi, slopes=array)"),
    ],
)
def test_errors_in_functions_have_help_at_their_lines(function, code, line, help):
    """And there is no other error beside the reason."""
    with pytest.raises(ts.TesseraError) as caught:
        ts.op.flash_attention(X, X, X, score_mod=function)
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.file, diagnostic.line) == (code, __file__, function.__wrapped__.__code__.co_firstlineno + line), diagnostic
    assert help in diagnostic.help


def test_a_function_may_return_early():
    x = arrays(np.random.default_rng(11), 1, 2, 2, 20, 20, 16, 16)
    got = ts.op.flash_attention(*x, score_mod=returns_early)
    for head, factor in ((0, 2.0), (1, 1.0)):
        one = [a[:, head : head + 1] for a in x]
        want = ts.op.flash_attention(one[0] * np.float32(factor), *one[1:])
        np.testing.assert_allclose(got[:, head : head + 1], want, rtol=1e-5, atol=1e-6)


def test_numbers_are_no_arrays_of_a_function():
    for number in (3.0, 1, np.float32(2), np.array(1.0)):
        with pytest.raises(ts.TesseraError, match="expected an array, got the single value") as caught:
            ts.bind(alibi, slopes=number)
        assert caught.value.code == "E_ARGUMENT" and caught.value.file == __file__


def test_a_function_that_was_pickled_is_bound():
    import pickle

    again = pickle.loads(pickle.dumps(alibi))
    slopes = np.array([0.5, 0.25], np.float32)
    x = arrays(np.random.default_rng(10), 1, 2, 2, 20, 20, 16, 16)
    got = ts.op.flash_attention(*x, score_mod=ts.bind(again, slopes=slopes))
    assert (got == ts.op.flash_attention(*x, score_mod=ts.bind(alibi, slopes=slopes))).all()


def test_a_given_lazy_rescale_is_that_of_all_candidates(tmp_path, monkeypatch):
    from tessera.kernels import tuned

    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    q, k, v = arrays(np.random.default_rng(11), 1, 1, 1, 40, 40, 16, 16)
    ts.op.flash_attention(q, k, v, tile="tune", lazy_rescale=False)
    report = tuned.attention_of(False).tuning_report()
    assert report.rows and all("lazy_rescale=False" in row.config for row in report.rows)


def test_lazy_rescale_is_passed_on_inside_a_trace(monkeypatch):
    from tessera.nn import _attention

    seen = set()
    call = _attention.call
    noted = lambda kernel, args, *rest: seen.add(getattr(args[-1], "lazy_rescale", None)) or call(kernel, args, *rest)  # noqa: E731
    monkeypatch.setattr(_attention, "call", noted)
    q, k, v = arrays(np.random.default_rng(12), 1, 1, 1, 256, 256, 16, 16)
    for free, wanted in ((None, True), (True, True), (False, False)):
        seen.clear()
        ts.jit(lambda *a: ts.op.flash_attention(*a, lazy_rescale=free)).compiled(q, k, v)  # noqa: B023
        assert seen - {None} == {wanted}


def test_functions_are_right_in_checked_mode(monkeypatch):
    """Tiles reach beyond the last query and key. Out-of-bounds reads by functions there do not matter and are not reported;
    others are."""
    q, k, v = arrays(np.random.default_rng(13), 1, 2, 2, 20, 30, 16, 16)
    documents = np.repeat(np.arange(3), 10).astype(np.int32)
    bias = np.random.default_rng(14).standard_normal((2, 20, 30)).astype(np.float32)
    more = np.zeros(30, np.float32)
    options = {"score_mod": ts.bind(biased, bias=bias, more=more), "mask_mod": ts.bind(same_document, documents=documents)}
    expected = ts.op.flash_attention(q, k, v, causal=True, **options)
    monkeypatch.setenv("TESSERA_CHECK", "1")
    close(ts.op.flash_attention(q, k, v, causal=True, **options), wide(expected), 1e-6)
    close(ts.op.flash_attention(q, k, v, causal=True, tile="tune", **options), wide(expected), 1e-6)
    blocks = ts.op.block_mask(options["mask_mod"], q, k, v, causal=True)
    close(ts.op.flash_attention(q, k, v, score_mod=options["score_mod"], mask_mod=blocks), wide(expected), 1e-6)
    wider = [x.astype(np.float64) for x in (q, k, v)]
    assert ts.op.flash_attention(*wider, mask_mod=options["mask_mod"]).dtype == np.float64
    for short in ({"score_mod": ts.bind(biased, bias=bias[:, :, :29], more=more)}, {"mask_mod": ts.bind(same_document, documents=documents[:29])}):
        with pytest.raises(ts.TesseraError) as caught:
            ts.op.flash_attention(q, k, v, **short)
        assert caught.value.code == "E_OOB" and caught.value.file == __file__


def test_functions_inside_functions_are_bound_and_made_into_blocks():
    @ts.func
    def same(b, h, q, k, of):
        return of[q] == of[k]

    of = np.array([0, 0, 1, 1, 1], np.int32)
    q, k, v = (np.random.default_rng(i).standard_normal((1, 1, 5, 16)).astype(np.float32) for i in range(3))
    mask = ts.bind(same, of=of)
    found = ts.op.flash_attention(q, k, v, mask_mod=ts.op.block_mask(mask, q, k, v))
    np.testing.assert_array_equal(found, ts.op.flash_attention(q, k, v, mask_mod=mask))


@pytest.mark.parametrize(("dtype", "size", "scale"), [("float32", 4e18, 2.0**-130), ("float64", 4e19, 2.0**-137)])
def test_small_scales_are_taken_as_they_are(dtype, size, scale):
    """Also those that f32 has only in part."""
    q = np.full((1, 1, 1, 16), size, dtype)
    k = np.concatenate([np.full((1, 1, 1, 16), s * size, dtype) for s in (1, -1)], axis=2)
    v = np.array([1.0, 0.0], dtype).reshape(1, 1, 2, 1) * np.ones((1, 1, 1, 16), dtype)
    score = 16 * size * size * scale
    right = 1 / (1 + np.exp(-2 * score))
    np.testing.assert_allclose(ts.op.flash_attention(q, k, v, scale=scale), right, rtol=1e-5)


def test_values_of_no_width_are_refused():
    q = np.ones((1, 1, 2, 16), np.float32)
    with pytest.raises(ts.TesseraError, match="heads of v of at least one element"):
        ts.op.flash_attention(q, q, q[..., :0], return_lse=True)

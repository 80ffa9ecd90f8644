"""`ts.op.flash_attention` over a random grid of its options, each compared with float64; and its errors, at the caller's line."""

import functools
import itertools
import math
import os
import time

import numpy as np
import pytest

import tessera as ts
from test_attention import alibi, biased, capped, close, even, reference, same_document

#: They have more pairs of options than twice as many that are drawn at random.
COMBINATIONS = 80
#: Combinations that one is chosen from.
DRAWN = 40
#: Combinations of a test: what is compiled for one is there for the next.
EACH = 20


@ts.func
def of_batch(b, h, q, k, documents):
    return documents[b, q] == documents[b, k]


@ts.func
def of_head(b, h, q, k):
    return (q + k + h) % 3 != 0


def strided(rng, x):
    """The same elements with other strides: with gaps between rows, heads or elements."""
    kind = rng.integers(4)
    if kind == 1:
        return np.concatenate([x, x], -1)[..., : x.shape[-1]]
    if kind == 2:
        return np.stack([x, x], 1)[:, 0]
    if kind == 3:
        return np.repeat(x, 2, -1)[..., ::2]
    return x


def options(rng):
    """One combination, and the arrays of a problem."""
    pick = lambda *values: values[rng.integers(len(values))]  # noqa: E731
    D = pick(32, 64, 96, 128, 192, 256)
    DV = pick(D, D, 16, 40, 96)
    H, HK = pick((1, 1), (2, 2), (4, 1), (6, 2), (3, 3))
    B = pick(1, 1, 2, 3)
    Sq, Sk = (int(n) for n in rng.integers(1, 170, 2))
    if rng.integers(3) == 0:
        Sk = Sq
    return {
        "shape": (B, H, HK, Sq, Sk, D, DV),
        "causal": pick(False, True, "top_left"),
        "window": pick(None, None, 1, 17, 100, (5, 3), (None, 2), (64, 0), (0, 70)),
        # Of the usual scale: scores of 20 and more have errors of 1e-5 in f32 before they are anything's exponent.
        "scale": pick(None, *(x / math.sqrt(D) for x in (1.0, 0.3, -1.0, 0.0))),
        "score": pick(None, None, "cap", "alibi", "bias"),
        "mask": pick(None, None, "documents", "even", "batch", "head"),
        "blocks": bool(rng.integers(2)),
        "layout": pick("bhsd", "bhsd", "bshd", "flat"),
    }


def functions(rng, o):
    """Functions of the caller's for our kernels and for the reference."""
    B, H, HK, Sq, Sk, D, DV = o["shape"]
    n = max(Sq, Sk)
    slopes = rng.standard_normal(H * B).astype(np.float32) * 0.1
    bias, more = rng.standard_normal((H * B, Sq, Sk)).astype(np.float32), rng.standard_normal(Sk).astype(np.float32)
    documents = np.sort(rng.integers(0, 5, n)).astype(np.int32)
    each = np.sort(rng.integers(0, 4, (B, n)), -1).astype(np.int32)
    score = {
        None: (None, None),
        "cap": (capped, lambda s, b, h, i, j: 5 * np.tanh(s / 5)),
        "alibi": (ts.bind(alibi, slopes=slopes), lambda s, b, h, i, j: s + slopes[h] * (j - i)),
        "bias": (ts.bind(biased, bias=bias, more=more), lambda s, b, h, i, j: s + bias[h, i, j] + more[j]),
    }[o["score"]]
    mask = {
        None: (None, None),
        "documents": (ts.bind(same_document, documents=documents), lambda b, h, i, j: documents[i] == documents[j]),
        "even": (even, lambda b, h, i, j: (i + j) % 2 == 0),
        "batch": (ts.bind(of_batch, documents=each), lambda b, h, i, j: each[b, i] == each[b, j]),
        "head": (of_head, lambda b, h, i, j: (i + j + h) % 3 != 0),
    }[o["mask"]]
    return score, mask


def one(rng, o):
    B, H, HK, Sq, Sk, D, DV = o["shape"]
    flat = o["layout"] == "flat"
    if flat:
        # All heads of all batches are heads of one.
        B, H, HK = 1, B * H, B * HK
        o["shape"] = (B, H, HK, Sq, Sk, D, DV)
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((B, H, Sq, D), (B, HK, Sk, D), (B, HK, Sk, DV)))
    (score, right_score), (mask, right_mask) = functions(rng, o)
    expected, sums = zip(*(
        reference(
            q[b : b + 1], k[b : b + 1], v[b : b + 1], o["causal"], o["scale"], o["window"],
            score=None if right_score is None else lambda s, h, i, j, b=b: right_score(s, b, h, i, j),
            mask=None if right_mask is None else lambda h, i, j, b=b: right_mask(b, h, i, j),
        )
        for b in range(B)
    ))  # fmt: skip
    expected, sums = np.concatenate(expected), np.concatenate(sums)
    given = [strided(rng, x) for x in (q, k, v)]
    layout = "bhsd"
    if flat:
        given = [x[0] for x in given]
    elif o["layout"] == "bshd":
        given, layout = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in given], "bshd"
    sight = {"causal": o["causal"], "window": o["window"]}
    if mask is not None and o["blocks"]:
        mask, sight = ts.op.block_mask(mask, *given, **sight, layout=layout), {}
    got, lse = ts.op.flash_attention(*given, **sight, scale=o["scale"], score_mod=score, mask_mod=mask, return_lse=True, layout=layout)
    got = got.swapaxes(1, 2) if layout == "bshd" else got
    close(got.reshape(expected.shape), expected, 1e-5)
    close(lse.reshape(sums.shape), sums, 1e-5)
    if rng.integers(8) == 0:  # other code: not for every one
        alone = ts.op.flash_attention(*given, **sight, scale=o["scale"], score_mod=score, mask_mod=mask, layout=layout)
        assert (alone.swapaxes(1, 2) if layout == "bshd" else alone).tobytes() == got.tobytes()
    nothing = np.isinf(sums)
    assert (got.reshape(expected.shape)[nothing] == 0).all() and (lse.reshape(sums.shape)[nothing] == -np.inf).all()


def pairs(o):
    """The pairs of options that a combination has."""
    B, H, HK, Sq, Sk, D, DV = o["shape"]
    traits = {
        **o, "shape": None, "D": D, "DV": "D" if DV == D else DV, "heads": (H, HK), "batches": B > 1, "lengths": np.sign(Sq - Sk),
        "scale": o["scale"] and round(o["scale"] * math.sqrt(D), 1), "blocks": o["blocks"] and o["mask"] is not None,
    }  # fmt: skip
    return set(itertools.combinations(traits.items(), 2))


@functools.cache
def combinations():
    """Each is the one with most new pairs of options among some that are drawn."""
    rng, covered, chosen = np.random.default_rng(0), set(), []
    for _ in range(COMBINATIONS):
        chosen.append(max((options(rng) for _ in range(DRAWN)), key=lambda o: len(pairs(o) - covered)))
        covered |= pairs(chosen[-1])
    return chosen


def test_combinations_have_all_pairs():
    rng = np.random.default_rng(1)
    covered = set().union(*(pairs(o) for o in combinations()))
    assert len(covered) > len(set().union(*(pairs(options(rng)) for _ in range(2 * COMBINATIONS))))


@pytest.mark.parametrize("seed", range(COMBINATIONS // EACH))
def test_random_combinations(seed):
    rng = np.random.default_rng(seed)
    for o in combinations()[seed * EACH : (seed + 1) * EACH]:
        o = dict(o)
        try:
            one(rng, o)
        except BaseException as error:
            raise AssertionError(f"with {o}") from error


@pytest.mark.skipif(not os.environ.get("TESSERA_FUZZ_SECONDS"), reason="`make fuzz` says for how long")
def test_more_combinations():
    """Other ones each day, for the time that `make fuzz` gives."""
    seed = int(os.environ.get("TESSERA_FUZZ_SEED") or time.time() // 86400)
    until = time.monotonic() + float(os.environ["TESSERA_FUZZ_SECONDS"])
    print(f"TESSERA_FUZZ_SEED={seed}")
    while time.monotonic() < until:
        rng = np.random.default_rng([seed, 1])
        o = options(rng)
        try:
            one(rng, o)
        except BaseException as error:
            raise AssertionError(f"TESSERA_FUZZ_SEED={seed} with {o}") from error
        seed += 1


def test_every_option_is_drawn():
    drawn = [options(np.random.default_rng(100 + i)) for i in range(COMBINATIONS)]
    assert {o["shape"][5] for o in drawn} == {32, 64, 96, 128, 192, 256}
    for name, count in (("causal", 3), ("window", 8), ("score", 4), ("mask", 5), ("layout", 3), ("blocks", 2)):
        assert len({repr(o[name]) for o in drawn}) == count, name


SMALL = (
    dict(causal=True),
    dict(causal="top_left", window=(3, 2), return_lse=True),
    dict(score_mod=capped),
    dict(mask_mod=even, scale=-0.5),
)


@pytest.mark.parametrize("with_options", SMALL)
@pytest.mark.parametrize("blocks", [False, True])
def test_strict_is_the_interpreter(with_options, blocks):
    rng = np.random.default_rng(8)
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((1, 2, 21, 16), (1, 1, 30, 16), (1, 1, 30, 24)))
    chosen = dict(with_options)
    documents = np.repeat(np.arange(3), 10).astype(np.int32)

    def run():
        if not blocks:
            return ts.op.flash_attention(q, k, v, **chosen)
        rest = {n: x for n, x in chosen.items() if n not in ("causal", "window", "mask_mod")}
        sight = {n: chosen[n] for n in ("causal", "window") if n in chosen}
        mask = ts.op.block_mask(ts.bind(same_document, documents=documents), q, k, v, **sight, tile=(8, 8))
        return ts.op.flash_attention(q, k, v, mask_mod=mask, **rest)

    with ts.numerics.profile("strict"):
        compiled = run()
        ts.runtime.select_backend("interp")
        try:
            interpreted = run()
        finally:
            ts.runtime.select_backend(None)
    pairs = zip(compiled, interpreted) if isinstance(compiled, tuple) else [(compiled, interpreted)]
    assert all(a.tobytes() == b.tobytes() for a, b in pairs)


def test_blocks_are_left_out_and_whole_ones_known():
    q = k = v = np.zeros((1, 1, 256, 32), np.float32)
    documents = np.repeat(np.arange(2), 128).astype(np.int32)
    blocks = ts.op.block_mask(ts.bind(same_document, documents=documents), q, k, v, tile=(64, 64))
    assert blocks.visited == 0.5
    assert blocks.runs[0, 0].tolist() == [[0, 2, 0, 0, 0], [0, 2, 0, 1, 0], [2, 4, 0, 2, 0], [2, 4, 0, 3, 0]]
    causal = ts.op.block_mask(ts.bind(same_document, documents=documents), q, k, v, causal=True, tile=(64, 64))
    assert causal.visited == 6 / 16 and causal.runs[0, 0, :, 2].tolist() == [1, 1, 1, 1]
    # Rows that take longest come first.
    assert causal.runs[0, 0, :, 3].tolist() == [1, 3, 0, 2]
    assert causal.others[0, 0, :, 0].tolist() == [1, 3, 0, 2]
    assert ts.op.block_mask(even, q, k, v, tile=(64, 64)).visited == 1.0
    assert ts.op.block_mask(of_head, *(np.zeros((2, 3, 64, 16), np.float32),) * 3).runs.shape[:2] == (1, 3)


def test_a_last_block_that_is_not_whole_is_none_of_the_others():
    q, k, v = (np.zeros((1, 1, n, 32), np.float32) for n in (128, 250, 250))
    documents = np.repeat(np.arange(2), 128).astype(np.int32)
    # Half of the first document's queries see its two blocks; of the second document there are no queries.
    of = ts.bind(same_document, documents=documents)
    assert ts.op.block_mask(of, q, k, v, tile=(64, 64)).runs[0, 0].tolist() == [[0, 2, 0, 0, 0], [0, 2, 0, 1, 0]]
    all = ts.op.block_mask(even, q, k, v, tile=(64, 64))
    assert all.visited == 1.0 and all.runs[0, 0].tolist() == [[0, 0, 3, 0, 1], [0, 0, 3, 1, 1]]
    assert all.others[0, 0, :, :3].tolist() == [[0, 1, 2], [0, 1, 2]]
    # Fewer keys than a block has.
    few = ts.op.block_mask(even, q, k[:, :, :30], v[:, :, :30], tile=(64, 64))
    assert few.runs[0, 0].tolist() == [[0, 0, 0, 0, 1], [0, 0, 0, 1, 1]]


def test_nan_of_one_key_stays_with_the_queries_that_see_it():
    rng = np.random.default_rng(9)
    q, k, v = (rng.standard_normal((1, 1, 200, 32)).astype(np.float32) for _ in range(3))
    clean = ts.op.flash_attention(q, k, v, causal=True)
    k[0, 0, 150, 3] = np.nan
    got = ts.op.flash_attention(q, k, v, causal=True)
    assert np.isnan(got[0, 0, 150:]).all() and (got[0, 0, :150] == clean[0, 0, :150]).all()


@ts.func
def row_sums(s, b, h, q, k):
    return ts.tile.row_sum(s)


@ts.func
def wider(s, b, h, q, k):
    return ts.tile.cast(s, ts.f64)


@ts.func
def places(s, b, h, q, k):
    return q + k


@ts.func
def turned(s, b, h, q, k):
    return s.T


@ts.func
def nothing(s, b, h, q, k):
    t = s  # noqa: F841


@ts.func
def keeps(s, b, h, q, k, kept):
    kept[b, h, q, k] = s
    return s


@ts.func
def counts(s, b, h, q, k, kept):
    ts.tile.atomic_add(kept[0, 0, 0, 0], 1.0)
    return s


@ts.func
def shares(s, b, h, q, k):
    ts.tile.barrier()
    return s


@ts.func
def too_few(s, b, h):
    return s


@ts.func
def five(b, h, q, k):
    return ts.tile.arange(5) > 2


@ts.func
def distance(b, h, q, k):
    return ts.tile.cast(q - k, ts.f32)


@ts.func
def marks(b, h, q, k, kept):
    kept[b, h, q, k] = 1.0
    return q >= k


X = np.zeros((1, 2, 8, 16), np.float32)
KEPT = np.zeros((1, 2, 8, 8), np.float32)


@pytest.mark.parametrize(
    ("function", "code", "line"),
    [
        (row_sums, "E_SHAPE_MISMATCH", "return ts.tile.row_sum(s)"),
        (turned, "E_SHAPE_MISMATCH", "return s.T"),
        (wider, "E_TYPE", "return ts.tile.cast(s, ts.f64)"),
        (places, "E_TYPE", "return q + k"),
        (nothing, "E_TYPE", "def nothing(s, b, h, q, k):"),
        (too_few, "E_ARGUMENT", "def too_few(s, b, h):"),
        (shares, "E_PRIVILEGE", "ts.tile.barrier()"),
        (ts.bind(keeps, kept=KEPT), "E_PRIVILEGE", "kept[b, h, q, k] = s"),
        (ts.bind(counts, kept=KEPT), "E_PRIVILEGE", "ts.tile.atomic_add(kept[0, 0, 0, 0], 1.0)"),
    ],
)
def test_functions_of_scores_are_refused_at_their_line(function, code, line):
    with pytest.raises(ts.TesseraError) as caught:
        ts.op.flash_attention(X, X, X, score_mod=function)
    assert caught.value.code == code and line in str(caught.value), caught.value
    assert (KEPT == 0).all()


@pytest.mark.parametrize(
    ("function", "code", "line"),
    [
        (five, "E_SHAPE_MISMATCH", "return ts.tile.arange(5) > 2"),
        (distance, "E_TYPE", "return ts.tile.cast(q - k, ts.f32)"),
        (ts.bind(marks, kept=KEPT), "E_PRIVILEGE", "kept[b, h, q, k] = 1.0"),
    ],
)
def test_masks_are_refused_at_their_line(function, code, line):
    for call in (lambda: ts.op.flash_attention(X, X, X, mask_mod=function), lambda: ts.op.block_mask(function, X, X, X)):
        with pytest.raises(ts.TesseraError) as caught:
            call()
        assert caught.value.code == code and line in str(caught.value), caught.value


BLOCKS = lambda: ts.op.block_mask(even, X, X, X)  # noqa: E731


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: ts.op.flash_attention(X, X, X, causal=True, mask_mod=BLOCKS()), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(X, X, X, window=3, mask_mod=BLOCKS()), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(X, X, X, tile=(64, 64), mask_mod=BLOCKS()), "E_ARGUMENT"),
        (lambda: ts.op.flash_attention(X[:, :, :4], X, X, mask_mod=BLOCKS()), "E_SHAPE_MISMATCH"),
        (lambda: ts.op.flash_attention(X[:, :1], X[:, :1], X[:, :1], mask_mod=ts.op.block_mask(of_head, X, X, X)), "E_SHAPE_MISMATCH"),
        (lambda: ts.op.block_mask(lambda b, h, q, k: q == k, X, X, X), "E_ARGUMENT"),
        (lambda: ts.op.block_mask(even, X, X[:, :, :0], X[:, :, :0]), "E_SHAPE_MISMATCH"),
        (lambda: ts.op.flash_attention(X, X, X, tile="tuned"), "E_ARGUMENT"),
    ],
)
def test_block_masks_refused(call, code):
    with pytest.raises(ts.TesseraError) as caught:
        call()
    assert caught.value.code == code, caught.value


def test_scale_of_zero_is_the_mean():
    v = np.arange(64, dtype=np.float32).reshape(1, 1, 4, 16)
    assert np.allclose(ts.op.flash_attention(v, v, v, scale=0.0), v.mean(2, keepdims=True)) and math.isfinite(v.sum())

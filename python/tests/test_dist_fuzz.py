"""Random programs over arrays in random placements, against NumPy: launches over any axes, parts that overlap, contributions, resharding,
writes to parts, in many dtypes. Values are small whole numbers, so sums of any order are exact."""

import itertools
import os
import random
import time
import warnings

import numpy as np
import pytest

import tessera as ts
from tessera import dist, index_launch

SEED = int(os.environ.get("TESSERA_FUZZ_SEED") or time.time() // 86400)
SECONDS = float(os.environ.get("TESSERA_FUZZ_SECONDS") or 0)
PROGRAMS = int(os.environ.get("TESSERA_FUZZ_PROGRAMS") or 60)
#: With the largest whole number that sums may reach exactly.
DTYPES = {"f32": 2**20, "f64": 2**20, "bf16": 256, "f16": 2000, "i8": 100, "u8": 200, "i16": 2**14, "i32": 2**20, "i64": 2**20, "fp8_e4m3": 16, "fp8_e5m2": 8}


def kernels(of):
    @ts.kernel
    def add(x: ts.Region[ts.read, ts.Tensor["n", of]], y: ts.Region[ts.read_write, ts.Tensor["n", of]]):
        i = ts.tile.linear_id()
        if i < n:
            y[i] = ts.tile.cast(x[i] + y[i], of)
        return y

    @ts.kernel
    def copy(x: ts.Region[ts.read, ts.Tensor["n", of]], y: ts.Region[ts.write, ts.Tensor["n", of]]):
        i = ts.tile.linear_id()
        if i < n:
            y[i] = x[i]
        return y

    @ts.kernel
    def fold(x: ts.Region[ts.read, ts.Tensor["n", of]], y: ts.Region[ts.reduce_sum, ts.Tensor["n", of]]):
        i = ts.tile.linear_id()
        if i < n:
            y[i] += x[i]
        return y

    @ts.kernel
    def largest(x: ts.Region[ts.read, ts.Tensor["n", of]], y: ts.Region[ts.reduce_max, ts.Tensor["n", of]]):
        i = ts.tile.grid(ts.cdiv(n, 8)) * 8
        ts.tile.accumulate(y[i : i + 8], x[i : i + 8])
        return y

    return {"add": add, "copy": copy, "fold": fold, "largest": largest}


MADE = {}


def kernel(name, of):
    if of not in MADE:
        MADE[of] = kernels(getattr(ts, of))
    return MADE[of][name]


def a_spec(rng, axes, contributions):
    """A placement of one dim: which axes split it, and how; None where it is one that holds contributions."""
    chosen = rng.sample(axes, rng.randint(0, len(axes)))
    how = rng.choice([None, None, dist.Cyclic, lambda a: dist.BlockCyclic(a, 2)])
    rest = [a for a in axes if a not in chosen]
    kwargs = {"sum": tuple(rng.sample(rest, rng.randint(1, len(rest))))} if contributions and rest and rng.random() < 0.3 else {}
    if not chosen:
        return dist.spec(None, **kwargs), ()
    if how is not None and not kwargs:
        chosen = chosen[:1]
        return dist.spec(how(tuple(chosen))), tuple(chosen)
    return dist.spec(tuple(chosen), **kwargs), tuple(chosen)


def one_program(rng, case):
    of = rng.choice(list(DTYPES))
    limit = DTYPES[of]
    shape = rng.choice([(1, 1), (2, 3), (3, 2), (5, 1), (2, 2)])
    mesh = dist.mesh(shape[0] * shape[1], ("a", "b"), shape)
    n = rng.choice([1, 3, 6, 7, 16])
    values, arrays, splits = [], [], []
    for _ in range(3):
        v = np.array([rng.randint(0, 2) for _ in range(n)], np.int64)
        spec, split = a_spec(rng, ["a", "b"], of not in ("fp8_e4m3", "fp8_e5m2"))
        values.append(v)
        arrays.append(dist.shard(ts.array(v.astype(np.float64), getattr(ts, of)), spec, mesh))
        splits.append(split)
    log = [f"{of} on {mesh}, {n} elements: {[a.spec for a in arrays]}"]
    for _ in range(rng.randint(2, 8)):
        what = rng.choice(["add", "copy", "fold", "largest", "whole", "part", "set", "reshard", "read", "bad"])
        i, j = rng.randrange(3), rng.randrange(3)
        x, y = arrays[i], arrays[j]
        log.append(f"{what} {i} {j}")
        if what == "set":
            number = rng.randint(0, 2)
            y[...] = number
            values[j] = np.full(n, number)
        elif what == "reshard":
            spec, splits[i] = a_spec(rng, ["a", "b"], of not in ("fp8_e4m3", "fp8_e5m2"))
            arrays[i] = x.reshard(spec)
            log.append(f"  to {spec}")
        elif what == "read":
            assert np.array_equal(x.numpy().astype(np.int64), values[i]), log
        elif what == "part" and splits[i] and not x._placed.combine:
            parts = x.parts(splits[i])
            p = rng.choice(parts)
            at = p.index[0]
            p[...] = 1
            values[i] = values[i].copy()
            values[i][at] = 1
        elif what == "whole" and of not in ("fp8_e4m3", "fp8_e5m2"):
            # Every coordinate contributes a copy.
            axis = rng.choice(["a", "b"])
            ranks = mesh.axis_size(axis)
            if i == j or values[j].max() + ranks * values[i].max() > limit:
                continue
            copies = x.reshard(None)
            index_launch(axis)(kernel("fold", of))(copies, y)
            values[j] = values[j] + ranks * values[i]
        elif what in ("add", "copy", "fold", "largest") and i != j:
            if values[i].max() + values[j].max() > limit or of.startswith("fp8") and what in ("fold", "largest"):
                continue
            if not splits[j] or x._placed.combine or y._placed.combine:
                continue
            same = x.reshard(y.spec)
            index_launch(splits[j])(kernel(what, of))(same.parts(splits[j]), y.parts(splits[j]))
            values[j] = {"add": values[i] + values[j], "copy": values[i], "fold": values[i] + values[j], "largest": np.maximum(values[i], values[j])}[what]
        elif what == "bad" and splits[j] and not y._placed.combine and mesh.size > 1:
            # One array read and written by one task is refused, and nothing of it runs.
            parts = y.parts(splits[j])
            if any(p.shape[0] for p in parts):
                with pytest.raises(ts.TesseraError) as refused:
                    index_launch(splits[j])(kernel("copy", of))(parts, parts)
                assert refused.value.code == "E_PRIVILEGE"
    for at, (array, value) in enumerate(zip(arrays, values)):
        assert np.array_equal(array.numpy().astype(np.int64), value), f"case {case} of seed {SEED}: array {at} of {log}"


def test_random_programs_over_any_placement():
    print(f"TESSERA_FUZZ_SEED={SEED}")
    rng = random.Random(SEED)
    end = time.monotonic() + SECONDS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.TesseraWarning)
        for case in itertools.count():
            if case >= PROGRAMS and time.monotonic() > end:
                break
            one_program(rng, case)
    dist.wait()

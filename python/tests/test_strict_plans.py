"""Under ``strict`` a function has the same bits on a GPU as on the host: plans for GPUs split no sum. The GPU is emulated."""

import numpy as np
import pytest

import tessera as ts
from tessera import xp

CASES = {
    # In `default` a GPU sums long axes in parts, by several groups.
    "sum": (lambda x: xp.sum(x), [(100_000,)]),
    "mean of columns": (lambda x: xp.mean(x, axis=0), [(3000, 7)]),
    "product": (lambda x: xp.prod(1 + x * 1e-4), [(70_001,)]),
    "sum of two axes": (lambda x: xp.sum(x, axis=(0, 2)), [(90, 3, 111)]),
    # And divides the depth of matmuls with few tiles.
    "matmul": (lambda x, y: x @ y, [(64, 1024), (1024, 64)]),
    "softmax": (lambda x: ts.nn.softmax(x), [(2, 40_000)]),
    "max": (lambda x: xp.max(x), [(100_000,)]),
}


def results(name, target):
    function, shapes = CASES[name]
    rng = np.random.default_rng(7)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    return np.asarray(ts.jit(function, numerics="strict", target=target)(*given))


@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_the_host(name):
    host, gpu = results(name, "cpu"), results(name, "ptx-emulated:sm90")
    assert host.dtype == gpu.dtype and host.tobytes() == gpu.tobytes()


#: Shapes for which a GPU splits the work in `default`.
SPLIT = {"sum": [(100_000,)], "mean of columns": [(3000, 7)], "product": [(70_001,)], "matmul": [(64, 16384), (16384, 64)]}


@pytest.mark.parametrize("name", SPLIT)
def test_a_gpu_has_fewer_launches_than_in_default(name):
    given = [np.zeros(shape, np.float32) for shape in SPLIT[name]]
    launches = [ts.jit(CASES[name][0], numerics=profile, target="sm90").stats(*given)["launches"] for profile in ("strict", "default")]
    assert launches[0] < launches[1]


def test_exact_reductions_are_split_under_strict_too():
    given = np.zeros(100_000, np.float32)
    launches = [ts.jit(CASES["max"][0], numerics=profile, target="sm90").stats(given)["launches"] for profile in ("strict", "default")]
    assert launches[0] == launches[1] > 1

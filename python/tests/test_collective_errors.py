"""What collectives and `dist.shard_map` refuse: the code, the arithmetic, and the user's line."""

import numpy
import pytest

import tessera as ts
from tessera import collective, dist, xp


def line(n):
    return dist.mesh(n, ("tp",), (n,))


def refused(code, *words):
    class Expect:
        def __enter__(self):
            self.inner = pytest.raises(ts.TesseraError)
            self.found = self.inner.__enter__()

        def __exit__(self, *failure):
            done = self.inner.__exit__(*failure)
            text = str(self.found.value)
            assert f"error[{code}]" in text, text
            for word in words:
                assert word in text, text
            assert "help" in text, text
            assert "test_collective_errors.py" in text, text
            return done

    return Expect()


def test_uneven_blocks_are_refused_with_the_arithmetic():
    f = dist.shard_map(lambda b: b, line(4), dist.spec("tp"), dist.spec("tp"))
    with refused("E_UNEVEN", "10 = 4 × 2 + 2", "pad=True"):
        f(numpy.zeros(10))
    with refused("E_UNEVEN", "reduce_scatter", "3 = 4 × 0 + 3"):
        dist.shard_map(lambda b: collective.reduce_scatter(b, "tp"), line(4), None, dist.spec("tp"))(numpy.zeros(3))


def test_results_that_vary_are_refused_where_copies_are_wanted():
    with refused("E_PLACEMENT", "along `tp`", "a value that varies"):
        dist.shard_map(lambda b: b * 2, line(2), dist.spec("tp"), None)(numpy.zeros(4))


def test_collectives_under_conditions_that_vary_are_refused():
    def rank(b):
        return ts.cond(xp.sum(b) > 0, lambda v: collective.all_reduce(v, "tp"), lambda v: v, b)

    with refused("E_PLACEMENT", "ranks that do not run it would never arrive"):
        dist.shard_map(rank, line(2), dist.spec("tp"), dist.spec("tp"))(numpy.zeros(4))


def test_axes_that_are_not_there():
    with refused("E_MESH", "`pp`"):
        dist.shard_map(lambda b: collective.all_reduce(b, "pp"), line(2), dist.spec("tp"), None)(numpy.zeros(4))
    with refused("E_PLACEMENT", "`tp` twice"):
        dist.shard_map(lambda b: collective.all_reduce(b, ("tp", "tp")), line(2), dist.spec("tp"), None)(numpy.zeros(4))
    with refused("E_MESH", "from 0 to 1 along tp=2"):
        dist.shard_map(lambda b: collective.broadcast(b, "tp", 2), line(2), dist.spec("tp"), None)(numpy.zeros(4))
    with refused("E_PLACEMENT", "send once"):
        dist.shard_map(lambda b: collective.permute(b, "tp", [(0, 1), (0, 0)]), line(2), dist.spec("tp"), dist.spec("tp"))(numpy.zeros(4))
    for pairs in (None, 3, [1, 2], "ab"):
        with refused("E_TYPE", "expected pairs (source, target)"):
            dist.shard_map(lambda b, pairs=pairs: collective.permute(b, "tp", pairs), line(2), dist.spec("tp"), dist.spec("tp"))(numpy.zeros(4))


def test_collectives_on_wrong_states():
    mesh = line(2)
    R, S = dist.replicate(numpy.zeros(4), mesh), dist.shard(numpy.zeros(4), dist.spec("tp"), mesh)
    P = dist.from_local([numpy.zeros(4)] * 2, dist.spec(max=("tp",)), mesh)
    with refused("E_PLACEMENT", "tp: R"):
        collective.all_reduce(R, "tp")
    with refused("E_PLACEMENT", "tp: R"):
        collective.all_gather(R, "tp")
    with refused("E_PLACEMENT", "tp: S(0)"):
        collective.broadcast(S, "tp")
    with refused("E_PLACEMENT", "tp: P(max)"):
        collective.all_reduce(P, "tp")
    with refused("E_PLACEMENT", "tp: S(0)"):
        collective.permute(S, "tp", [(0, 1)])
    with refused("E_MESH", "from 0 to 1 along tp=2 as `root`, got 2"):
        collective.broadcast(R, "tp", 2)
    with refused("E_TYPE", "`root`", "got 1.5"):
        collective.broadcast(R, "tp", 1.5)
    with refused("E_SHAPE_MISMATCH", "a value with dims"):
        dist.shard_map(lambda b: collective.all_gather(b, "tp"), mesh, None, None)(numpy.float32(1))
    with refused("E_TYPE", "a function of one rank's blocks, got 3"):
        dist.shard_map(3, mesh, None, None)
    with refused("E_PLACEMENT", "got neither"):
        collective.all_reduce(numpy.zeros(4), "tp")
    with refused("E_PLACEMENT", "outside one"):
        dist.axis_index("tp")
    with refused("E_PLACEMENT", "got one on"):
        dist.shard_map(lambda b: b, line(3), None, None)(S)
    with refused("E_ARGUMENT", "in_specs"):
        dist.shard_map(lambda a, b: a, mesh, (None,), None)(numpy.zeros(4), numpy.zeros(4))
    with refused("E_PLACEMENT", "got one inside"):
        dist.shard_map(lambda b: dist.shard_map(lambda c: c, mesh, None, None)(b), mesh, None, None)(numpy.zeros(4))

"""A mesh of 72 virtual devices on this machine: placements, a picture, a launch over parts, and what ran."""

import sys
from pathlib import Path

import numpy as np

import tessera as ts
from tessera import array, dist, domain


@ts.kernel
def partial_norms(W: ts.Region[ts.read, ts.Tensor["m", "n", ts.f32]], total: ts.Region[ts.reduce_sum, ts.Tensor["m", ts.f32]]):
    i = ts.tile.linear_id()
    if i < m:
        s = 0.0
        for j in range(n):
            s = s + W[i, j] * W[i, j]
        total[i] += s


def main() -> None:
    # 4 (dp) x 9 (tp) x 2 (pp): a count stands for ranks that share the host.
    mesh = dist.mesh(72, ("dp", "tp", "pp"), (4, 9, 2))
    print(f"{mesh}: {mesh.size} ranks, rank 71 is at {mesh.coords(71)}")

    W = dist.tensor((64, 100), dist.ShardSpec(partition=("col",), mesh_axes=("tp",)), mesh, init=lambda at: 1.0 + np.arange(100)[at[1]] % 7)
    print(f"along dp, tp and pp it is {', '.join(W.placements)}\n")
    print(W.draw())
    if len(sys.argv) > 1:  # a file for the picture as SVG
        Path(sys.argv[1]).write_text(W.draw().svg(), encoding="utf-8")

    print("\ndomains are dealt by distributions:")
    for how in (dist.Block(("tp",)), dist.Cyclic(("tp",)), dist.BlockCyclic(("tp",), 4)):
        x = array.from_domain(domain.Rect((100,)), "f32", how, mesh)
        at = x.index(2)[0]
        print(f"  {how!r:<24} tp=1 has {at if isinstance(at, slice) else [int(i) for i in at[:6]]}")

    norms = dist.tensor((64,), None, mesh)
    with dist.count() as c:
        ts.index_launch(axis="tp")(partial_norms)(W, norms)
        dist.wait()
        moved = W.reshard(dist.spec("dp", "pp"))
    expected = (W.numpy() ** 2).sum(axis=1)
    assert np.allclose(norms.numpy(), expected, rtol=1e-5) and np.array_equal(moved.numpy(), W.numpy())
    print("\nwhat ran:")
    for e in c.events:
        print(f"  {e.kind} along {', '.join(e.axes)}: {e.size} {'tasks of ' + e.name if e.kind == 'index_launch' else f'ranks, {e.nbytes} bytes'}")
    print("the norms of nine parts equal those of the whole")


if __name__ == "__main__":
    main()

"""Clocks of a kernel's loops: what the table says, and that backends without clocks raise an error instead of an empty table."""

import os

import numpy as np
import pytest

import tessera as ts
from tessera.kernel.clocks import KernelProfile, Visit


@ts.kernel
def total(x: ts.Tensor["N", ts.f32], y: ts.Tensor[1, ts.f32]):
    acc = ts.tile.zeros((16,), ts.f32)
    for i in ts.tile.range(0, N, 16):  # noqa: F821
        acc += x[i : i + 16]
    y[0] = ts.tile.sum(acc, 0)


def test_backends_without_clocks_say_so(monkeypatch):
    monkeypatch.setenv("TESSERA_OFF", "register_prefetch")
    x, y = np.ones(64, np.float32), np.zeros(1, np.float32)
    with pytest.raises(ts.UnsupportedError, match="expected `total` to run a loop on a GPU, got no clocks"):
        total.profile(x, y)
    # It ran, and everything is as before.
    assert y[0] == 64 and os.environ["TESSERA_OFF"] == "register_prefetch"
    assert "bare" not in str(total.explain())


def test_the_environment_comes_back_where_a_call_fails(monkeypatch):
    monkeypatch.delenv("TESSERA_OFF", raising=False)
    with pytest.raises(ts.TesseraError):
        total.profile(np.ones(64, np.float32))
    assert "TESSERA_OFF" not in os.environ


def test_lines_and_the_part_of_the_clocks():
    visits = [
        # Two blocks; three iterations with 512 clocks of MMAs each, in 1800 and in 2000 clocks; a producer loads.
        Visit("consumer", 0, 7, 512, 0, 3, 100, 1900),
        Visit("consumer", 0, 7, 512, 1, 3, 5000, 7000),
        Visit("producer", 0, 7, 0, 0, 3, 50, 1700),
    ]
    p = KernelProfile("k", visits, 0, None)
    work, load = p.lines
    assert (work.visits, work.iterations, work.clocks, work.least) == (2, 6, 3800, 512)
    assert (load.role, load.iterations, load.each) == ("producer", 3, 550.0)
    # From 50 to 1900, and from 5000 to 7000.
    assert p.clocks == 1850 + 2000
    assert p.matrix_use == pytest.approx(6 * 512 / 3850)
    text = str(p)
    assert text.startswith("k: 2 blocks, tensor cores busy for 0.798")
    assert "633.3" in text and "0.81" in text and "left out" not in text


def test_replicas_and_omitted_visits_are_reported():
    visits = [Visit("consumer", n, 3, 64, 0, 2, 0, 400) for n in range(3)]
    p = KernelProfile("k", visits, 5, None)
    assert [line.replica for line in p.lines] == [0, 1, 2]
    # They work concurrently.
    assert p.matrix_use == pytest.approx(3 * 2 * 64 / 400)
    assert "consumer 2" in str(p) and "5 visits are left out" in str(p)

"""Checked runs: what is found, and that the caller's arrays are left alone."""

import numpy as np
import pytest

import tessera as ts
from kernels import saxpy, shift


@ts.kernel
def outside(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = x[i + 1]


@ts.kernel
def quotient(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32], o: ts.Out["n", ts.i32]):
    i = ts.tile.linear_id()
    o[i] = x[i] // y[i]
    return o


def ones(n=300):
    return np.ones(n, np.float32)


def test_a_clean_kernel_gives_a_true_report_and_leaves_its_arrays():
    x, y = ones(), ones()
    report = saxpy.check(x, y, 2.0)
    assert report and report.findings == [] and str(report) == "no mistakes found"
    assert (y == 1).all()
    assert saxpy.check(x[::-2], y[::2], alpha=2.0)


def test_findings_have_place_and_text_and_do_not_raise():
    x, y = ones(), ones()
    report = outside.check(x, y)
    assert not report
    (found,) = report.findings
    assert isinstance(found, ts.Diagnostic) and found.code == "E_OOB"
    assert found.file.endswith("test_check.py") and "x[i + 1]" in str(report)
    assert (y == 1).all()


def test_a_result_that_is_left_out_is_checked_too():
    zero = np.zeros(4, np.int32)
    report = quotient.check(zero, zero.copy())
    assert [d.code for d in report.findings] == ["E_DIV_ZERO"]


def test_a_call_that_does_not_fit_is_refused_as_always():
    with pytest.raises(ts.LaunchError, match="missing the argument"):
        saxpy.check(ones(), ones())


def test_a_grid_can_be_given():
    assert shift.check(ones(8), ones(8), grid=4)


def test_the_environment_makes_every_launch_checked(monkeypatch):
    x, y = ones(), np.zeros(300, np.float32)
    monkeypatch.setenv("TESSERA_CHECK", "1")
    with pytest.raises(ts.CheckError) as e:
        outside(x, y)
    assert e.value.code == "E_OOB" and e.value.line
    # The launch went to its end before it was raised.
    assert (y[:-1] == 1).all()
    with pytest.raises(ts.CheckError):
        outside.jit(n=300)(x, y)
    assert saxpy(x, y, 1.0) is y
    monkeypatch.setenv("TESSERA_CHECK", "0")
    outside(x, y)


def test_all_findings_of_a_launch_are_raised_together(monkeypatch):
    @ts.kernel
    def two(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):
        i = ts.tile.linear_id()
        a = x[i] // y[i]
        y[i] = a + x[i + 1]

    monkeypatch.setenv("TESSERA_CHECK", "1")
    with pytest.raises(ts.CheckError) as e:
        two(np.ones(4, np.int32), np.zeros(4, np.int32))
    assert {d.code for d in e.value.diagnostics} == {"E_DIV_ZERO", "E_OOB"}


def test_positions_that_a_mask_put_outside_are_no_findings():
    @ts.kernel
    def scatter(index: ts.Tensor["m", ts.i32], v: ts.Tensor["m", ts.f32], y: ts.Tensor["n", ts.f32]):
        s = ts.tile.grid(ts.cdiv(m, 8)) * 8
        at = ts.tile.bounds_mask(index[s : s + 8], cols=m - s, value=-1)
        y[at] = v[s : s + 8]

    index = np.array([3, 1, 4], np.int32)
    report = scatter.check(index, np.ones(3, np.float32), np.zeros(6, np.float32))
    assert report, str(report)


def test_races_found_by_the_environment_variable_are_check_errors(monkeypatch):
    @ts.kernel
    def shift(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        if i + 1 < n:
            x[i] = x[i + 1]

    monkeypatch.setenv("TESSERA_CHECK", "1")
    with pytest.raises(ts.CheckError) as caught:
        shift(np.ones(8, np.float32))
    assert caught.value.code == "E_RACE"


@ts.kernel
def promised(x: ts.Tensor[4, ts.i32], v: ts.Tensor[4, ts.i32], n: ts.i32):
    at = ts.tile.arange(4) // 2
    ts.tile.store(x, at, v[:], mask=ts.tile.arange(4) % 2 >= n, unique=True)


def test_a_promise_of_unique_positions_that_does_not_hold_is_found():
    x, v = np.zeros(4, np.int32), np.arange(4, dtype=np.int32)
    report = promised.check(x, v, 0)
    (found,) = report.findings
    assert found.code == "E_RACE" and "unique=True" in str(found)
    assert "element [0] of `x`" in str(found) and "positions 0 and 1" in str(found)
    # What is masked off is not written.
    assert promised.check(x, v, 1)

    @ts.kernel
    def in_shared(v: ts.Tensor[4, ts.f32], y: ts.Tensor[4, ts.f32]):
        b = ts.tile.alloc_shared((4,), ts.f32)
        b[:] = v[:]
        ts.tile.store(b, ts.tile.arange(4) // 4, v[:], unique=True)
        y[:] = b[:]

    assert [f.code for f in in_shared.check(ones(4), ones(4)).findings] == ["E_RACE"]

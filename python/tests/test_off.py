"""Passes that are switched off by name, for one kernel or for all."""

import pytest

import tessera as ts


@ts.kernel
def product(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16], C: ts.Tensor["M", "N", ts.bf16]):
    m = ts.tile.program_id(0) * 128
    n = ts.tile.program_id(1) * 256
    acc = ts.tile.zeros((128, 256), ts.f32)
    for k in ts.tile.range(0, K, 64):
        acc = ts.tile.mma(A[m:m + 128, k:k + 64], B[k:k + 64, n:n + 256], accumulator=acc)
    C[m:m + 128, n:n + 256] = acc


def staged(**more):
    return product.jit(target="sm90", **more).inspect_ir("staged")


def test_a_pass_is_left_out_for_one_kernel():
    whole = staged()
    assert "frag_part" in whole and "name = producer" in whole
    assert "frag_part" not in staged(off="overlapped_epilogue") and "name = producer" in staged(off="overlapped_epilogue")
    assert "bulk_store" not in staged(off=("epilogue",))
    assert "name = producer" not in staged(off=["warp_specialization", "overlapped_epilogue"])
    assert staged() == whole


def test_the_environment_leaves_passes_out_for_all(monkeypatch):
    whole = staged()
    monkeypatch.setenv("TESSERA_OFF", "async_mma, raster")
    assert "mma_issue" not in staged()
    monkeypatch.delenv("TESSERA_OFF")
    assert staged() == whole


def test_names_that_no_pass_has_are_refused(monkeypatch):
    with pytest.raises(ts.TesseraError, match="`off`.*epilogue.*got \"epilog\""):
        staged(off="epilog")
    monkeypatch.setenv("TESSERA_OFF", "nothing")
    with pytest.raises(ts.TesseraError, match="TESSERA_OFF.*got \"nothing\""):
        staged()

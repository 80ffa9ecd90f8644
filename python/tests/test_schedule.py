"""Schedules: pinned by the decorator, by fields, as text; the compiler's choices are in the text. No GPU is needed."""

import inspect
import json
import sys

import numpy as np
import pytest
from doc_blocks import ROOT

import tessera as ts


def product_of(decorator):
    @decorator
    def product(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16], C: ts.Tensor["M", "N", ts.bf16]):
        t = ts.tile.context()
        m = ts.tile.program_id(0) * t.BM
        n = ts.tile.program_id(1) * t.BN
        acc = ts.tile.zeros((t.BM, t.BN), ts.f32)
        for k in ts.tile.range(0, K, 64):
            acc = ts.tile.mma(A[m:m + t.BM, k:k + 64], B[k:k + 64, n:n + t.BN], accumulator=acc)
        C[m:m + t.BM, n:n + t.BN] = acc

    return product


@ts.kernel
def lowered(x: ts.Tensor["M", "N", ts.bf16], y: ts.Tensor["M", "N", ts.bf16]):
    row = ts.tile.program_id(0)
    t = x[row, :]
    y[row, :] = t - ts.tile.max(t)


@ts.kernel
def doubled(x: ts.Tensor["n", ts.f32], T: int = 256):
    i = ts.tile.program_id(0) * T
    x[i:i + T] = x[i:i + T] * 2.0
    return x


BASE = product_of(ts.kernel.autotune(configs=[dict(BM=64, BN=64), dict(BM=128, BN=256)]))
TARGET = "sm90"


def hash_of(compiled):
    return compiled.explain().target_hash


def test_what_the_compiler_chose_is_in_the_plan():
    compiled = BASE.scheduled(BM=128, BN=256).jit(target=TARGET)
    assert "chosen = {" in compiled.inspect_ir("schedule")
    assert dict(compiled.schedule) == {"BM": 128, "BN": 256, "warps": 8, "stages": 4, "raster": 16}
    spread = lowered.jit(target=TARGET, N=131072)
    assert spread.schedule["cluster"] > 1 and "stages" not in spread.schedule
    # The host's backends have nothing of the kind.
    assert "chosen" not in doubled.jit().inspect_ir("schedule") and dict(doubled.jit().schedule) == {"T": 256}


@pytest.mark.parametrize("compiled", [
    lambda **more: BASE.scheduled(BM=128, BN=256).jit(target=TARGET, **more),
    lambda **more: BASE.scheduled(BM=64, BN=64, stages=2, off=["mma_in_flight", "epilogue"]).jit(target=TARGET, **more),
    lambda **more: lowered.jit(target=TARGET, N=131072, **more),
    lambda **more: lowered.jit(target=TARGET, N=1000, **more),
    lambda **more: doubled.jit(target=TARGET, T=512, **more),
])  # fmt: skip
def test_a_plan_that_is_handed_back_gives_the_same_code(compiled):
    first = compiled()
    text = first.inspect_ir("schedule")
    again = compiled(schedule=text)
    assert hash_of(again) == hash_of(first) and again.schedule == first.schedule
    assert str(ts.ir.parse(text)) == text


@pytest.mark.parametrize(("field", "value"), [("warps", 4), ("stages", 2), ("raster", 4), ("off", ("mma_in_flight",)), ("BN", 128)])
def test_each_field_is_followed(field, value):
    base = BASE.scheduled(BM=128, BN=256)
    if field == "warps":
        # A smaller tile: the accumulator of the large one does not fit into the registers of fewer threads.
        base = base.scheduled(BN=64)
    before, after = base.jit(target=TARGET), base.scheduled(**{field: value}).jit(target=TARGET)
    assert after.schedule[field] == value and before.schedule.get(field) != value
    assert hash_of(before) != hash_of(after)


def test_clusters_are_followed_where_tiles_are_combined():
    for blocks in (2, 4):
        spread = lowered.scheduled(cluster=blocks).jit(target=TARGET, N=65536)
        assert spread.explain().resources["cluster"] == str(blocks)


def test_changed_text_is_followed():
    compiled = BASE.scheduled(BM=128, BN=256).jit(target=TARGET)
    text = compiled.inspect_ir("schedule").replace("num_stages = 4", "num_stages = 3")
    assert BASE.jit(target=TARGET, schedule=text).schedule["stages"] == 3


def test_schedules_are_values():
    one = ts.Schedule(warps=8, stages=4, off="mma_in_flight")
    assert one["num_warps"] == 8 and one["off"] == ("mma_in_flight",) and len(one) == 3
    assert one.derive(stages=2, off=None) == ts.Schedule(warps=8, stages=2)
    assert one | ts.Schedule(BM=64, warps=4) == ts.Schedule(warps=4, stages=4, off=("mma_in_flight",), BM=64)
    assert repr(ts.Schedule(warps=8)) == "Schedule(warps=8)" and hash(one) == hash(ts.Schedule(**one))


def test_a_schedule_above_another_decorator_pins_every_candidate():
    pinned = ts.kernel.schedule(BM=128)(BASE)
    assert [c["BM"] for c in pinned.spec.candidates] == [128, 128] and [c["BM"] for c in BASE.spec.candidates] == [64, 128]
    assert pinned.jit(target=TARGET).config["BN"] == 64
    direct = product_of(ts.kernel.schedule(BM=64, BN=64, stages=2))
    assert direct.jit(target=TARGET).schedule["stages"] == 2
    constant = doubled.scheduled(T=64)
    x = np.ones(1000, np.float32)
    constant(x)
    assert (x == 2).all() and constant.explain().config["T"] == 64


def test_results_do_not_depend_on_it():
    x = np.arange(1000, dtype=np.float32)
    for fields in ({}, {"warps": 2}, {"raster": 3, "cluster": 2}, {"off": ("software_pipelining",)}, {"T": 32, "stages": 3}):
        y = x.copy()
        doubled.scheduled(**fields)(y)
        assert (y == 2 * x).all()


@pytest.mark.parametrize(("call", "message"), [
    (lambda: ts.Schedule(warps=-1), "`warps`: expected a positive integer, got -1"),
    (lambda: ts.Schedule(warps=True), "`warps`: expected a positive integer, got True"),
    (lambda: ts.Schedule(cluster=3), "`cluster`: expected 1, 2, 4, 8 or 16 blocks, got 3"),
    (lambda: ts.Schedule(k_splits=0), "`k_splits`: expected a positive integer, got 0"),
    (lambda: ts.Schedule(operand_padding=1), "`operand_padding`: expected True or False, got 1"),
    (lambda: ts.Schedule(lazy_rescale=2), "`lazy_rescale`: expected True or False, got 2"),
    (lambda: ts.Schedule(off=["in_flight"]), "`off`: expected passes that can be left out"),
    (lambda: BASE.scheduled(BQ=1), "`product`: expected fields of a schedule .*BM.* got `BQ`"),
    (lambda: doubled.scheduled(BASE.scheduled(BM=64, BN=64).jit(target=TARGET).inspect_ir("schedule")), "schedule of `doubled`, got that of `product`"),
    (lambda: ts.Schedule("module @x : schedule {version = 1}\n"), "expected a plan of one launch, got 0"),
])  # fmt: skip
def test_mistakes_are_reported_at_their_line(call, message):
    with pytest.raises(ts.TesseraError, match=message) as caught:
        call()
    assert caught.value.code == "E_ARGUMENT"
    if "launch" not in message:
        assert "test_schedule.py" in str(caught.value)


def test_candidates_that_pin_what_cannot_be_are_refused_where_the_kernel_is():
    with pytest.raises(ts.TesseraError, match="`num_warps`: expected a count of warps, got -4") as caught:
        product_of(ts.kernel.autotune(configs=[dict(BM=64, BN=64, num_warps=-4)]))
    assert "test_schedule.py" in str(caught.value)


def test_text_that_is_none_is_refused():
    with pytest.raises(ts.TesseraError):
        ts.Schedule("what is this")
    with pytest.raises(ts.TesseraError, match="expected a schedule or its text, got int"):
        BASE.scheduled(3)


@pytest.mark.parametrize("mask", [{}, {"causal": True}, {"window": 100}])
def test_a_plan_of_attention_that_is_handed_back_gives_the_same_code(mask):
    """With warp specialization, producer warps are not among the warps that compute."""
    sys.path.append(str(ROOT))
    from ledger import recipe
    from ledger.recorded_launches import without_memory, recorded

    q = without_memory((2, 8, 1024, 128), "bf16")
    with recorded(run=False) as found:
        inspect.unwrap(ts.op.flash_attention)(q, q, q, **mask)
    made = found[0].recipe
    kernel = recipe._made(json.dumps(made.as_dict(), sort_keys=True), "emit")
    open = {name: value for name, value in made.values().items() if name not in ("num_warps", "num_stages", "lazy_rescale")}
    first = kernel.jit(target=TARGET, **open)
    assert first.schedule["warps"] == 8
    again = kernel.jit(target=TARGET, schedule=first.inspect_ir("schedule"), **open)
    assert hash_of(again) == hash_of(first) and "wgmma" in again.inspect_ir("target")

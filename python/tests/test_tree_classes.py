"""Dataclasses, named tuples and dicts of classes are restored exactly: their code does not run again, and nothing is lost."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
import pytest

import tessera as ts
from tessera import xp


@dataclasses.dataclass
class Late:
    w: Any
    scale: Any = dataclasses.field(init=False, default=0.0)
    unset: Any = dataclasses.field(init=False)


@dataclasses.dataclass
class Halved:
    w: Any

    def __post_init__(self):
        self.w = self.w / 2
        self.count = 7

    @functools.cached_property
    def doubled(self):
        return self.w * 2


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    w: Any
    power: int = dataclasses.field(default=2, metadata={"static": True})


@dataclasses.dataclass
class OwnInit:
    w: Any

    def __init__(self, a, b):
        self.w = a + b


class Doubling(NamedTuple("Doubling", [("y", Any)])):
    def __new__(cls, y):
        return super().__new__(cls, y * 2)


class Named(dict):
    attr = 7


class WithState(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.kind = "state"


def late():
    made = Late(np.ones(2, np.float32))
    made.scale = np.float32(5)
    return made


def test_fields_that_init_does_not_take():
    m = late()
    f = lambda m: m.w * m.scale  # noqa: E731
    np.testing.assert_array_equal(ts.jit(f)(m), [5, 5])
    slope = ts.grad(lambda m: xp.sum(f(m)))(m)
    np.testing.assert_array_equal(slope.w, [5, 5])
    assert slope.scale == 2
    assert not hasattr(ts.tree.map(lambda v: v, m), "unset")


def test_code_of_a_class_runs_once():
    s = Halved(np.float32([8]))
    assert ts.jit(lambda s: s.w)(s).tolist() == [4] and ts.jit(lambda s: s)(s).w.tolist() == [4]
    assert ts.tree.map(lambda v: v, s).w.tolist() == [4]
    opt = ts.optim.SGD(0.0)
    assert opt.update(s, s, opt.init(s))[0].w.tolist() == [4]
    y = Doubling(np.float32(2))
    assert y.y == 4 and ts.jit(lambda y: y.y)(y) == 4 and ts.tree.map(lambda v: v, y).y == 4
    made = OwnInit(np.float32(1), np.float32(2))
    assert ts.jit(lambda m: m.w)(made) == 3 and ts.jit(lambda m: m)(made).w == 3


def test_frozen_classes_and_slots():
    f = ts.jit(lambda m: m.w**m.power)
    assert f(Frozen(np.float32(3))) == 9 and f(Frozen(np.float32(3), 3)) == 27
    assert ts.jit(lambda m: m)(Frozen(np.float32(3), 3)) == Frozen(np.float32(3), 3)


def test_attributes_beside_fields_are_constants():
    f = ts.jit(lambda s: s.w * s.count)
    s = Halved(np.float32([8]))
    assert f(s).tolist() == [28]
    s.count = 3
    assert f(s).tolist() == [12]
    assert s.doubled.tolist() == [8] and f(s).tolist() == [12]  # what was computed once is no attribute of its own
    s.more = np.ones(2)
    with pytest.raises(ts.TesseraError, match="`more` was set beside") as caught:
        f(s)
    assert caught.value.code == "E_TYPE"


def test_dicts_of_classes():
    plain, changed = Named(a=np.float32(2)), Named(a=np.float32(2))
    changed.attr = 99
    f = ts.jit(lambda d: d["a"] * d.attr)
    assert f(plain) == 14
    with pytest.raises(ts.TesseraError, match="`attr` was set beside"):
        f(changed)
    assert ts.jit(lambda d: d["a"] * len(d.kind))(WithState(a=np.float32(2))) == 10


def test_checkpoints_keep_all_fields(tmp_path):
    path = tmp_path / "m.safetensors"
    ts.save(path, late())
    for back in (ts.load(path), ts.load(path, like=late())):
        assert type(back) is Late and back.scale == 5 and back.w.tolist() == [1, 1] and not hasattr(back, "unset")
    with pytest.raises(ts.CheckpointError, match="`count` was set beside"):
        ts.save(path, Halved(np.float32([8])))
    assert ts.load(path).scale == 5

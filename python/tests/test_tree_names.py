"""`ts.tree` by the names of ``jax.tree``."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

import tessera as ts


class Pair(NamedTuple):
    a: object
    b: object


@dataclasses.dataclass
class Block:
    w: object
    kind: str = dataclasses.field(default="x", metadata={"static": True})


TREE = {"p": [1, Pair(2, 3)], "q": (Block(4),), "r": None}


def test_structure_is_equal_and_hashable():
    one, other = ts.tree.structure(TREE), ts.tree.structure(ts.tree.map(lambda v: v + 1, TREE))
    assert one == other and hash(one) == hash(other) and one.leaf_count == 4
    assert one != ts.tree.structure({"p": 1})


def test_reduce_and_all():
    assert ts.tree.reduce(lambda a, b: a + b, TREE) == 10
    assert ts.tree.reduce(lambda a, b: a + b, TREE, 100) == 110
    assert ts.tree.all(TREE) and not ts.tree.all([1, 0])
    assert ts.tree.reduce(max, {}, 0) == 0


def test_paths():
    found = ts.tree.leaves_with_path(TREE)
    assert [(ts.tree.keystr(p), v) for p, v in found] == [("['p'][0]", 1), ("['p'][1].a", 2), ("['p'][1].b", 3), ("['q'][0].w", 4)]
    assert found[0][0] == (ts.tree.DictKey("p"), ts.tree.IndexKey(0)) and found[1][0][-1] == ts.tree.AttributeKey("a")
    assert ts.tree.flatten_with_path(TREE) == (found, ts.tree.structure(TREE))
    made = ts.tree.map_with_path(lambda p, v, w: f"{ts.tree.keystr(p)}={v}{w}", {"a": 1, "b": [2]}, {"a": 8, "b": [9]})
    assert made == {"a": "['a']=18", "b": ["['b'][0]=29"]}
    assert ts.tree.map_with_path(lambda p, v: v, {}) == {}


def test_leaves_that_are_chosen():
    def pair(v):
        return isinstance(v, Pair)

    assert ts.tree.leaves(TREE, is_leaf=pair) == [1, Pair(2, 3), 4]
    assert ts.tree.map(lambda v: v.a if pair(v) else v, TREE, is_leaf=pair) == {"p": [1, 2], "q": (Block(4),), "r": None}
    assert ts.tree.leaves([1, None], is_leaf=lambda v: v is None) == [1, None]
    assert [ts.tree.keystr(p) for p, _ in ts.tree.leaves_with_path(TREE, is_leaf=pair)] == ["['p'][0]", "['p'][1]", "['q'][0].w"]


def test_the_others_may_have_trees_for_leaves():
    assert ts.tree.map(lambda n, t: sum(t[:n]), {"a": 1, "b": 2}, {"a": (5, 6), "b": (5, 6)}) == {"a": 5, "b": 11}
    with pytest.raises(ts.TesseraError, match=r"at \['b'\]"):
        ts.tree.map(lambda a, b: a, {"a": 1, "b": [2]}, {"a": 1, "b": (2,)})


def test_transpose():
    outer, inner = ts.tree.structure([0, 0, 0]), ts.tree.structure({"a": 0, "b": 0})
    rows = [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5, "b": 6}]
    assert ts.tree.transpose(outer, inner, rows) == {"a": [1, 3, 5], "b": [2, 4, 6]}
    assert ts.tree.transpose(outer, None, rows) == {"a": [1, 3, 5], "b": [2, 4, 6]}
    with pytest.raises(ts.TesseraError, match="one form"):
        ts.tree.transpose(outer, inner, [{"a": 1}] * 3)


def test_own_classes():
    @ts.tree.register_class
    class Scaled:
        def __init__(self, x, by):
            self.x, self.by = x, by

        def tree_flatten(self):
            return [self.x], self.by

        @classmethod
        def tree_unflatten(cls, meta, children):
            return cls(children[0], meta)

    made = ts.jit(lambda s: Scaled(s.x * s.by, s.by))(Scaled(np.ones(3, np.float32), 3))
    assert isinstance(made, Scaled) and made.by == 3
    np.testing.assert_array_equal(made.x, [3, 3, 3])

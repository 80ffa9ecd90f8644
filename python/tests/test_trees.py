"""Trees of arrays."""

import collections
import dataclasses
from typing import NamedTuple

import pytest

import tessera as ts


class Pair(NamedTuple):
    a: object
    b: object


@dataclasses.dataclass
class Model:
    w: object
    name: str = dataclasses.field(default="m", metadata={"static": True})


@pytest.mark.parametrize(
    "tree",
    [1, [1, 2], (1, (2, 3)), {"b": 1, "a": [2, None]}, Pair(1, {"x": 2}), Model(w=[1, 2], name="n"), None, {}, []],
)
def test_a_tree_is_made_again_from_its_leaves(tree):
    leaves, form = ts.tree.flatten(tree)
    assert ts.tree.unflatten(form, leaves) == tree
    assert hash(form) == hash(ts.tree.flatten(tree)[1])
    assert form.leaf_count == len(leaves) == len(ts.tree.paths(tree))


def test_dicts_are_one_form_in_any_order():
    assert ts.tree.flatten({"a": 1, "b": 2}) == ts.tree.flatten({"b": 2, "a": 1})


def test_map_wants_one_form():
    assert ts.tree.map(lambda a, b: a + b, {"x": [1, 2]}, {"x": [3, 4]}) == {"x": [4, 6]}
    with pytest.raises(ts.TesseraError, match="one form"):
        ts.tree.map(lambda a, b: a, [1], [1, 2])


def test_paths_say_how_a_leaf_is_reached():
    assert ts.tree.paths({"p": [1, Pair(2, 3)]}, "x") == ["x['p'][0]", "x['p'][1].a", "x['p'][1].b"]


def test_a_class_can_be_registered():
    class Box:
        def __init__(self, x):
            self.x = x

    ts.tree.register(Box, lambda b: ([b.x], "meta"), lambda meta, children: Box(children[0]))
    leaves, form = ts.tree.flatten(Box([1, 2]))
    assert leaves == [1, 2]
    assert ts.tree.unflatten(form, [3, 4]).x == [3, 4]


def test_dicts_that_are_kept_in_order_stay_so():
    tree = collections.OrderedDict(z=1.0, a=2.0)
    assert list(ts.jit(lambda d: d)(tree)) == ["z", "a"] and list(ts.tree.map(lambda x: x + 1, tree).items()) == [("z", 2.0), ("a", 3.0)]


def test_dicts_with_defaults_keep_them():
    tree = collections.defaultdict(list, b=1.0, a=2.0)
    made = ts.jit(lambda d: ts.tree.map(lambda x: x * 2, d))(tree)
    assert type(made) is collections.defaultdict and made.default_factory is list and made["a"] == 4 and made["new"] == []
    assert ts.tree.structure(tree) == ts.tree.structure(collections.defaultdict(list, a=0.0, b=0.0))
    assert ts.tree.structure(tree) != ts.tree.structure(collections.defaultdict(dict, a=0.0, b=0.0))

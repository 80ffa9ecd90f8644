"""Trees of arrays: dicts, lists, tuples, named tuples, dataclasses and what `register` adds. Everything else is a leaf; ``None`` is a
tree without leaves. Names and meaning are those of ``jax.tree``; a leaf may be any object for which ``is_leaf`` says so.

    >>> ts.tree.map(lambda x: x + 1, {"a": 1, "b": (2, 3)})
    {'a': 2, 'b': (3, 4)}
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from . import pytree
from .pytree import TreeDef, paths, register, unflatten

__all__ = [
    "AttributeKey", "DictKey", "IndexKey", "TreeDef", "all", "flatten", "flatten_with_path", "keystr", "leaves", "leaves_with_path",
    "map", "map_with_path", "paths", "reduce", "register", "register_class", "structure", "transpose", "unflatten",
]  # fmt: skip


class DictKey(NamedTuple):
    """A step of a path into a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


class IndexKey(NamedTuple):
    """A step of a path into a list, a tuple, or the children of a registered class."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx}]"


class AttributeKey(NamedTuple):
    """A step of a path into a dataclass or a named tuple."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


class _Whole:
    """A part of a tree that ``is_leaf`` made a leaf."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _closed(tree: Any, is_leaf: Callable[[Any], bool]) -> Any:
    if is_leaf(tree):
        return _Whole(tree)
    found = pytree._children(tree)
    if found is None:
        return tree
    kind, meta, children, _ = found
    form = TreeDef(kind, meta, (pytree.LEAF,) * len(children))
    return tree if kind is type(None) else unflatten(form, [_closed(c, is_leaf) for c in children])


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list, TreeDef]:
    """The leaves in order, and the structure."""
    if is_leaf is None:
        return pytree.flatten(tree)
    found, form = pytree.flatten(_closed(tree, is_leaf))
    return [v.value if isinstance(v, _Whole) else v for v in found], form


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list:
    """The leaves in order."""
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeDef:
    """The structure without the leaves: equal for equal structures, and hashable."""
    return flatten(tree, is_leaf)[1]


def map(f: Callable, tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """A tree of the same structure whose leaves are ``f`` of the leaves of all trees. The others may have trees where the first has
    leaves."""
    first, form = flatten(tree, is_leaf)
    others = [_up_to(form, other) for other in rest]
    return unflatten(form, [f(*items) for items in zip(first, *others, strict=True)])


def _up_to(form: TreeDef, tree: Any, path: str = "") -> list:
    """The parts of a tree that stand where another structure has leaves."""
    if form.kind is None:
        return [tree]
    found = pytree._children(tree)
    if found is None or found[0] is not form.kind or found[1] != form.meta or len(found[2]) != len(form.children):
        raise _core.error(
            "E_ARGUMENT",
            f"expected trees of one form, {pytree.difference(form, pytree.flatten(tree)[1], path)}",
            "give trees of the same containers, keys and lengths",
        )
    return [v for c, part, step in zip(form.children, found[2], found[3](), strict=True) for v in _up_to(c, part, path + step)]


def reduce(function: Callable, tree: Any, *initializer: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """``function`` folded over the leaves in order, from ``initializer`` where it is given."""
    return functools.reduce(function, leaves(tree, is_leaf), *initializer)


def all(tree: Any, *, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether every leaf holds."""
    return builtins.all(leaves(tree, is_leaf))


def _steps(tree: Any) -> list:
    kind, meta, children, names = pytree._children(tree)  # type: ignore[misc]
    if isinstance(tree, dict) and kind not in pytree._REGISTERED:
        return [DictKey(k) for k in meta]
    if kind in pytree._REGISTERED or kind in (list, tuple):
        return [IndexKey(i) for i in range(len(children))]
    return [AttributeKey(n[1:]) for n in names()]


def leaves_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[tuple, Any]]:
    """``(path, leaf)`` for each leaf; `keystr` writes a path as text."""
    out: list = []

    def walk(part: Any, path: tuple) -> None:
        if is_leaf is not None and is_leaf(part) or pytree._children(part) is None:
            out.append((path, part))
            return
        for step, child in zip(_steps(part), pytree._children(part)[2], strict=True):  # type: ignore[index]
            walk(child, (*path, step))

    walk(tree, ())
    return out


def flatten_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[tuple[tuple, Any]], TreeDef]:
    """`leaves_with_path`, and the structure."""
    return leaves_with_path(tree, is_leaf), structure(tree, is_leaf)


def map_with_path(f: Callable, tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """As `map`, of ``f(path, leaf, ...)``."""
    found, form = flatten_with_path(tree, is_leaf)
    others = [_up_to(form, other) for other in rest]
    return unflatten(form, [f(path, *items) for (path, *items) in zip(*(zip(*found, strict=True) if found else ((), ())), *others, strict=True)])


def keystr(path: Iterable[Any]) -> str:
    """A path as text: ``['w'][0].scale``."""
    return "".join(str(step) for step in path)


def transpose(outer: TreeDef, inner: TreeDef | None, tree: Any) -> Any:
    """A tree of structure ``outer`` whose leaves are trees of structure ``inner`` turned inside out. ``None`` takes the structure of the
    first."""
    parts = _up_to(outer, tree)
    if inner is None:
        if not parts:
            raise _core.error("E_ARGUMENT", "transpose: expected `inner`, as there are no leaves to take it of", "give both structures")
        inner = structure(parts[0])
    rows = [_up_to(inner, part) for part in parts]
    return unflatten(inner, [unflatten(outer, [row[k] for row in rows]) for k in range(inner.leaf_count)])


def register_class(kind: type) -> type:
    """Makes instances of a class with ``tree_flatten()`` and ``tree_unflatten(meta, children)`` trees."""
    register(kind, lambda x: x.tree_flatten(), lambda meta, children: kind.tree_unflatten(meta, children))  # type: ignore[attr-defined]
    return kind

if not TYPE_CHECKING:  # a checker would take every name for one that is there

    def __getattr__(name: str) -> Any:
        from ..base.foreign_names import missing

        raise missing(__name__, name, __all__)

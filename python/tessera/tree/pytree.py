"""Trees of arrays: dicts, lists, tuples, named tuples, dataclasses and what `register` adds. Everything else is a leaf;
``None`` is a tree without leaves. Dicts are taken in the order of their sorted keys where those can be sorted, so that two
equal dicts are one tree."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy

from .. import _core
from ..arrays.host import HostArray
from ..base.caller import here

_REGISTERED: dict[type, tuple[Callable, Callable]] = {}
_NAMES: dict[type, Callable[[Any], Iterable[str]] | None] = {}
#: Classes whose instances were found to be leaves: a training step looks at a thousand of them.
_LEAVES: set[type] = set()
#: Classes that `_core.Calls` handles without Python. `plain` is false once one of them was registered with a meaning of its own.
_PLAIN = (tuple, list, dict, type(None), numpy.ndarray, float, int, bool)
plain = True


class TreeDef(NamedTuple):
    """The form of a tree without its leaves. Equal for equal forms, and hashable."""

    kind: Any
    meta: Any
    children: tuple[TreeDef, ...]

    @property
    def leaf_count(self) -> int:
        return 1 if self.kind is None else sum(c.leaf_count for c in self.children)

    def __str__(self) -> str:
        if self.kind is None:
            return "*"
        name = getattr(self.kind, "__name__", str(self.kind))
        return f"{name}({', '.join([str(c) for c in self.children])})"


LEAF = TreeDef(None, None, ())
_NONE = object()


def register(kind: type, flatten: Callable[[Any], tuple[Iterable[Any], Any]], unflatten: Callable[[Any, list], Any],
             names: Callable[[Any], Iterable[str]] | None = None) -> None:  # fmt: skip
    """Makes instances of a class trees: ``flatten(x)`` gives ``(children, meta)`` with hashable ``meta``;
    ``unflatten(meta, children)`` makes it again; ``names(x)`` are the attributes that hold the children, for messages and
    checkpoints."""
    global plain
    _REGISTERED[kind] = (flatten, unflatten)
    _NAMES[kind] = names
    _LEAVES.clear()
    if kind in _PLAIN:
        _core.scoped_settings()
        plain = False


#: Classes that are leaves here and trees of one array in calls: how they are opened, and the kind of the form.
_OPENED: dict[type, tuple[Callable[[Any], tuple[Any, Any]], type]] = {}


def open_in_calls(kinds: Iterable[type], name: str, into: Callable[[Any], tuple[Any, Any]], back: Callable[[Any, Any], Any]) -> None:
    """Makes instances of classes trees of one array where a function is traced or called, and leaves elsewhere: ``into(x)`` gives the array
    and hashable ``meta``, ``back(meta, array)`` the instance for an array that stands for it."""
    form = type(name, (), {})
    _REGISTERED[form] = (lambda _: ((), None), lambda meta, children: back(meta, children[0]))
    _OPENED.update((kind, (into, form)) for kind in kinds)


def is_opened(x: Any) -> bool:
    """Whether it stands for one array in calls."""
    return type(x) in _OPENED


def opened(tree: Any) -> tuple[list, TreeDef]:
    """`flatten` for calls: with the arrays of what `open_in_calls` opens."""
    found, form = flatten(tree)
    if not any([type(x) in _OPENED for x in found]):
        return found, form
    rest, out = iter(found), []

    def walk(part: TreeDef) -> TreeDef:
        if part.kind is not None:
            return TreeDef(part.kind, part.meta, tuple([walk(c) for c in part.children]))
        x = next(rest)
        if type(x) not in _OPENED:
            out.append(x)
            return LEAF
        into, kind = _OPENED[type(x)]
        array, meta = into(x)
        out.append(array)
        return TreeDef(kind, meta, (LEAF,))

    made = walk(form)
    return out, made


def reformed(form: TreeDef, change: Callable[[Any, int], Any]) -> TreeDef:
    """A form of a call with ``change(meta, i)`` as what is known of leaf ``i``, where a class was opened for it."""
    at = iter(range(form.leaf_count))
    kinds = {kind for _, kind in _OPENED.values()}

    def walk(part: TreeDef) -> TreeDef:
        if part.kind is None:
            next(at)
            return LEAF
        if part.kind in kinds:
            return TreeDef(part.kind, change(part.meta, next(at)), part.children)
        return TreeDef(part.kind, part.meta, tuple([walk(c) for c in part.children]))

    return walk(form)


def open_all(form: TreeDef, like: type, meta: Callable[[int], Any]) -> TreeDef:
    """A form of a call whose leaves all stand for instances of a class that `open_in_calls` opens: ``meta(i)`` is known of leaf ``i``, where
    the form does not say so itself."""
    at = iter(range(form.leaf_count))
    kinds, kind = {kind for _, kind in _OPENED.values()}, _OPENED[like][1]

    def walk(part: TreeDef) -> TreeDef:
        if part.kind is None:
            return TreeDef(kind, meta(next(at)), (LEAF,))
        if part.kind in kinds:
            next(at)
            return part
        return TreeDef(part.kind, part.meta, tuple([walk(c) for c in part.children]))

    return walk(form)


def closed(form: TreeDef) -> TreeDef:
    """A form of a call as a form of arrays, whatever they stand for."""
    kinds = {kind for _, kind in _OPENED.values()}

    def walk(part: TreeDef) -> TreeDef:
        if part.kind is None or part.kind in kinds:
            return LEAF
        return TreeDef(part.kind, part.meta, tuple([walk(c) for c in part.children]))

    return walk(form)


class _Keys(tuple):
    """The keys of a ``defaultdict``, with what makes its missing values."""

    factory: Any

    def __new__(cls, keys: Iterable, factory: Any) -> _Keys:
        made = super().__new__(cls, keys)
        made.factory = factory
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keys) and tuple.__eq__(self, other) and self.factory is other.factory

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple(self), self.factory))


def _sorted_keys(tree: dict) -> list:
    """The order of a form: equal dicts are one tree, but for those that are kept in order."""
    if isinstance(tree, OrderedDict):
        return list(tree)
    try:
        return sorted(tree)
    except TypeError:
        return list(tree)


_DICTS = (dict, OrderedDict, defaultdict)


def _only_items(tree: dict) -> None:
    """Refuses a dict subclass instance with attributes beyond its items: they would be lost."""
    have = getattr(tree, "__dict__", None)
    if not have or have is tree:
        return
    kind = type(tree)
    new = kind(tree.default_factory, dict(tree)) if isinstance(tree, defaultdict) else kind(dict(tree))
    other = getattr(new, "__dict__", {})
    for name in [*have, *(n for n in other if n not in have)]:
        mine, theirs = have.get(name, _NONE), other.get(name, _NONE)
        if mine is not theirs and not (type(mine) is type(theirs) and isinstance(mine, (bool, int, float, str, tuple)) and mine == theirs):
            raise _lost(kind, name, "its items")


def _lost(kind: type, name: str, parts: str) -> Exception:
    return _core.error("E_TYPE", f"expected a `{kind.__name__}` that is {parts}, got one whose attribute `{name}` was set beside them",
                       f"make `{name}` one of them, or say how the class is taken apart: `ts.tree.register({kind.__name__}, ...)`",
                       None, None, here())  # fmt: skip


def _set_fields(tree: Any) -> list:
    """The fields of a dataclass that have a value."""
    return [f for f in dataclasses.fields(tree) if f.init or hasattr(tree, f.name)]


def beside(tree: Any) -> list[str]:
    """The attributes of a dataclass that are no fields, but for what is computed once, which is computed again."""
    fields = {f.name for f in dataclasses.fields(tree)}
    kind = type(tree)
    return [n for n in getattr(tree, "__dict__", ()) if n not in fields and not isinstance(inspect.getattr_static(kind, n, None), functools.cached_property)]


def _set_beside(tree: Any) -> tuple:
    """Their values, which are constants of a form as static fields are."""
    found = tuple((n, tree.__dict__[n]) for n in beside(tree))
    for name, value in found:
        try:
            hash(value)
        except TypeError:
            raise _lost(type(tree), name, "its fields") from None
    return found


def built(kind: type, values: dict[str, Any]) -> Any:
    """A dataclass with these values of its fields. Its own ``__init__`` and ``__post_init__`` ran when the program made the first one: once
    more they would change what they changed already."""
    try:
        made = object.__new__(kind)
    except TypeError:
        made = kind.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _children(tree: Any) -> tuple[Any, Any, list, Callable[[], list[str]]] | None:
    """Kind, meta, children, and what gives how each child is reached; ``None`` for a leaf."""
    kind = type(tree)
    if kind is numpy.ndarray or kind is HostArray:
        # Most leaves of most calls.
        return None
    if kind in _REGISTERED:
        children, meta = _REGISTERED[kind][0](tree)
        children = list(children)
        named = _NAMES.get(kind)
        return kind, meta, children, lambda: [f".{n}" for n in (range(len(children)) if named is None else named(tree))]
    if tree is None:
        return type(None), None, [], list
    if isinstance(tree, dict):
        keys = _sorted_keys(tree)
        if kind not in _DICTS:
            _only_items(tree)
        meta = _Keys(keys, tree.default_factory) if isinstance(tree, defaultdict) else tuple(keys)
        return kind, meta, [tree[k] for k in keys], lambda: [f"[{k!r}]" for k in keys]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return kind, None, list(tree), lambda: [f".{f}" for f in tree._fields]
    if kind is tuple or kind is list:
        return kind, None, list(tree), lambda: [f"[{i}]" for i in range(len(tree))]
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = _set_fields(tree)
        inner = [f for f in fields if not f.metadata.get("static")]
        fixed = tuple((f.name, getattr(tree, f.name)) for f in fields if f.metadata.get("static"))
        if len(getattr(tree, "__dict__", ())) > len(fields):
            fixed += _set_beside(tree)
        names = tuple(f.name for f in inner)
        return kind, (names, fixed, static_key(tuple(value for _, value in fixed))), [getattr(tree, n) for n in names], lambda: [f".{n}" for n in names]
    return None


def static_key(value: Any) -> Any:
    """A key that distinguishes values that compare equal: values of different types, also inside tuples and dataclasses, and
    zeros of both signs."""
    if type(value) is float:
        return float, value.hex()
    if type(value) is tuple:
        return tuple, tuple([static_key(v) for v in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # Beside what the class itself says of equality, and only of what it looks at for it.
        looked_at = [f for f in dataclasses.fields(value) if (f.compare if f.hash is None else f.hash)]
        own = not type(value).__dataclass_params__.eq  # by identity
        parts = () if own else tuple([static_key(getattr(value, f.name)) for f in looked_at])
        try:
            hash(parts)
        except TypeError:  # the class hashes otherwise
            parts = ()
        return type(value), value, parts
    return type(value), value


def fixed_in(form: TreeDef) -> Iterable[Any]:
    """The static parts of a form: the keys of dicts, and static fields."""
    if form.kind is not None and form.kind not in _REGISTERED:
        if issubclass(form.kind, dict):
            yield from form.meta
        elif form.meta is not None and dataclasses.is_dataclass(form.kind):
            yield from (value for _, value in form.meta[1])
    for child in form.children:
        yield from fixed_in(child)


def flatten(tree: Any) -> tuple[list, TreeDef]:
    """The leaves in order, and the form."""
    leaves: list = []
    return leaves, _flatten(tree, leaves)


def _flatten(tree: Any, leaves: list) -> TreeDef:
    kind = type(tree)
    if kind in _LEAVES:
        leaves.append(tree)
        return LEAF
    if kind is dict and dict not in _REGISTERED:
        keys = _sorted_keys(tree)
        return TreeDef(dict, tuple(keys), tuple([_flatten(tree[k], leaves) for k in keys]))
    if (kind is list or kind is tuple) and kind not in _REGISTERED:
        return TreeDef(kind, None, tuple([_flatten(c, leaves) for c in tree]))
    found = _children(tree)
    if found is None:
        if not isinstance(tree, type):
            _LEAVES.add(kind)
        leaves.append(tree)
        return LEAF
    kind, meta, children, _ = found
    return TreeDef(kind, meta, tuple([_flatten(c, leaves) for c in children]))


def paths(tree: Any, prefix: str = "") -> list[str]:
    """How each leaf is reached, for messages: ``params['w'][0]``."""
    found = _children(tree)
    if found is None:
        return [prefix]
    return [p for child, step in zip(found[2], found[3](), strict=True) for p in paths(child, prefix + step)]


def difference(wanted: TreeDef, got: TreeDef, path: str = "") -> str | None:
    """The first place where two forms differ, as a message goes on after "expected": ``at ['w'][0] a tuple of 2, got None``."""
    at = f"at {path} " if path else ""
    if wanted.kind is not got.kind:
        return f"{at}{_described(wanted)}, got {_described(got)}"
    if wanted.kind is None or wanted.kind is type(None):
        return None
    plain = wanted.kind not in _REGISTERED
    if plain and issubclass(wanted.kind, dict) and wanted.meta != got.meta:
        missing, more = [[k for k in a.meta if k not in b.meta] for a, b in ((wanted, got), (got, wanted))]
        return f"{at}{_described(wanted)}, got " + (f"one without {missing[0]!r}" if missing else f"one with {more[0]!r}" if more else "another order")
    if len(wanted.children) != len(got.children):
        return f"{at}{_described(wanted)}, got {_described(got)}"
    for step, a, b in zip(_steps(wanted), wanted.children, got.children, strict=True):
        if a != b:
            return difference(a, b, path + step)
    return None if wanted.meta == got.meta else f"{at}{_described(wanted)} with {_static(wanted)}, got one with {_static(got)}"


def _described(form: TreeDef) -> str:
    """A description for messages."""
    if form.kind is None:
        return "an array or a number"
    if form.kind is type(None):
        return "None"
    name = form.kind.__name__
    if form.kind not in _REGISTERED:
        if issubclass(form.kind, dict):
            return f"a {name} with {_keys(form.meta)}"
        if form.kind in (list, tuple):
            return f"a {name} of {len(form.children)}"
    return f"a {name}"


def _keys(keys: tuple) -> str:
    shown = ", ".join([repr(k) for k in keys[:6]]) + (", …" if len(keys) > 6 else "")
    return f"the key{'s' if len(keys) > 1 else ''} {shown}" if keys else "no keys"


def _static(form: TreeDef) -> Any:
    return dict(form.meta[1]) if form.kind not in _REGISTERED and dataclasses.is_dataclass(form.kind) else form.meta


def _steps(form: TreeDef) -> list[str]:
    """How each child is reached."""
    kind, count = form.kind, len(form.children)
    if kind in _REGISTERED:
        return [f".{i}" for i in range(count)]
    if issubclass(kind, dict):
        return [f"[{k!r}]" for k in form.meta]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return [f".{f}" for f in kind._fields]
    if issubclass(kind, (tuple, list)):
        return [f"[{i}]" for i in range(count)]
    return [f".{n}" for n in form.meta[0]]


def unflatten(form: TreeDef, leaves: Iterable[Any]) -> Any:
    """A tree of this form with these leaves."""
    given = list(leaves)
    rest = iter(given)
    try:
        made = _unflatten(form, rest)
        enough = next(rest, _NONE) is _NONE
    except StopIteration:
        enough = False
    if not enough:
        raise _core.error(
            "E_ARGUMENT",
            f"expected {form.leaf_count} leaves, got {len(given)}",
            "give as many values as the tree has leaves",
        )
    return made


def _unflatten(form: TreeDef, leaves: Any) -> Any:
    kind, meta = form.kind, form.meta
    if kind is None:
        return next(leaves)
    if kind is type(None):
        return None
    children = [next(leaves) if c is LEAF else _unflatten(c, leaves) for c in form.children]
    if kind in _REGISTERED:
        return _REGISTERED[kind][1](meta, children)
    if issubclass(kind, dict):
        made = dict(zip(meta, children, strict=True))
        if isinstance(meta, _Keys):
            return kind(meta.factory, made)
        return made if kind is dict else kind(made)
    if issubclass(kind, tuple):
        # As `_make` does, without the class's own `__new__`.
        return tuple.__new__(kind, children) if hasattr(kind, "_fields") else tuple(children)
    if issubclass(kind, list):
        return children
    names, fixed, _ = meta
    return built(kind, dict(zip(names, children, strict=True)) | dict(fixed))


def leaves(tree: Any) -> list:
    """The leaves of a tree, in order."""
    return flatten(tree)[0]


def map(fn: Callable, tree: Any, *rest: Any) -> Any:
    """A tree of the same form whose leaves are ``fn`` of the leaves of all trees."""
    first, form = flatten(tree)
    others = []
    for other in rest:
        more, other_form = flatten(other)
        if other_form != form:
            raise _core.error(
                "E_ARGUMENT",
                f"expected trees of one form, {difference(form, other_form)}",
                "give trees of the same containers, keys and lengths",
            )
        others.append(more)
    return unflatten(form, [fn(*items) for items in zip(first, *others, strict=True)])

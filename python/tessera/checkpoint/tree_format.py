"""The description of a tree as JSON, which checkpoints embed: `describe` takes a tree apart, `rows_of` writes what it found,
`parse` reads it, and `build` makes the tree again.

    {"version": 2, "tree": [row, row, ...]}

A row is a node of the tree. It comes before the rows of its children, so that deep trees need no nested JSON:

| row | stands for |
|---|---|
| ``{"kind": "array", "name": "w", "dtype": "f32", "as": "numpy"}`` | the array that the file has under a name; see below |
| ``{"kind": "value", "value": 3}`` | a number or text (`values`) |
| ``{"kind": "none"}`` | ``None`` |
| ``{"kind": "list", "count": 2}``, ``tuple`` | that many children follow |
| ``{"kind": "dict", "keys": ["a", 0]}`` | a dict in its order; ``class`` for a class of dicts |
| ``{"kind": "namedtuple", "class": "m:P", "fields": ["x", "y"]}`` | |
| ``{"kind": "dataclass", "class": "m:C", "fields": ["w"], "static": {"name": "a"}}`` | ``static`` are fields without arrays |
| ``{"kind": "module", ...}`` | an `nn.Module`, likewise |
| ``{"kind": "registered", "class": "m:C", "fields": ["w"], "meta": 2}`` | a class of `ts.tree.register`; ``count`` in place of ``fields`` where it names none |
| ``{"kind": "key"}`` | a `ts.random.Key`; its words follow |

``as`` is what an array comes back as: ``numpy``, ``scalar``, ``host`` or ``weak`` (arrays of `ts`). ``"order": "big"`` is one that was
big-endian; in the file all are little-endian. No row holds code, and reading one imports and calls none of a file's choice (`class_names`)."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy

from ..base.errors import Refusal
from ..nn import Module
from ..random import Key
from ..tree import pytree
from . import class_names as classes
from .bounded_json import shown
from .leaves import FORMS
from .values import Opaque, decode, encode

VERSION = 2
#: Deeper trees are refused, when they are saved and when they are read: a list that holds itself is one.
DEEPEST = 500
LEAVES = ("array", "value")
_DAMAGED = "the file is damaged: write it again"


@dataclasses.dataclass(slots=True)
class Node:
    """A part of a tree, as it is in memory or in a file."""

    kind: str
    #: How it is reached, as text for messages, and as JSON of each step, which is the same for an attribute and a key of one name.
    path: str = ""
    key: tuple[str, ...] = ()
    #: How each child is reached: a key of a dict, an index, or the name of an attribute.
    steps: list = dataclasses.field(default_factory=list)
    #: The class, and whether its own code may be called. Of a file, `None` until it is built.
    cls: type | None = None
    trusted: bool = True
    #: Static fields by their names, or what a registered class holds beside its children.
    fixed: Any = None
    #: Of a leaf in memory, the leaf.
    leaf: Any = None
    #: Of a file, the row.
    row: dict[str, Any] | None = None

    @property
    def at(self) -> str:
        """Its place, for messages."""
        return f"at `{shown(self.path, 120)}`" if self.path else "at the top of the tree"

    @property
    def text(self) -> str:
        """The path for messages that go on about it."""
        return shown(self.path, 120) or "the tree"

    @property
    def name(self) -> str:
        """What files of other programs would call it: ``layers.0.w``."""
        steps = [step if isinstance(step, str) else str(decode(step, self.at)) for step in map(json.loads, self.key)]
        return ".".join(steps).encode("utf-8", "replace").decode() or "array"


def describe(tree: Any) -> list[Node]:
    """The nodes of a tree, each before its children. Kinds of leaves are found by who asks: see `leaves`."""
    nodes, stack, named = [], [(tree, "", ())], {}
    while stack:
        part, path, key = stack.pop()
        node, children = _node(part, path, key)
        nodes.append(node)
        if node.cls is not None and named.setdefault(classes.name_of(node.cls), node.cls) is not node.cls:
            raise Refusal(f"expected one class of the name `{classes.name_of(node.cls)}`, got another {node.at}", "give the classes names of their own")
        if children and len(key) >= DEEPEST:
            raise Refusal(f"expected a tree of at most {DEEPEST} levels, got a deeper one, or one that holds itself, at `{shown(path)}`",
                          "save its arrays in a flat dict")  # fmt: skip
        stack += reversed([(c, path + _text(node, s), (*key, _step(s, node))) for c, s in zip(children, node.steps, strict=True)])
    return nodes


def _node(part: Any, path: str, key: tuple[str, ...]) -> tuple[Node, list]:
    node = Node("leaf", path, key, leaf=part)
    try:
        found = pytree._children(part)
        children = [] if found is None else list(found[2])
    except Exception as error:
        raise classes.failed(type(part), error, node.at) from error
    if found is None:
        return node, []
    kind, meta = found[0], found[1]
    node.leaf = None
    if kind in pytree._REGISTERED:
        names = _names(part, kind, len(children), node.at)
        if kind is Key:
            return dataclasses.replace(node, kind="key", steps=["words"]), children
        if issubclass(kind, Module):
            return dataclasses.replace(node, kind="module", cls=kind, steps=names, fixed=dict(zip(kind._static, meta[0], strict=True))), children
        return dataclasses.replace(node, kind="registered", cls=kind, steps=names, fixed=meta), children
    if part is None:
        return dataclasses.replace(node, kind="none"), []
    if isinstance(part, defaultdict):
        raise Refusal(f"expected a tree without code {node.at}, got a `{kind.__name__}`: a file cannot hold what makes its missing values",
                      "save a plain dict of it: `dict(tree)`")  # fmt: skip
    if isinstance(part, dict):
        # In its own order; `tree.pytree` sorts the keys.
        return dataclasses.replace(node, kind="dict", cls=None if kind is dict else kind, steps=list(part)), list(part.values())
    if kind in (list, tuple):
        return dataclasses.replace(node, kind=kind.__name__, steps=list(range(len(children)))), children
    if isinstance(part, tuple):
        return dataclasses.replace(node, kind="namedtuple", cls=kind, steps=list(part._fields)), children  # type: ignore[attr-defined]
    lost = pytree.beside(part)
    if lost:
        raise Refusal(f"expected a `{kind.__qualname__}` {node.at} that is its fields, got one whose attribute `{lost[0]}` was set beside them",
                      f"make `{lost[0]}` a field, `dataclasses.field(init=False)` for what `__post_init__` sets")  # fmt: skip
    return dataclasses.replace(node, kind="dataclass", cls=kind, steps=list(meta[0]), fixed=dict(meta[1])), children


def _names(part: Any, kind: type, count: int, at: str) -> list:
    """The names of the children of a registered class, or their numbers where they have none of their own."""
    named = pytree._NAMES.get(kind)
    try:
        names = [] if named is None else [str(n) for n in named(part)]
    except Exception as error:
        raise classes.failed(kind, error, at) from error
    return names if len(set(names)) == len(names) == count else list(range(count))


def _step(step: Any, node: Node) -> str:
    try:
        return json.dumps(encode(step, plain=True))
    except Opaque as what:
        base = next((b.__name__ for b in (int, float, str) if isinstance(step, b)), "int" if isinstance(step, numpy.integer) else "str")
        raise Refusal(f"expected keys that are text or numbers {node.at}, got {what}", f"write `{base}(key)`") from None


def _text(node: Node, step: Any) -> str:
    return f"[{step!r}]" if node.kind in ("dict", "list", "tuple") else f".{step}"


def rows_of(nodes: list[Node], leaf: Callable[[Node], dict[str, Any]]) -> dict[str, Any]:
    """The description of a tree; ``leaf`` gives the rows of leaves. What could not be built again is refused."""
    build(nodes, lambda node: node.leaf)
    rows = []
    for node in nodes:
        if node.kind == "leaf":
            rows.append(leaf(node))
            continue
        row: dict[str, Any] = {"kind": node.kind}
        if node.cls is not None:
            row["class"] = classes.name_of(node.cls)
            classes.remember(node.cls)
        if node.kind in ("list", "tuple"):
            row["count"] = len(node.steps)
        elif node.kind == "dict":
            row["keys"] = [encode(k, plain=True) for k in node.steps]
        elif node.kind == "registered":
            row |= {"fields": node.steps} if node.steps and isinstance(node.steps[0], str) else {"count": len(node.steps)}
            row["meta"] = _fixed(node.fixed)
        elif node.kind not in ("none", "key"):
            row["fields"] = node.steps
            if node.kind != "namedtuple":
                row["static"] = {name: _fixed(value) for name, value in node.fixed.items()}
        rows.append(row)
    return {"version": VERSION, "tree": rows}


def _fixed(value: Any) -> Any:
    """A static value; a value that would not be restored equal is marked to come from ``like``."""
    try:
        coded = encode(value)
        if pytree.static_key(decode(coded, "")) == pytree.static_key(value):
            return coded
    except Opaque as what:
        return {"opaque": str(what)}
    except Exception:  # of a class that is not made by its fields
        pass
    return {"opaque": f"a value of type {type(value).__name__}"}


def parse(described: Any) -> list[Node]:
    """The nodes of a description, which may be anything."""
    version = described.get("version") if isinstance(described, dict) else None
    if type(version) is int and version > VERSION:
        raise Refusal(f"expected a description of version {VERSION}, got {version}", "load it with the release of Tessera that wrote it, or a newer one")
    if version != VERSION or not isinstance(described.get("tree"), list):
        raise Refusal("expected the description of a tree, got something else", _DAMAGED)
    rows = described["tree"]
    nodes: list[Node] = []
    todo: list[tuple[str, tuple[str, ...]]] = [("", ())]
    for row in rows:
        if not todo:
            raise Refusal(f"expected {len(nodes)} parts of the tree, got {len(rows)}", _DAMAGED)
        node = _parsed(row, *todo.pop(), most=len(rows))
        nodes.append(node)
        if len(nodes) + len(todo) + len(node.steps) > len(rows) or node.steps and len(node.key) >= DEEPEST:
            raise Refusal(f"expected fewer parts of the tree {node.at}, got {len(node.steps)}", _DAMAGED)
        todo += reversed([(node.path + _text(node, s), (*node.key, _step(s, node))) for s in node.steps])
    if todo:
        raise Refusal(f"expected {len(nodes) + len(todo)} parts of the tree or more, got {len(rows)}", _DAMAGED)
    return nodes


def _parsed(row: Any, path: str, key: tuple[str, ...], most: int) -> Node:
    node = Node("", path, key)
    kind = row.get("kind") if isinstance(row, dict) else None
    if kind not in _KINDS:
        raise Refusal(f"expected a part of a tree {node.at}, got {shown(row)}", _DAMAGED)
    node.kind, node.row = kind, row
    wrong = Refusal(f"expected a part of the kind `{kind}` {node.at}, got {shown(row)}", _DAMAGED)
    fields, count = row.get("fields"), row.get("count")
    if kind == "dict":
        keys = row.get("keys")
        if not isinstance(keys, list):
            raise wrong
        try:
            node.steps = [decode(k, node.at) for k in keys]
            if len(set(node.steps)) != len(keys):
                raise wrong
        except TypeError:  # keys without a hash
            raise wrong from None
    elif kind in ("list", "tuple") or kind == "registered" and fields is None:
        if type(count) is not int or not 0 <= count <= most:
            raise wrong
        node.steps = list(range(count))
    elif kind in ("namedtuple", "dataclass", "module", "registered"):
        if not isinstance(fields, list) or not all(isinstance(f, str) for f in fields) or len(set(fields)) != len(fields):
            raise wrong
        node.steps = fields
    elif kind == "key":
        node.steps = ["words"]
    elif kind == "array":
        form, order = row.get("as", "numpy"), row.get("order", "little")
        if not isinstance(row.get("name"), str) or not isinstance(row.get("dtype"), str) or form not in FORMS or order not in ("little", "big"):
            raise wrong
    return node


_KINDS = ("array", "value", "none", "list", "tuple", "dict", "namedtuple", "dataclass", "module", "registered", "key")


def build(nodes: list[Node], leaf: Callable[[Node], Any]) -> Any:
    """The tree of these nodes; ``leaf`` gives the leaves."""
    waiting: list[tuple[Node, list]] = []
    for node in nodes:
        if node.steps:
            waiting.append((node, []))
            continue
        made = leaf(node) if node.kind in ("leaf", *LEAVES) else _make(node, [])
        while waiting:
            parent, children = waiting[-1]
            children.append(made)
            if len(children) < len(parent.steps):
                break
            waiting.pop()
            made = _make(parent, children)
    return made


def _make(node: Node, children: list) -> Any:
    if node.kind == "none":
        return None
    if node.kind == "list":
        return children
    if node.kind == "tuple":
        return tuple(children)
    if node.kind == "key":
        if node.row is not None and getattr(children[0], "dtype", None) != numpy.int64:
            raise Refusal(f"expected the words of a key {node.at}, got something else", _DAMAGED)
        return Key(*children)
    if node.row is not None:
        node = _resolved(node, node.row)
    if node.kind == "dict":
        items = dict(zip(node.steps, children, strict=True))
        return _same(items if node.cls is None else classes.dict_of(node.cls, items, node.trusted, node.at), node)
    assert node.cls is not None
    if node.kind == "namedtuple":
        return classes.named_tuple(node.cls, node.steps, children, node.at)
    if node.kind == "dataclass":
        values = dict(zip(node.steps, children, strict=True)) | node.fixed
        return _same(classes.data_class(node.cls, values, node.trusted, node.at), node)
    meta = node.fixed
    if node.kind == "module":
        fixed = tuple(node.fixed.values())
        meta = fixed, pytree.static_key(fixed)
    return _same(classes.registered(node.cls, meta, children, node.at), node)


def _same(made: Any, node: Node) -> Any:
    """Whether a class returned the requested value."""
    wanted = node.cls or dict
    if type(made) is not wanted or isinstance(made, dict) and node.kind == "dict" and list(made) != node.steps:
        raise Refusal(f"expected a `{wanted.__qualname__}` {node.at} made of its parts again, got another `{type(made).__qualname__}`",
                      f"let `{wanted.__name__}` be made of the parts it has, or save a dict of its arrays")  # fmt: skip
    return made


def _resolved(node: Node, row: dict[str, Any]) -> Node:
    """A node of a file with the class that it names, and what stands beside its children."""
    if node.kind == "dict":
        if row.get("class") is None:
            return node
        cls, trusted = classes.find(row["class"], node.at, dict)
        return dataclasses.replace(node, cls=cls, trusted=trusted)
    family = {"namedtuple": tuple, "module": Module}.get(node.kind, object)
    cls, trusted = classes.find(row.get("class"), node.at, family)
    fixed: Any = None
    if node.kind in ("dataclass", "module"):
        static = row.get("static", {})
        if not isinstance(static, dict):
            raise Refusal(f"expected static fields {node.at}, got {shown(static)}", _DAMAGED)
        fixed = {name: decode(value, f"at `{shown(node.path + '.' + name, 120)}`") for name, value in static.items()}
    if node.kind == "registered":
        fixed = decode(row.get("meta"), node.at)
    if node.kind in ("registered", "module") and cls not in pytree._REGISTERED:
        raise Refusal(f"expected a class that is a tree {node.at}, got `{shown(row.get('class'))}`",
                      "register it before loading: `ts.tree.register`, or give a tree of this structure: `ts.load(path, like=tree)`")  # fmt: skip
    if node.kind == "module":
        _check_module(node, cls, fixed)
    return dataclasses.replace(node, cls=cls, trusted=trusted, fixed=fixed)


def _check_module(node: Node, cls: Any, fixed: dict[str, Any]) -> None:
    if list(cls._leaves) != node.steps or list(cls._static) != list(fixed):
        have, got = ", ".join((*cls._leaves, *cls._static)), ", ".join((*node.steps, *fixed))
        raise Refusal(f"expected a `{cls.__qualname__}` {node.at} with the fields {shown(have)}, got {shown(got)}",
                      "give a tree of the structure that was saved: `ts.load(path, like=tree)`")  # fmt: skip
    try:
        hash(tuple(fixed.values()))
    except TypeError:
        raise Refusal(f"expected static fields that can be compared {node.at}, got {shown(fixed)}", _DAMAGED) from None

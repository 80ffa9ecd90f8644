"""The parameters of a kernel as a tree: arrays and numbers are leaves, records and lists are inner nodes.

The compiler knows leaves only. A leaf of a record or a list is a parameter with a path as its name (``p.x``, ``xs.0``). How many leaves a
list has is known at the call: a *form* is the tuple of the lengths of all lists, and of which optional records and lists were given.
Every form has its own compiled kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

#: The value of a parameter that a call leaves out.
MISSING = object()

#: What stands in a form for a record or list that is None.
ABSENT = -1


class Misfit(Exception):
    """An argument that is not what a parameter takes: its path, code, message and help."""

    def __init__(self, path: str, code: str, message: str, help: str) -> None:
        super().__init__(message)
        self.path, self.code, self.message, self.help = path, code, message, help


@dataclass(frozen=True)
class Leaf:
    """A parameter of the compiler: see `signature.params_of` for the row."""

    name: str
    kind: str
    info: Any
    optional: bool = False
    default: tuple = ()

    def rows(self, form: Iterator[int], rows: list[tuple], optional: list[str]) -> Any:
        rows.append((self.name, self.kind, self.info, self.default))
        if self.optional:
            optional.append(self.name)
        return len(rows) - 1

    def spread(self, value: Any, out: list, form: list[int]) -> None:
        if value is MISSING:
            if self.default:
                value = self.default[0]
            elif self.kind == "tensor" and self.info[3]:
                value = None  # The runtime makes it.
            else:
                raise Misfit(self.name, "E_ARGUMENT", f"missing the argument `{shown(self.name)}`", f"give it by place or as `{self.name}=…`")
        out.append(value)

    def trial(self, length: int) -> Iterator[int]:
        return iter(())

    @property
    def tree(self) -> Any:
        """The parameter as `_core.Spread` takes it."""
        return None

    @property
    def kinds(self) -> list[tuple]:
        return [(self.name, self.kind, self.info, self.default)]


@dataclass(frozen=True)
class RecordNode:
    """A parameter that is a frozen dataclass."""

    name: str
    cls: type
    fields: tuple[tuple[str, Any], ...]
    optional: bool = False
    default: tuple = ()

    def rows(self, form: Iterator[int], rows: list[tuple], optional: list[str]) -> Any:
        if self.optional and next(form) == ABSENT:
            return None
        return "record", self.cls.__name__, [(name, node.rows(form, rows, optional)) for name, node in self.fields]

    def spread(self, value: Any, out: list, form: list[int]) -> None:
        if type(value) is not self.cls:
            value = self._other(value)
        if self.optional:
            form.append(ABSENT if value is None else 0)
            if value is None:
                return
        for name, node in self.fields:
            try:
                node.spread(getattr(value, name), out, form)
            except AttributeError as e:
                if hasattr(value, name):
                    raise
                path, cls = f"{shown(self.name)}.{name}", self.cls.__name__
                help = f"make the record by its class: `{self._example()}`"
                raise Misfit(self.name, "E_ARGUMENT", f"`{path}`: expected a value, but this `{cls}` has no `{name}`", help) from e

    def _other(self, value: Any) -> Any:
        if value is MISSING and self.default:
            value = self.default[0]
        if isinstance(value, self.cls) or self.optional and value is None:
            return value
        path, cls = shown(self.name), self.cls.__name__
        if value is MISSING:
            raise Misfit(self.name, "E_ARGUMENT", f"missing the argument `{path}`", f"give a record: `{self._example()}`")
        got = f"the class `{value.__name__}`" if isinstance(value, type) else described(value)
        raise Misfit(self.name, "E_ARGUMENT", f"`{path}`: expected a record of `{cls}`, got {got}", f"write `{self._example()}`")

    def _example(self) -> str:
        return f"{self.cls.__name__}({', '.join([f'{name}=…' for name, _ in self.fields])})"

    @property
    def tree(self) -> Any:
        return "record", self.cls, self.optional, [(name, node.tree) for name, node in self.fields]

    def trial(self, length: int) -> Iterator[int]:
        if self.optional:
            yield 0
        for _, node in self.fields:
            yield from node.trial(length)

    @property
    def kinds(self) -> list[tuple]:
        return [row for _, node in self.fields for row in node.kinds]


@dataclass(frozen=True)
class ListNode:
    """A parameter that is a list or a tuple of arrays. ``items`` are the parts of one of fixed length; else every part is as ``item``."""

    name: str
    item: Any
    items: tuple | None = None
    optional: bool = False
    default: tuple = ()

    def rows(self, form: Iterator[int], rows: list[tuple], optional: list[str]) -> Any:
        length = next(form)
        if length == ABSENT:
            return None
        return "list", [part.rows(form, rows, optional) for part in self._parts(length)]

    def _parts(self, length: int) -> list[Any]:
        kinds = [self.item] * length if self.items is None else self.items
        return [renamed(part, f"{self.name}.{i}") for i, part in enumerate(kinds)]

    def spread(self, value: Any, out: list, form: list[int]) -> None:
        if value is MISSING and self.default:
            value = self.default[0]
        if value is None and self.optional:
            form.append(ABSENT)
            return
        path = shown(self.name)
        if not isinstance(value, (list, tuple)):
            help = f"give its values: `list({path}.values())`" if isinstance(value, dict) else f"write `[{path}]` for a list of one"
            got = described(value)
            if value is MISSING:
                raise Misfit(self.name, "E_ARGUMENT", f"missing the argument `{path}`", f"give a list or tuple: `{path}=[…]`")
            raise Misfit(self.name, "E_ARGUMENT", f"`{path}`: expected a list or tuple of arrays, got {got}", help)
        if self.items is not None and len(value) != len(self.items):
            help = f"give one value for each; `tuple[{_first(self.items)}, ...]` takes any number of them"
            raise Misfit(self.name, "E_ARGUMENT", f"`{path}`: expected {len(self.items)} values, got {len(value)}", help)
        form.append(len(value))
        if self.items is None and type(self.item) is Leaf:
            out.extend(value)
            return
        for part, inner in zip(self._parts(len(value)), value):
            part.spread(inner, out, form)

    @property
    def tree(self) -> Any:
        if self.items is None:
            return "list", self.optional, None, [self.item.tree]
        return "list", self.optional, len(self.items), [item.tree for item in self.items]

    def trial(self, length: int) -> Iterator[int]:
        yield length if self.items is None else len(self.items)
        for part in self._parts(length):
            yield from part.trial(length)

    @property
    def kinds(self) -> list[tuple]:
        return [row for part in (self.items or (self.item,)) for row in part.kinds]


def _first(items: tuple) -> str:
    return "…" if not items else "ts.Tensor[…]"


def renamed(node: Any, name: str) -> Any:
    """The node with another path."""
    if isinstance(node, RecordNode):
        return replace(node, name=name, fields=tuple((field, renamed(inner, f"{name}.{field}")) for field, inner in node.fields))
    if isinstance(node, ListNode):
        items = None if node.items is None else tuple(renamed(part, f"{name}.{i}") for i, part in enumerate(node.items))
        return replace(node, name=name, items=items)
    return replace(node, name=name)


def shown(path: str) -> str:
    """A path as Python writes it: ``xs.0`` is ``xs[0]``."""
    first, *rest = path.split(".")
    return first + "".join([f"[{part}]" if part.isdigit() else f".{part}" for part in rest])


def described(value: Any) -> str:
    """A value of the wrong type, for messages."""
    if value is None:
        return "None"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"an array of shape {shape}"
    kind = type(value).__name__
    return f"a record of `{kind}`" if is_dataclass(value) else f"a value of type {kind}"


class Flat:
    """The parameters of one form: rows for the compiler, the names of the optional ones, and how records and lists are made of them."""

    __slots__ = ("rows", "optional", "bundles")

    def __init__(self, nodes: list[Any], form: tuple[int, ...]) -> None:
        rest = iter(form)
        self.rows: list[tuple] = []
        bundles: dict[str, Any] = {}
        optional: list[str] = []
        for node in nodes:
            made = node.rows(rest, self.rows, optional)
            if not isinstance(node, Leaf):
                bundles[node.name] = made
        self.optional = tuple(optional)
        self.bundles = tuple(bundles.items())


def is_flat(nodes: list[Any]) -> bool:
    return all(isinstance(node, Leaf) for node in nodes)


def trial_forms(nodes: list[Any]) -> Iterator[tuple[int, ...]]:
    """Forms to check a kernel with at its decoration, when no call has said how long its lists are."""
    seen = []
    for length in (2, 1, 3, 4, 5, 6, 8, 0):
        form = tuple(part for node in nodes for part in node.trial(length))
        if form not in seen:
            seen.append(form)
            yield form

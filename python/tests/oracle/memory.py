"""Arrays and shared buffers. A subscript in an expression gives a copy; a place is a subscript that nothing reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from .values import FUNCTIONS, Lacks, NUMPY, OracleError, Val, binary, carrier, cast_array, const, convert, from_storage, to_storage


class Index:
    """An index that `rewrite` marked: that of the target of an augmented assignment."""

    __slots__ = ("at",)

    def __init__(self, at: Any) -> None:
        self.at = at


class Place:
    """A subscript as the first argument of `store`, `atomic_*` and their kin: named, not read."""

    __slots__ = ("array", "at")

    def __init__(self, array: Any, at: Any) -> None:
        if not isinstance(array, Array):
            raise OracleError("E_TYPE", f"a place in {type(array).__name__}")
        self.array = array
        self.at = at


def _whole(value: Any) -> int:
    return int(value.a) if isinstance(value, Val) else int(value)


class Array:
    """A parameter, or a buffer of the group."""

    def __init__(self, host: np.ndarray, dt: str, saturate: bool | None = None, op: str | None = None) -> None:
        self.host = host
        self.dt = dt
        self.kind = carrier(dt)
        self.saturate = saturate
        self.op = op  # of a `reduce_*` parameter
        self.group_view: Any = None

    @property
    def shape(self) -> tuple:
        return tuple(Val("i64", np.int64(n)) for n in self.host.shape)

    @property
    def T(self) -> Array:
        return Array(self.host.T, self.dt, self.saturate, self.op)

    @property
    def dtype(self) -> Any:
        import tessera as ts

        return ts.dtype(self.dt)

    def __bool__(self) -> bool:
        raise OracleError("E_TYPE", "an array as a condition")

    def __iter__(self) -> Any:
        raise OracleError("E_TYPE", "an array is not unpacked")

    def __len__(self) -> int:
        return self.host.shape[0]

    # Reading and writing.
    def positions(self, at: Any) -> tuple[list[Any], tuple[int, ...]]:
        """For each axis of the memory its positions, shaped so that they broadcast to the result, and that shape."""
        items = list(at) if isinstance(at, tuple) else [at]
        rank = self.host.ndim
        if any(item is Ellipsis for item in items):
            where = next(k for k, item in enumerate(items) if item is Ellipsis)
            items[where : where + 1] = [slice(None)] * (rank - (len(items) - 1))
        items += [slice(None)] * (rank - len(items))
        if len(items) > rank:
            raise OracleError("E_SHAPE_MISMATCH", f"{len(items)} indices for rank {rank}")
        axes: list[tuple] = []  # of each item: ("point", position), ("span", positions), ("tile", positions)
        for axis, item in enumerate(items):
            extent = self.host.shape[axis]
            if isinstance(item, slice):
                axes.append(("span", self._span(item, extent)))
            elif isinstance(item, Val) and item.a.ndim:
                if carrier(item.dt) not in ("i32", "i64", "u32", "u64"):
                    raise OracleError("E_TYPE", f"an index tile of {item.dt}")
                axes.append(("tile", _wide(item.a)))
            else:
                if isinstance(item, Val) and carrier(item.dt) not in ("i32", "i64", "u32", "u64"):
                    raise OracleError("E_TYPE", f"an index of {item.dt}")
                if not isinstance(item, (Val, int, np.integer)):
                    raise OracleError("E_TYPE", f"an index {item!r}")
                position = _whole(item)
                if not isinstance(item, Val) and position < 0:
                    position += extent  # a constant counts from the end
                axes.append(("point", position))
        tiles = [p for what, p in axes if what == "tile"]
        joined = np.broadcast_shapes(*[p.shape for p in tiles]) if tiles else ()
        if tiles and any(p.ndim != len(joined) for p in tiles):
            raise OracleError("E_SHAPE_MISMATCH", "index tiles of several ranks")
        shape: list[int] = []
        begin_of_tiles = None
        own: list[int | None] = []
        for what, p in axes:
            if what == "tile" and begin_of_tiles is None:
                begin_of_tiles = len(shape)
                shape += joined
            if what == "span":
                own.append(len(shape))
                shape.append(len(p))
            else:
                own.append(None)
        out = []
        for (what, p), place in zip(axes, own):
            if what == "point":
                out.append(np.int64(p) if -(2**63) <= p < 2**63 else np.int64(-1))
            elif what == "span":
                out.append(p.reshape([-1 if k == place else 1 for k in range(len(shape))]))
            else:
                grown = np.broadcast_to(p, joined)
                out.append(grown.reshape([shape[k] if begin_of_tiles <= k < begin_of_tiles + len(joined) else 1 for k in range(len(shape))]))
        return out, tuple(shape)

    @staticmethod
    def _span(item: slice, extent: int) -> np.ndarray:
        step = 1 if item.step is None else _whole(item.step)
        if step <= 0:
            raise OracleError("E_ARGUMENT", "a step that is not positive")
        start = 0 if item.start is None else _whole(item.start)
        if item.start is not None and not isinstance(item.start, Val) and start < 0:
            start += extent
        stop = extent if item.stop is None else _whole(item.stop)
        if item.stop is not None and not isinstance(item.stop, Val) and stop < 0:
            stop += extent
        count = max(-(-(stop - start) // step), 0)
        return start + step * np.arange(count, dtype=np.int64)

    def point(self, at: Any) -> tuple[int, ...] | None:
        """The position that an index of scalars names; ``None`` for any other."""
        items = at if type(at) is tuple else (at,)
        extents = self.host.shape
        if len(items) != len(extents):
            return None
        out = []
        for item, extent in zip(items, extents):
            if type(item) is Val:
                if item.a.ndim or carrier(item.dt) not in ("i32", "i64", "u32", "u64"):
                    return None
                out.append(int(item.a))
            elif type(item) is int:
                out.append(item if item >= 0 else item + extent)
            else:
                return None
        return tuple(out)

    def holds(self, k: tuple[int, ...]) -> bool:
        return all(0 <= x < n for x, n in zip(k, self.host.shape))

    def read(self, at: Any, mask: Any = None, other: Any = None) -> Val:
        if mask is None and other is None:
            k = self.point(at)
            if k is not None:
                return Val(self.dt, from_storage(self.host[k], self.dt) if self.holds(k) else NUMPY[self.kind].type(0))
        positions, shape = self.positions(at)
        inside = np.broadcast_to(np.bool_(True), shape)
        for p, extent in zip(positions, self.host.shape):
            inside = inside & (p >= 0) & (p < extent)
        if self.host.size:
            safe = tuple(np.broadcast_to(np.where(inside, p, 0), shape) for p in positions)
            found = from_storage(np.asarray(self.host[safe]), self.dt)
        else:
            found = np.zeros(shape, NUMPY[self.kind])
        kind = self.kind
        if mask is not None:
            held = convert(mask, "bool")
            full = np.broadcast_shapes(held.shape, shape)
            inside = np.broadcast_to(inside, full) & held
            found = np.broadcast_to(found, full)
        fill = NUMPY[kind].type(0) if other is None else convert(other, kind) if isinstance(other, Val) else const(kind, other)
        out = np.where(inside, found, fill).astype(NUMPY[kind])
        return Val(self.dt, out if out.ndim else out[()])

    def stored(self, value: Any) -> Any:
        """A value as the host array holds it."""
        if not isinstance(value, Val):
            if not isinstance(value, (bool, int, float)):
                raise OracleError("E_TYPE", f"{value!r} is stored")
            if isinstance(value, float) and self.kind not in ("f32", "f64"):
                raise OracleError("E_TYPE", "a float literal stored into integers")
            if not isinstance(value, float) or self.kind in ("f32", "f64"):
                value = Val(self.kind, const(self.dt if self.kind not in ("f32", "f64", "bool") else self.kind, value))
        return to_storage(value.a, carrier(value.dt), self.dt, self.saturate)

    def write(self, at: Any, value: Any, mask: Any = None) -> None:
        new = self.stored(value)
        host = self.host
        k = self.point(at) if mask is None else None
        if k is not None and not new.ndim:
            if self.holds(k):
                host[k] = new
            return
        positions, shape = self.positions(at)
        if new.ndim and new.ndim != len(shape):
            raise OracleError("E_SHAPE_MISMATCH", f"{new.shape} stored into {shape}")
        inside = np.broadcast_to(np.bool_(True), shape)
        for p, extent in zip(positions, host.shape):
            inside = inside & (p >= 0) & (p < extent)
        if mask is not None:
            inside = inside & convert(mask, "bool")
        if not inside.ndim:
            if inside:
                host[tuple(int(p) for p in positions)] = new
            return
        where = tuple(np.broadcast_to(p, shape)[inside] for p in positions)
        host[where] = np.broadcast_to(new, shape)[inside]  # of repeats the last in row-major order

    def fold(self, at: Any, name: str, value: Any) -> None:
        """Folds every contribution, in row-major order, also where positions repeat."""
        positions, shape = self.positions(at)
        inside = np.broadcast_to(np.bool_(True), shape)
        for p, extent in zip(positions, self.host.shape):
            inside = inside & (p >= 0) & (p < extent)
        value = value if isinstance(value, Val) else Val(self.kind, const(self.kind, value))
        new = np.broadcast_to(value.a, shape)
        for where in np.ndindex(*shape):
            if not inside[where]:
                continue
            k = tuple(int(np.broadcast_to(p, shape)[where]) for p in positions)
            old = Val(self.dt, from_storage(self.host[k], self.dt))
            self.host[k] = to_storage(*_held(binary(name, old, Val(value.dt, new[where]))), self.dt, self.saturate)

    def __getitem__(self, at: Any) -> Val:
        return self.read(at.at if isinstance(at, Index) else at)

    def __setitem__(self, at: Any, value: Any) -> None:
        if isinstance(at, Index):
            items = at.at if isinstance(at.at, tuple) else (at.at,)
            name, contribution = getattr(value, "aug", (None, None))
            if name and any(isinstance(i, Val) and i.a.ndim for i in items):
                return self.fold(at.at, name, contribution)
            at = at.at
        if isinstance(value, Array):
            value = value[...]
        self.write(at, value)
        return None

    def atomic(self, at: Any, step: Any) -> Val:
        """Changes each element that is named, in row-major order; gives what stood there."""
        k = self.point(at)
        if k is not None:
            if not self.holds(k):
                return Val(self.dt, NUMPY[self.kind].type(0))
            found = Val(self.dt, from_storage(self.host[k], self.dt))
            new = step(found, ())
            if new is not None:
                self.host[k] = to_storage(*_held(new), self.dt, self.saturate)
            return found
        positions, shape = self.positions(at)
        old = np.zeros(shape, NUMPY[self.kind])
        for where in np.ndindex(*shape):
            k = tuple(int(np.broadcast_to(p, shape)[where]) for p in positions)
            if all(0 <= x < n for x, n in zip(k, self.host.shape)):
                found = Val(self.dt, from_storage(self.host[k], self.dt))
                old[where] = found.a
                new = step(found, where)
                if new is not None:
                    self.host[k] = to_storage(*_held(new), self.dt, self.saturate)
        return Val(self.dt, old if shape else old[()])


def _held(v: Val) -> tuple[Any, str]:
    return v.a, carrier(v.dt)


def _wide(a: Any) -> np.ndarray:
    """Positions in 64 bits."""
    if a.dtype == np.uint64:
        return np.where(a >= 2**63, np.int64(-1), a.astype(np.int64))
    return a.astype(np.int64)


def value_of(x: Any) -> Any:
    """What an operand stands for: a bare buffer is its contents."""
    return x[...] if isinstance(x, Array) else x


def _lift() -> None:
    """A shared buffer by itself in an expression is its contents (LANGUAGE 8)."""
    import operator

    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and_", "or_", "xor", "lshift", "rshift", "pow"):
        plain = name.rstrip("_")
        f = getattr(operator, name)
        setattr(Array, f"__{plain}__", lambda a, b, f=f: f(a[...], value_of(b)))
        setattr(Array, f"__r{plain}__", lambda a, b, f=f: f(value_of(b), a[...]))
    for name in ("lt", "le", "gt", "ge"):
        f = getattr(operator, name)
        setattr(Array, f"__{name}__", lambda a, b, f=f: f(a[...], value_of(b)))
    Array.__neg__ = lambda a: -a[...]


_lift()
__all__ = ["Array", "Index", "Place", "value_of", "FUNCTIONS", "Lacks", "cast_array"]


class Constants(Array):
    """A captured array: a number at a known position, an array elsewhere."""

    def __getitem__(self, at: Any) -> Any:
        items = at if isinstance(at, tuple) else (at,)
        if len(items) == self.host.ndim and all(type(item) is int for item in items):
            return self.host[items].item()
        return super().__getitem__(at)

    def __iter__(self) -> Any:
        """At the head of a loop, which is unrolled."""
        if self.host.ndim != 1:
            raise OracleError("E_UNSUPPORTED", "a table of more than one axis at the head of a loop")
        return iter(self.host.tolist())

    def __setitem__(self, at: Any, value: Any) -> None:
        raise OracleError("E_TYPE", "a constant is not written")


class Numbers(tuple):
    """A captured tuple, which takes positions that are known at run time only, if it holds numbers alone."""

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return Numbers(super().__getitem__(at))
        if not isinstance(at, Val):
            return super().__getitem__(at)
        if not all(isinstance(item, (bool, int, float)) for item in self):
            raise OracleError("E_TYPE", "a position in a tuple of other things than numbers")
        if all(isinstance(item, bool) for item in self):
            dt = "bool"
        elif all(isinstance(item, int) for item in self):
            dt = "i64" if max(self) < 2**63 else "u64"
        else:
            dt = "f32"
        return Array(np.array(self, NUMPY[dt]), dt)[at]

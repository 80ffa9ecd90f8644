"""Trees for the tests of checkpoints, classes that they are made of, and whether two trees are the same to the bit."""

from __future__ import annotations

import collections
import dataclasses
import enum
import random
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import tessera as ts
from tessera import nn, optim


class Point(NamedTuple):
    x: Any
    y: Any = None


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


@dataclasses.dataclass(frozen=True)
class Config:
    width: int
    colour: Colour = Colour.RED


@dataclasses.dataclass
class State:
    step: Any
    mu: Any
    name: str = dataclasses.field(default="adam", metadata={"static": True})
    config: Config | None = dataclasses.field(default=None, metadata={"static": True})


@dataclasses.dataclass
class Checked:
    """Has its own code in place of its fields."""

    w: Any

    def __post_init__(self):
        calls.append("Checked")


@dataclasses.dataclass
class Hostile:
    """Would do harm if a file could make one."""

    w: Any

    def __post_init__(self):
        calls.append("Hostile")


@dataclasses.dataclass
class Setter:
    w: Any


Setter.w = property(lambda self: None, lambda self, value: calls.append("Setter"))


class Last(NamedTuple):
    w: Any


class _Last(Last):
    def __del__(self):
        calls.append("Last")


_Last.__qualname__ = "Last"
Last = _Last


class Loud(dict):
    def __init__(self, items):
        calls.append("Loud")
        super().__init__(items)


class Net(nn.Module):
    w: ts.Array
    layers: list[ts.Array]
    heads: int = 4
    dtype: Any = nn.static(ts.bf16)
    act: Any = nn.static(nn.gelu)
    config: Config = nn.static(Config(1, Colour.BLUE))


class Acted(nn.Module):
    w: ts.Array
    act: Any = nn.static(lambda x: x)


class Bag(dict):
    pass


class Scaled:
    def __init__(self, w, power):
        self.w, self.power = w, power


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


#: What code of the classes here was called.
calls: list[str] = []
ts.tree.register(Scaled, lambda s: ((s.w,), s.power), lambda power, children: Scaled(children[0], power), lambda s: ("w",))
ts.tree.register(Pair, lambda p: ((p.a, p.b), None), lambda _, children: Pair(*children))

DTYPES = ["bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64",
          "fp8_e4m3", "fp8_e5m2", "e8m0", "i4", "fp4_e2m1", "fp6_e2m3", "fp6_e3m2"]  # fmt: skip
BITS = {"i4": 4, "fp4_e2m1": 4, "fp6_e2m3": 6, "fp6_e3m2": 6, "bool": 1}


def numpy_dtype(name: str) -> np.dtype:
    spelled = ts.dtype(name).numpy_name
    return np.dtype(getattr(ml_dtypes, spelled, None) or spelled)


def some_array(r: random.Random, dtype: str | None = None) -> np.ndarray:
    """Any bits, any shape up to three axes, also without elements, and any layout."""
    name = dtype or r.choice(DTYPES)
    shape = tuple(r.choice([0, 1, 2, 3, 5]) for _ in range(r.randrange(4)))
    kind = numpy_dtype(name)
    count = int(np.prod(shape, dtype=int))
    data = np.frombuffer(r.randbytes(count * kind.itemsize), np.uint8)
    if name in BITS:
        data = data & ((1 << BITS[name]) - 1)
    made = data.view(kind).reshape(shape)
    if name == "i4":
        made = (data.astype(np.int8) - 8).astype(kind).reshape(shape)
    made = made.copy()
    layout = r.randrange(5)
    if layout == 1:
        made = np.asfortranarray(made)
    elif layout == 2 and made.ndim:
        made = np.repeat(made, 2, axis=-1)[..., ::2]
    elif layout == 3 and made.ndim:
        made = made[::-1]
    elif layout == 4 and kind.kind in "iuf" and kind.isbuiltin == 1:
        made = made.astype(kind.newbyteorder(">"))
    return made


def some_leaf(r: random.Random) -> Any:
    choice = r.randrange(12)
    if choice < 6:
        return some_array(r)
    if choice == 6:
        return ts.xp.asarray(some_array(r, r.choice(["u16", "i64", "bf16"])).astype(np.float32))
    if choice == 7:
        return np.append(some_array(r, "u16"), 1).astype(r.choice(["u1", "f2", "i8", "f4", "?"]))[-1]
    if choice == 8:
        return ts.random.key(r.randrange(1 << 64))
    return r.choice([True, 0, -1, 1 << 63, -(1 << 70), 10**40, 0.1, -0.0, float("inf"), float("nan"), 2 - 3j, "", "naïve\n\x00", "\ud800", b"\xff\x00", None])


KEYS = ["a", "b", "a.b", "w", "", "[0]", "0", "['x']", "__metadata__", "tessera", "é", "\ud83d", "#2", 0, 1, -5, 1 << 80, True, 2.5, None, (1, "x"), b"k", "a" * 300]


def some_tree(r: random.Random, depth: int = 0) -> Any:
    choice = r.randrange(14) if depth < 4 else 99
    inner = lambda: some_tree(r, depth + 1)  # noqa: E731
    some = lambda most: [inner() for _ in range(r.randrange(most))]  # noqa: E731
    if choice < 4:
        kind = r.choice([dict, dict, collections.OrderedDict, Bag, collections.Counter])
        return kind({k: inner() for k in r.sample(KEYS, r.randrange(5))})
    if choice == 4:
        return some(4)
    if choice == 5:
        return tuple(some(4))
    if choice == 6:
        return Point(inner(), inner())
    if choice == 7:
        return State(inner(), inner(), r.choice(["", "a b", "\ud800"]), r.choice([None, Config(3), Config(-1, Colour.BLUE)]))
    if choice == 8:
        return Net(some_array(r, "f32"), [some_array(r)], r.randrange(9), r.choice([ts.f32, ts.fp8_e4m3, "f16", np.float32, np.dtype("i4")]))
    if choice == 9:
        return Scaled(inner(), r.choice([2, 0.5, float("nan"), ("x", (1, b"")), frozenset([1, "a"]), None, np.float32(1.5)]))
    if choice == 10:
        return Pair(inner(), inner())
    return some_leaf(r)


def optimiser_states() -> Any:
    """What optimisers keep."""
    params = {"w": np.ones((4, 4), np.float32), "b": np.zeros(4, np.float32)}
    several = [optim.SGD(0.1, momentum=0.9), optim.Adam(1e-3), optim.AdamW(1e-3), optim.Adafactor(), optim.Muon()]
    return {"params": params, "states": [o.init(params) for o in several]}


def same(a: Any, b: Any, at: str = "") -> str | None:
    """Where two trees differ, in classes, order, dtypes or bits; `None` where they do not."""
    if type(a) is not type(b):
        return f"{at}: {type(a).__name__} and {type(b).__name__}"
    if isinstance(a, (np.ndarray, np.generic)):
        equal = a.dtype == b.dtype and a.shape == b.shape and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
        return None if equal else f"{at}: {a!r} and {b!r}"
    if isinstance(a, ts.random.Key):
        return same(np.asarray(a), np.asarray(b), at)
    if isinstance(a, dict):
        if [(type(k), k) for k in a] != [(type(k), k) for k in b]:
            return f"{at}: keys {list(a)} and {list(b)}"
        return next(filter(None, (same(a[k], b[k], f"{at}[{k!r}]") for k in a)), None)
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return f"{at}: {len(a)} and {len(b)}"
        return next(filter(None, (same(x, y, f"{at}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True)))), None)
    if isinstance(a, (State, Net, Acted, Scaled, Pair, Checked)):
        return same(vars(a), vars(b), at)
    if isinstance(a, float):
        return None if a.hex() == b.hex() else f"{at}: {a} and {b}"
    return None if a == b else f"{at}: {a!r} and {b!r}"

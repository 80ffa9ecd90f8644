"""Keys: one 64-bit word each, as a type of their own that is a tree, so that jit, vmap, scan and checkpoints take them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy

from .. import xp
from ..arrays.host import host
from ..base.promotion import kind
from ..trace import prim as p
from ..trace.dims import Dim
from ..trace.jit import eager
from ..trace.tracer import Tracer, aval, current, fail, is_array, one, to_numpy
from ..tree import pytree

#: Keys are made from other counters than values are.
_KEYS = 1 << 62
_WORD = (1 << 64) - 1


class Key:
    """A key, or an array of keys: ``keys[i]`` is one of them. ``np.asarray(key)`` gives the 64-bit words. Use a key once, and
    make new ones with `split` and `fold_in`."""

    __slots__ = ("_words",)
    __array_priority__ = 1000

    def __init__(self, words: Any) -> None:
        self._words = words

    @property
    def shape(self) -> tuple:
        return tuple(aval(self._words)[0])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(numpy.prod(self.shape, dtype=numpy.int64))

    @property
    def dtype(self) -> str:
        return "key<philox4x32>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("one key has no length: make several with `ts.random.split(key)`")
        return self.shape[0]

    def __iter__(self) -> Iterator[Key]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Key:
        if not self.shape:
            raise fail("E_SHAPE_MISMATCH", "expected an array of keys to take one of, got one key",
                       "make several with `ts.random.split(key, n)`")  # fmt: skip
        if isinstance(self._words, (Tracer, numpy.ndarray)):
            return Key(self._words[index])
        return Key(xp.getitem(self._words, index))

    def reshape(self, *shape: Any) -> Key:
        """The same keys in another shape."""
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, Dim)) else shape
        return Key(xp.reshape(self._words, tuple(wanted)))

    def __array__(self, dtype: Any = None, copy: Any = None) -> numpy.ndarray:
        words = to_numpy(self._words) if not isinstance(self._words, Tracer) else self._words.__array__()
        made = numpy.array(words, numpy.int64).view(numpy.uint64)
        return made if dtype is None else made.astype(dtype)

    def tolist(self) -> Any:
        """The words as Python's integers."""
        return numpy.asarray(self).tolist()

    def __int__(self) -> int:
        return int(numpy.asarray(self))

    def __eq__(self, other: Any) -> Any:
        if not isinstance(other, Key):
            return NotImplemented
        return xp.equal(self._words, other._words)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if isinstance(self._words, Tracer):
            return f"Key<[{', '.join(map(str, self.shape))}], traced>"
        return f"Key({numpy.asarray(self).tolist()})"


pytree.register(Key, lambda k: ((k._words,), None), lambda _, words: Key(words[0]), lambda _: ("words",))


def key(seed: Any) -> Key:
    """A key from a seed, which may be traced."""
    return Key(_seeded(seed))


def PRNGKey(seed: Any) -> Any:
    """A key as a bare 64-bit integer, which everything here takes too; `key` is the one to use."""
    return _seeded(seed)


def _seeded(seed: Any) -> Any:
    if isinstance(seed, Tracer):
        return p.cast(seed, "i64")
    try:
        number = int(seed)
    except (TypeError, ValueError):
        raise fail("E_TYPE", f"expected a whole number as the seed, got {type(seed).__name__}", "write `ts.random.key(0)`") from None
    if number != seed or not -(1 << 63) <= number <= _WORD:
        raise fail("E_ARGUMENT", f"expected a seed that 64 bits hold, got {seed}", "write `ts.random.key(0)`")
    return numpy.asarray(number & _WORD, numpy.uint64).view(numpy.int64)


def words_of(k: Any) -> Any:
    """The i64 words of a typed key, or of a bare one."""
    if isinstance(k, Key):
        return k._words
    if isinstance(k, numpy.ndarray) and k.dtype == numpy.uint64:
        return k.view(numpy.int64)
    if not is_array(k) or kind(aval(k)[1]) != 1:
        got = aval(k)[1] if is_array(k) else type(k).__name__
        raise fail("E_TYPE", f"expected a key, got {got}", "make one from a seed: `ts.random.key(0)`")
    return k


def drawn(fn: Callable) -> Callable:
    """A function whose first argument is a key, typed or bare."""
    run = eager(fn)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if args:
            return run(words_of(args[0]), *args[1:], **kwargs)
        if "key" in kwargs:
            return run(**dict(kwargs, key=words_of(kwargs["key"])))
        return run(**kwargs)

    return call


def keyed(fn: Callable) -> Callable:
    """A function from a key to keys: typed ones from typed, bare ones from bare."""
    run = drawn(fn)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else kwargs.get("key")
        made = run(*args, **kwargs)
        return Key(made) if isinstance(given, Key) else made

    return call


def shape_of(shape: Any) -> tuple:
    return tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)


def word(k: Any, counter: Tracer, at: int) -> Tracer:
    """One of the four u32 that Philox makes of a key and each counter."""
    k = p.cast(k, "i64")
    if k.shape != ():
        raise fail("E_SHAPE_MISMATCH", f"expected one key, got keys of shape {p.show(k.shape)}",
                   "take one of them: `keys[0]`, or map over them: `ts.vmap`")  # fmt: skip
    return one("philox", [k, counter], {"word": at})


def _join(low: Tracer, high: Tracer) -> Tracer:
    return p.ew("or", p.cast(low, "i64"), p.ew("shl", p.cast(high, "i64"), 32))


@keyed
def split(key: Any, num: Any = 2) -> Any:
    """Keys that are independent of each other and of ``key``: ``num`` of them, or an array of keys of a shape."""
    shape = shape_of(num)
    size = 1
    for extent in shape:
        size = size * extent
    at = p.ew("add", p.iota((size,), 0), _KEYS)
    return p.reshape(_join(word(key, at, 0), word(key, at, 1)), shape)


@keyed
def fold_in(key: Any, data: Any) -> Any:
    """A key from a key and a whole number, such as a step or a layer."""
    at = p.ew("add", p.cast(data, "i64"), _KEYS + (1 << 61))
    if at.shape != ():
        raise fail("E_SHAPE_MISMATCH", f"expected one number to fold in, got shape {p.show(at.shape)}",
                   "map over them: `ts.vmap(ts.random.fold_in, (None, 0))(key, numbers)`")  # fmt: skip
    return _join(word(key, at, 2), word(key, at, 3))


def key_data(keys: Any) -> Any:
    """The words of keys, as u64."""
    if not isinstance(keys, Key):
        return words_of(keys)
    return _unsigned(keys._words) if current() is not None or isinstance(keys._words, Tracer) else host(numpy.asarray(keys))


@eager
def _unsigned(words: Any) -> Any:
    return p.cast(words, "u64")


@eager
def _signed(words: Any) -> Any:
    return p.cast(words, "i64")


def wrap_key_data(words: Any) -> Key:
    """Keys from words that `key_data` gave."""
    if isinstance(words, Key):
        return words
    if not is_array(words) or aval(words)[1] not in ("i64", "u64"):
        got = aval(words)[1] if is_array(words) else type(words).__name__
        raise fail("E_TYPE", f"expected words of 64 bits, got {got}", "give what `ts.random.key_data` gave, or a seed to `ts.random.key`")
    return Key(words_of(words) if aval(words)[1] == "i64" or isinstance(words, numpy.ndarray) else _signed(words))


def clone(key: Any) -> Any:
    """The same key, as a sign that it is used again on purpose."""
    return key

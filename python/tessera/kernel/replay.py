"""Replays a recorded launch sequence when an operation is called again with the same shapes, strides, dtypes and alignment.

What an operation decides (checks, plans, views, which kernels run) depends on the layout of its arrays and on its other arguments, not on
their elements. The first call is recorded: the arrays it allocates, the kernels it launches, and each of their arguments as a view of an
array of the caller or of an allocated one. A later call of the same kind allocates those arrays and launches those kernels, and does
nothing else. Only calls on PyTorch tensors on a GPU are recorded: their launches are short enough for the host time to matter.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import Any, Callable

from .. import _core
from ..base.numeric_profile import current as profile_now
from .builtins import ApiFunction
from .func import Func

#: Recorded calls that are kept for an operation. With more, shapes change all the time, and all are dropped.
KEPT = 1024

_PLAIN = (type(None), bool, int, float, str)


class Tape(threading.local):
    """The recording of this thread."""

    def __init__(self) -> None:
        self.notes: Notes | None = None


class Notes:
    """The recording of one call, while it runs."""

    def __init__(self, given: list) -> None:
        self.given = given
        self.made: list = []
        #: Placeholder arrays that no kernel touches: every call uses the same ones.
        self.stand_ins: list = []
        self.launches: list[tuple[Any, tuple]] = []
        #: Whether the call did something that cannot be replayed.
        self.spoilt = False


tape = Tape()


def made(x: Any) -> Any:
    """Records the allocation of an array."""
    if tape.notes is not None:
        tape.notes.made.append(x)
    return x


def stands_in(x: Any) -> Any:
    """Records a placeholder array that no kernel reads or writes."""
    if tape.notes is not None:
        tape.notes.stand_ins.append(x)
    return x


def spoil() -> None:
    """Marks the call as not replayable: something other than a kernel changed an array."""
    if tape.notes is not None:
        tape.notes.spoilt = True


def launched(kernel: Any, args: tuple, kwargs: dict) -> None:
    """Records a launch, with the values that the kernel had captured."""
    notes = tape.notes
    if notes is not None:
        notes.spoilt |= bool(kwargs)
        notes.launches.append((kernel, args))


def again(operation: Callable) -> Callable:
    """The operation with call replay: its calls are recorded."""
    kept: dict[Any, Callable | None] = {}

    @functools.wraps(operation)
    def call(*args: Any, **kwargs: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or tape.notes is not None:
            return operation(*args, **kwargs)
        arrays: list = []
        key = _key(torch.Tensor, (args, kwargs), arrays, [])
        if key is None or not arrays:
            return operation(*args, **kwargs)
        key = (profile_now(), os.environ.get("TESSERA_CHECK"), key)  # checked mode launches other kernels
        run = kept.get(key)
        if run is not None:
            return run(arrays)
        if key in kept:
            return operation(*args, **kwargs)
        notes = tape.notes = Notes(arrays)
        try:
            result = operation(*args, **kwargs)
        finally:
            tape.notes = None
        if len(kept) >= KEPT:
            kept.clear()
        kept[key] = _prepared(torch.Tensor, notes, result, key[0])
        return result

    return call


def _key(tensor: type, value: Any, arrays: list, places: list) -> Any:
    """The replay key of an argument: what the operation's decisions depend on. None where a value has no key. Tensors are added to
    ``arrays``, their addresses to ``places``."""
    if isinstance(value, tensor):
        if not value.is_cuda or value.layout != _strided():
            return None
        at = value.data_ptr()
        # Views are identified by address: tensors that start at one address must do so in every replay.
        same = places.index(at) if at in places else -1
        arrays.append(value)
        places.append(at)
        return value.shape, value.stride(), value.dtype, at & 15, value.get_device(), same
    kind = type(value)
    if kind in _PLAIN:
        # Zeros have signs, and equal values may differ in type.
        return kind, value.hex() if kind is float else value
    if kind is ApiFunction or kind is _core.DType:
        return value
    if kind is Func:
        return value.handle
    if kind is tuple or kind is list:
        found = [_key(tensor, x, arrays, places) for x in value]
        return None if None in found else (kind, *found)
    if kind is dict:
        found = [_key(tensor, x, arrays, places) for x in value.values()]
        return None if None in found else (tuple(value), *found)
    parts = getattr(value, "rests_on", None)
    if parts is None:
        return None
    known = getattr(value, "replay_key", None)
    if known is None:
        found = _key(tensor, parts(), arrays, places)
        return None if found is None else (kind, found)
    # The key of an immutable value is computed once.
    if not known:
        own: list = []
        at_own: list = []
        known.append((_key(tensor, parts(), own, at_own), own, at_own))
    found, own, at_own = known[0]
    same = [places.index(at) if at in places else -1 for at in at_own]
    arrays.extend(own)
    places.extend(at_own)
    return None if found is None else (kind, found, *same)


def _strided() -> Any:
    return sys.modules["torch"].strided


class View:
    """How to make an argument: a view of an array of the caller, or of an allocated one."""

    def __init__(self, source: int, of: Any, x: Any) -> None:
        self.source = source
        self.dtype = None if x.dtype == of.dtype else x.dtype
        self.offset = (x.data_ptr() - of.data_ptr()) // x.element_size()
        self.shape, self.strides = tuple(x.shape), x.stride()
        self.whole = self.dtype is None and not self.offset and self.shape == tuple(of.shape) and self.strides == of.stride()

    def key(self) -> tuple:
        return self.source, self.dtype, self.offset, self.shape, self.strides

    def take(self, arrays: list) -> Any:
        x = arrays[self.source]
        if self.whole:
            return x
        if self.dtype is not None:
            x = x.view(self.dtype)
        if self.offset:
            return x.as_strided(self.shape, self.strides, x.storage_offset() + self.offset)
        return x.as_strided(self.shape, self.strides)


def _prepared(tensor: type, notes: Notes, result: Any, profile: int) -> Callable | None:
    """A function that replays the call on other arrays; None where the call cannot be replayed."""
    known = [*notes.given, *notes.made]
    device = notes.given[0].device
    if notes.spoilt or any(not isinstance(x, tensor) or x.device != device for x in notes.made):
        return None
    memory = [x.untyped_storage().data_ptr() for x in known]
    views: dict[tuple, int] = {}
    takes: list[View] = []

    def place(x: Any) -> int | None:
        """The number of a view."""
        at, whose = x.data_ptr(), x.untyped_storage().data_ptr()
        beside = [i for i, m in enumerate(memory) if m == whose]
        begins = [i for i in beside if known[i].data_ptr() == at]
        if not begins and len(beside) != 1:
            return None
        source = (begins or beside)[0]
        size = x.element_size()
        if known[source].element_size() != size or (at - known[source].data_ptr()) % size:
            return None
        view = View(source, known[source], x)
        number = views.setdefault(view.key(), len(takes))
        if number == len(takes):
            takes.append(view)
        return number

    stand_ins = {x.untyped_storage().data_ptr() for x in notes.stand_ins}
    launches = []
    for kernel, args in notes.launches:
        fixed, filled = list(args), []
        for i, value in enumerate(args):
            if isinstance(value, tensor):
                if value.untyped_storage().data_ptr() in stand_ins:
                    continue
                number = place(value)
                if number is None:
                    return None
                fixed[i] = None
                filled.append((i, number))
            elif hasattr(value, "__array_interface__") and getattr(value, "ndim", 0):
                return None
        launches.append((kernel.call, fixed, filled))
    several = isinstance(result, tuple)
    results = []
    for x in result if several else (result,):
        number = place(x) if isinstance(x, tensor) else None
        if number is None:
            return None
        results.append(number)
    rows = [(tuple(x.shape), x.stride() if not x.is_contiguous() else None, x.dtype) for x in notes.made]
    return functools.partial(_run, rows, takes, launches, results, several, profile)


def _run(
    rows: list[tuple], takes: list[View], launches: list[tuple], results: list[int], several: bool, profile: int, arrays: list
) -> Any:
    like = arrays[0]
    for shape, strides, dtype in rows:
        if strides is None:
            arrays.append(like.new_empty(shape) if dtype == like.dtype else like.new_empty(shape, dtype=dtype))
        else:
            arrays.append(like.new_empty_strided(shape, strides, dtype=dtype))
    views = [view.take(arrays) for view in takes]
    for call, fixed, filled in launches:
        args = fixed.copy()
        for i, number in filled:
            args[i] = views[number]
        call(tuple(args), _NOTHING, None, profile)
    if several:
        return tuple(views[number] for number in results)
    return views[results[0]]


_NOTHING: dict = {}

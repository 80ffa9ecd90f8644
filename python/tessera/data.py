"""Batches of arrays, and of windows of tokens for language models. Their order is a function of the key and the step alone, so that
training resumes exactly where it stopped.

    loader = ts.data.Loader({"x": images, "y": labels}, 64, key=ts.random.key(0), prefetch=2)
    for epoch in range(10):
        for batch in loader:
            params, state = step(params, state, batch["x"], batch["y"])
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy

from . import random
from .trace.tracer import fail, to_numpy
from .tree import pytree

__all__ = ["CharTokenizer", "Loader", "TokenLoader"]


class Loader:
    """Batches of a tree of arrays along their first axis. Each ``iter()`` is a whole epoch, also after a loop that was left early. With a
    ``key`` the order is drawn anew for each epoch; ``drop_last`` leaves out a last batch that is not full; ``transform`` is applied to each
    batch; a thread prepares ``prefetch`` batches ahead. ``state()`` is a dict for a checkpoint, and the loop after ``restore`` goes on
    from it in the middle of an epoch."""

    def __init__(self, arrays: Any, batch: int, *, key: Any = None, drop_last: bool = True, transform: Callable | None = None,
                 prefetch: int = 0) -> None:  # fmt: skip
        leaves, self._form = pytree.flatten(arrays)
        self._leaves = [v if isinstance(v, numpy.ndarray) else to_numpy(v) for v in leaves]
        sizes = {v.shape[0] if v.ndim else None for v in self._leaves}
        if len(sizes) != 1 or None in sizes:
            raise fail("E_SHAPE_MISMATCH", f"expected arrays with first axes of one extent, got {sorted(map(str, sizes)) or 'none'}",
                       "the first axis of each array counts the examples")  # fmt: skip
        for name, value, least in (("batch", batch, 1), ("prefetch", prefetch, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise fail("E_ARGUMENT", f"expected `{name}` to be a whole number of at least {least}, got {value!r}", f"write `{name}={max(least, 1)}`")
        self.size, self.batch, self.drop_last, self.prefetch = sizes.pop(), batch, drop_last, prefetch
        self._key, self._transform = key, transform
        self.epoch, self.step = 0, 0
        self._restored = False
        self._order: tuple[int, Any] | None = None
        if not len(self):
            raise fail("E_ARGUMENT", f"expected a batch of at most {self.size} examples, got {batch}", "use a smaller batch, or `drop_last=False`")

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self.size // self.batch if self.drop_last else -(-self.size // self.batch)

    def order(self, epoch: int) -> numpy.ndarray | None:
        """The examples of an epoch in their order; None where that is the order of the arrays."""
        if self._key is None:
            return None
        kept = self._order
        if kept is None or kept[0] != epoch:
            kept = self._order = (epoch, to_numpy(random.permutation(random.fold_in(self._key, epoch), self.size)))
        return kept[1]

    def at(self, epoch: int, step: int) -> Any:
        """The batch of a step of an epoch."""
        if not 0 <= step < len(self):
            raise fail("E_ARGUMENT", f"expected a step below {len(self)}, got {step}", "an epoch has `len(loader)` batches")
        order = self.order(epoch)
        place = slice(step * self.batch, (step + 1) * self.batch)
        made = [numpy.array(v[place]) if order is None else v[order[place]] for v in self._leaves]
        batch = pytree.unflatten(self._form, made)
        return batch if self._transform is None else self._transform(batch)

    def __iter__(self) -> Iterator[Any]:
        """A whole epoch; the rest of one after `restore`."""
        if self.step and not self._restored:
            self.epoch, self.step = self.epoch + 1, 0
        self._restored = False
        return self._epoch(self.epoch, self.step)

    def _epoch(self, epoch: int, first: int) -> Iterator[Any]:
        self.order(epoch)
        batches = (self.at(epoch, i) for i in range(first, len(self)))
        for i, batch in zip(range(first, len(self)), _ahead(batches, self.prefetch), strict=True):
            # What was handed out is done: a checkpoint that is written now begins after it.
            self.epoch, self.step = (epoch + 1, 0) if i + 1 == len(self) else (epoch, i + 1)
            yield batch

    def state(self) -> dict:
        """The epoch and the step after the last batch that was handed out."""
        return {"epoch": self.epoch, "step": self.step}

    def restore(self, state: dict) -> None:
        """The next loop goes on from a state."""
        epoch, step = int(state["epoch"]), int(state["step"])
        if epoch < 0 or not 0 <= step < len(self):
            raise fail("E_ARGUMENT", f"expected a step below {len(self)}, got {step}", "restore the state of a loader with the same batch")
        self.epoch, self.step, self._restored = epoch, step, True


_END = object()


def _ahead(items: Iterator[Any], count: int) -> Iterator[Any]:
    """The same items, ``count`` of them made ahead by a thread."""
    if not count:
        yield from items
        return
    made: queue.Queue = queue.Queue(count)
    stop = threading.Event()

    def put(item: Any) -> bool:
        while not stop.is_set():
            try:
                made.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put((item, None)):
                    return
            put((_END, None))
        except BaseException as error:  # raised again where the item would have come
            put((_END, error))

    thread = threading.Thread(target=work, name="tessera-loader", daemon=True)
    thread.start()
    try:
        while True:
            item, error = made.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        stop.set()
        thread.join()


class CharTokenizer:
    """Characters as integers, in the order of their code points."""

    def __init__(self, text: str) -> None:
        self.characters = sorted(set(text))
        self._index = {c: i for i, c in enumerate(self.characters)}

    @property
    def size(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> numpy.ndarray:
        missing = sorted(set(text) - set(self._index))
        if missing:
            raise fail(
                "E_ARGUMENT",
                f"expected characters of the vocabulary, got {missing[0]!r}",
                "make the vocabulary from all of the text",
            )
        return numpy.fromiter((self._index[c] for c in text), numpy.int32, len(text))

    def decode(self, tokens: Any) -> str:
        return "".join(self.characters[int(t)] for t in numpy.asarray(tokens).reshape(-1))


class TokenLoader:
    """Gives ``(inputs, targets)`` of shape [batch, length]: windows at random places, targets one token later. It is an iterator
    without end: a loop goes on where the last one stopped. ``state()`` is a dict for a checkpoint, and ``restore`` goes on from it. A file name is mapped, not read."""

    def __init__(self, tokens: Any, batch: int, length: int, seed: int = 0, dtype: Any = numpy.uint16) -> None:
        if isinstance(tokens, (str, os.PathLike)):
            tokens = numpy.memmap(tokens, dtype=dtype, mode="r")
        self._tokens = tokens
        if len(tokens) < length + 1:
            raise fail("E_ARGUMENT", f"expected more than {length} tokens, got {len(tokens)}", "use a shorter length, or more text")
        self.batch, self.length, self.seed, self.step = batch, length, seed, 0

    def at(self, step: int) -> tuple[numpy.ndarray, numpy.ndarray]:
        """The batch of a step."""
        pick = numpy.random.Generator(numpy.random.Philox(key=[self.seed, step]))
        starts = pick.integers(0, len(self._tokens) - self.length, self.batch)
        windows = numpy.stack([numpy.asarray(self._tokens[s : s + self.length + 1]) for s in starts]).astype(numpy.int32)
        return windows[:, :-1].copy(), windows[:, 1:].copy()

    def __iter__(self) -> TokenLoader:
        return self

    def __next__(self) -> tuple[numpy.ndarray, numpy.ndarray]:
        made = self.at(self.step)
        self.step += 1
        return made

    def state(self) -> dict:
        return {"seed": self.seed, "step": self.step}

    def restore(self, state: dict) -> None:
        self.seed, self.step = int(state["seed"]), int(state["step"])

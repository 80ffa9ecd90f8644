"""``@ts.kernel``, ``@ts.kernel.autotune`` and ``@ts.kernel.schedule``."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import _core
from .autotune import options as tuning_options
from .kernel_fn import KernelFn
from .make import make
from .schedule import caller, given


class KernelDecorator:
    """``@ts.kernel``: declares a tile kernel. The source is checked immediately; calling it launches."""

    def __call__(
        self,
        fn: Callable | None = None,
        *,
        lanes: int | Sequence[int] | None = None,
        tile: int | Sequence[int] | None = None,
        num_warps: int | None = None,
        target: str | None = None,
        source: str | None = None,
        require: Sequence[Any] = (),
        parallel: str | Sequence[str] = (),
        contract: str | Sequence[str] = (),
    ) -> Any:
        """``lanes`` (or ``tile``): lanes in a group of a lane kernel, or their extents along up to
        three axes, the last of which is the fastest. ``num_warps`` is what
        ``context().num_warps`` gives: the warps that compute; those that only copy come on top.
        ``target`` restricts the kernel to one backend. ``source`` is
        the text of the function, where Python keeps none. ``require`` lists constraints on dims.

        In jitted functions on arrays of a mesh a kernel runs on whole arrays, unless it names dims of its annotations that ranks
        may split: ``parallel=("M", "N")`` where blocks of the results need only the same blocks of the arguments,
        ``contract=("K",)`` where the results of blocks are to be added."""
        options = dict(
            candidates=[] if num_warps is None else [{"num_warps": num_warps}],
            lanes=_lanes(tile if lanes is None else lanes),
            target=target,
            source=source,
            require=require,
            parallel=parallel,
            contract=contract,
        )
        if fn is not None:
            return make(fn, sys._getframe(1), **options)
        return lambda fn: make(fn, sys._getframe(1), **options)

    def autotune(
        self,
        space: Mapping[str, Sequence[Any]] | None = None,
        *,
        configs: Sequence[Mapping[str, Any]] | None = None,
        key: Sequence[str] | None = None,
        budget_ms: float | None = None,
        metric: str = "latency_ms",
        cache: Any = None,
        lanes: int | Sequence[int] | None = None,
        target: str | None = None,
        source: str | None = None,
        require: Sequence[Any] = (),
        parallel: str | Sequence[str] = (),
        contract: str | Sequence[str] = (),
    ) -> Callable[[Callable], KernelFn]:
        """Declares a kernel with tunables, each ``ctx.<NAME>`` inside it.

        ``space`` gives the values of each name, ``configs`` whole candidates. Until something was measured, the cost
        model chooses on a GPU, and elsewhere the first candidate that is legal runs. ``k.tune(...)`` measures, and so
        does the first call for each key where ``budget_ms`` is given (about how long it may take) or ``TESSERA_TUNE=1``
        is set. Records are kept for later processes, in the directory ``cache`` where that is given.

        ``key`` names the dims and integers that a choice depends on; all dims where it is left out. Dtypes, constants
        and the device are always part of it. ``metric`` is what is to be small: ``"latency_ms"``, the median, or
        ``"p90_ms"``, what nine launches of ten keep. See ``docs/tuning.md``.
        """
        if (space is None) == (configs is None):
            raise _core.error("E_ARGUMENT", "expected one of `space=` and `configs=`", "write `space=dict(BM=[64, 128])`", *caller())
        if space is not None:
            _check_space(space)
            candidates = [dict(zip(space, values)) for values in itertools.product(*space.values())]
        else:
            candidates = _checked(configs)
        if not candidates:
            raise _core.error("E_TUNE_SPACE_EMPTY", "the autotuning space has no candidate", "give every name a value", *caller())
        how = tuning_options(key, budget_ms, metric, cache)
        options = dict(
            candidates=candidates, lanes=_lanes(lanes), target=target, source=source, require=require, tuning=how, parallel=parallel, contract=contract
        )
        return lambda fn: make(fn, sys._getframe(1), **options)

    def schedule(self, schedule: Any = None, /, **fields: Any) -> Callable[[Any], KernelFn]:
        """Pins how a kernel runs: ``@ts.kernel.schedule(BM=128, warps=8, stages=4)``, or a `Schedule`, or its text.

        It goes above the function itself, or above another decorator of ``ts.kernel``, whose candidates then all have
        what is pinned. See `Schedule` for the fields; any other name is a tunable or a constant of the kernel.
        """
        wanted = given(schedule, fields)

        def decorate(fn: Any) -> KernelFn:
            if isinstance(fn, KernelFn):
                return fn.scheduled(wanted)
            return make(fn, sys._getframe(1), schedule=wanted)

        return decorate


def _check_space(space: object) -> None:
    rows = space.items() if isinstance(space, Mapping) else [(None, None)]
    for name, values in rows:
        if not isinstance(name, str) or isinstance(values, str) or not isinstance(values, Sequence):
            what = space if name is None else f"{name}={values!r}"
            help = "write `space=dict(BM=[64, 128])`"
            raise _core.error("E_ARGUMENT", f"expected a list of values for each name in `space=`, got {what}", help, *caller())


def _checked(configs: Any) -> list[dict[str, Any]]:
    """Whole candidates, as they are given."""
    listed = isinstance(configs, Sequence) and not isinstance(configs, str)
    for one in configs if listed else [configs]:
        if not listed or not isinstance(one, Mapping) or not all(isinstance(name, str) for name in one):
            help = "write `configs=[dict(BM=64), dict(BM=128)]`"
            raise _core.error("E_ARGUMENT", f"expected a list of dicts in `configs=`, got {one!r}", help, *caller())
    return [dict(c) for c in configs]


def _lanes(lanes: int | Sequence[int] | None) -> tuple[int, ...]:
    """The extents of a group along the axes of its lanes; empty where the kernel does not say."""
    if lanes is None:
        return ()
    extents = tuple(lanes) if isinstance(lanes, (tuple, list)) else (lanes,)
    help = "write `lanes=256`, or `lanes=(16, 16)` for lanes of two axes"
    if not 1 <= len(extents) <= 3:
        raise _core.error("E_ARGUMENT", f"expected lanes along 1 to 3 axes, got {len(extents)}: {lanes!r}", help, *caller())
    whole = all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in extents)
    if not whole or math.prod(extents) > 1024:
        raise _core.error("E_ARGUMENT", f"expected lanes in a group from 1 to 1024, got {lanes!r}", help, *caller())
    return extents


kernel = KernelDecorator()

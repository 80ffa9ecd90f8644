"""Where programs run and are judged: what the GPU and the CPU have in common."""

import contextlib
import math

from tessera.kernel.kernel_fn import KernelFn

import tessera as ts

from . import meanings

#: One rounding of a result, relative.
ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-23}
#: Elements that are judged together.
CHUNK = 2**26
#: Rows of a matmul that are judged, at most.
ROWS = 1024


class Wrong(Exception):
    """A result that is not what the program means."""


@contextlib.contextmanager
def watched():
    """A list that gets what each launch inside says of itself."""
    found, call = [], KernelFn.__call__

    def noted(self, *args, **kwargs):
        result = call(self, *args, **kwargs)
        explained = self.explain().fields
        row = {"kernel": self.__name__, "config": str(explained.get("config") or ""), "grid": _numbers(explained.get("grid"))}
        row["resources"] = {name: str(value) for name, value in dict(explained.get("resources") or {}).items()}
        row["tuned"] = str(explained.get("tuned") or "")
        found.append(row)
        return result

    KernelFn.__call__ = noted
    # Recordings of operations from before would launch their kernels without such calls.
    ts.runtime.select_backend(None)
    try:
        yield found
    finally:
        KernelFn.__call__ = call


def _numbers(grid):
    import re

    return [int(n) for n in re.findall(r"\d+", str(grid))][:3]


class Machine:
    """`array`, `empty`, `zeroed`, `wide` and `names` (the meanings in float64) are the subclass's."""

    def arrays(self, program):
        return {name: self.array(a, program, place) for place, (name, a) in enumerate(program.arrays.items())}

    def ours(self, program, arrays, out, **pinned):
        """A function that runs the program, with candidates that are pinned."""
        found = {}
        if program.source:
            found = meanings.load(program.text(**pinned), f"{program.name} {pinned or ''}")
        names = {**found, **arrays, "ts": ts, "out": out, "zeroed": self.zeroed}
        run = eval(f"lambda iteration=0: {program.call}", names)
        run.kernel = found.get("drawn")
        return run

    def check(self, program, arrays, result):
        """Holds a result against the meaning in float64: all of it, or of matmul and attention rows of every tile."""
        if tuple(result.shape) != program.out.shape:
            raise Wrong(f"expected shape {program.out.shape}, got {tuple(result.shape)}")
        for part in self._parts(program):
            given = {name: self.wide(x if part is None or name not in program.along else x[part]) for name, x in arrays.items()}
            right = eval(program.meaning, {**self.names, **given})
            got = self.wide(result if part is None else result[part])
            self._judge(program, got, right, part)

    def _parts(self, program):
        """Index lists along the leading axis; None is everything in one step."""
        if not program.along:
            return [None]
        count = program.out.shape[0]
        each = math.prod(program.out.shape[1:]) + max(math.prod(program.arrays[n].shape[1:]) for n in program.along if n in program.arrays)
        picked = range(count)
        if "attention" in program.family:
            each += math.prod(program.out.shape[1:-1]) * program.arrays["k"].shape[-2]
            picked = _spread(count, max(2, 16 * CHUNK // each))
        elif program.flops:
            picked = _spread(count, ROWS)
        step = max(1, CHUNK // each)
        return [self.index(picked[i : i + step]) for i in range(0, len(picked), step)]

    def _judge(self, program, got, right, part):
        size = abs(right)
        top = size.max() if right.ndim < 2 else self.row_max(size)
        floor = program.size
        bound = ROUNDING[program.out.dtype] * size + program.loss * (top + floor) + 1e-30
        error = abs(got - right)
        wrong = ~(error <= bound)  # a NaN is wrong
        count = int(wrong.sum())
        if count:
            at = tuple(int(i) for i in self.first(wrong))
            raise Wrong(
                f"{count} of {math.prod(right.shape)} elements are wrong, the first at {at} of part {str(part)[:40]}: "
                f"got {float(got[at]):.6g}, right is {float(right[at]):.6g}, allowed {float((bound + 0 * size)[at]):.2g}"
            )


def _spread(count, most):
    """Indices from the begin, the end, and places between that are no multiples of a tile's side."""
    if count <= most:
        return list(range(count))
    ends = min(16, most // 4)
    step = max(1, -(-count // max(1, most - 2 * ends))) | 1
    return sorted({*range(ends), *range(count - ends, count), *range(0, count, step)})

"""Programs on one core, beside NumPy, MKL and XLA. Without `peers` nothing but NumPy is needed."""

import functools
import statistics

import numpy as np

import tessera as ts
from tessera.arrays.create import numpy_dtype

from . import meanings
from .machine import Machine


class Cpu(Machine):
    processors = 1

    def __init__(self, seed=0, compiled=True):
        self.names, self.compiled = meanings.numpy_names(), compiled

    def describe(self):
        from bench.cpu import environment

        return environment.describe()

    # Arrays

    def array(self, a, program, place):
        rng = np.random.default_rng([program.seed, program.index, place])
        shape = (*a.shape[:-2], a.shape[-1], a.shape[-2]) if a.turned else a.shape
        if a.values.startswith("below"):
            made = rng.integers(0, int(a.values.split()[1]), shape)
        else:
            made = rng.standard_normal(shape, np.float32)
            made = 1 + 0.1 * made if a.values == "weights" else made
        made = _aligned(made.astype(numpy_dtype(a.dtype)))
        return made.swapaxes(-1, -2) if a.turned else made

    def empty(self, a):
        return _aligned(np.full(a.shape, np.nan).astype(numpy_dtype(a.dtype)))

    def zeroed(self, x):
        x.fill(0)
        return x

    def wide(self, x):
        x = np.asarray(x)
        return x if x.dtype.kind in "iu" else x.astype(np.float64)

    def index(self, picked):
        return np.array(picked)

    def row_max(self, x):
        return x.max(-1, keepdims=True)

    def first(self, wrong):
        return np.argwhere(wrong)[0]

    # Peers

    def peers(self, program, arrays, out):
        from bench.cpu import peer_mkl, peer_xla

        found, f32 = {}, program.dtype == "f32"
        text = f"lambda {', '.join(arrays)}: {program.meaning}"
        formula = eval(text, meanings.jax_names())
        found["XLA"] = peer_xla.contender({"formula": formula}, list(arrays.values()), 1.0).run
        if f32 and "gelu(" not in program.meaning:  # NumPy has no error function
            found["NumPy"] = eval(f"lambda iteration=0: {program.meaning}", {**self.names, **arrays})
        if program.meaning == "matmul(a, b)" and program.dtype in ("f32", "bf16"):
            mkl = peer_mkl.gemm(arrays["a"], arrays["b"], 1.0)  # it owns the result, whose address MKL has
            found["MKL"] = lambda: mkl.run()
        return found

    def copy(self, program):
        source, target = (_aligned(np.ones(max(1, program.bytes // 2), np.uint8)) for _ in range(2))
        return lambda iteration=0: np.copyto(target, source)

    # Times

    def settle(self, run):
        run()

    def times(self, runs, rounds, seconds):
        """Seconds of one call of each, round by round; only the fastest of the peers is timed with us."""
        from bench.cpu.timing import alternate, calls_for, fastest, quiet
        from bench.cpu.timing import seconds as timed

        ours = [n for n in runs if n == "ours" or n.startswith("ours ")]
        peers = [n for n in runs if n not in ours and n != "copy"]
        if len(peers) > 1:
            index, _ = fastest([runs[n] for n in peers], rounds=3)
            peers = [peers[index]]
        kept = [n for n in runs if n in ours or n in peers or n == "copy"]
        with quiet():
            counts = {n: calls_for(runs[n]) for n in kept}
            samplers = [lambda n=n: timed(runs[n], counts[n]) for n in kept]
            samples = alternate(samplers, 2 * rounds)
        return dict(zip(kept, ([(a + b) / 2 for a, b in zip(s[::2], s[1::2])] for s in samples)))

    def free(self):
        pass

    def alive(self):
        return True

    def memory_full(self, error):
        return isinstance(error, MemoryError)

    @functools.cached_property
    def roof(self):
        from bench.cpu.timing import calls_for
        from bench.cpu.timing import seconds as timed

        source, target = (_aligned(np.ones(2**26, np.uint8)) for _ in range(2))
        copy = lambda: np.copyto(target, source)  # noqa: E731
        found = {"bytes": 2 * source.nbytes / statistics.median(timed(copy, calls_for(copy)) for _ in range(5))}
        n = 1024
        for name in ("f32", "bf16"):
            a, b = (np.random.default_rng(i).standard_normal((n, n), np.float32).astype(numpy_dtype(name)) for i in range(2))
            run = lambda: ts.op.matmul(a, b)  # noqa: B023, E731
            found[name] = 2.0 * n**3 / min(timed(run, calls_for(run)) for _ in range(3))
        return found


def _aligned(array):
    from bench.cpu import arrays

    made = arrays.zeros(array.shape, array.dtype)
    made[...] = array
    return made

"""Running traced functions: compiled by default, or op by op by the interpreter of Graph IR (backend ``interp``)."""

from __future__ import annotations

import contextvars
from typing import Any

import numpy

from ._arrays import numpy_dtype
from ._profile import current as profile_now
from ._trace import to_numpy

#: "compiled" or "oracle"; the second is what every result is judged by.
_mode: contextvars.ContextVar[str] = contextvars.ContextVar("tessera_graph_mode", default="compiled")


class oracle:
    """Inside of ``with ts.runtime.oracle():`` functions are evaluated op by op by the definition of each op."""

    def __enter__(self) -> None:
        self._token = _mode.set("oracle")

    def __exit__(self, *_: Any) -> None:
        _mode.reset(self._token)


class Runner:
    """A traced function that is ready to run on host arrays."""

    def __init__(
        self, program: Any, func: str, kernels: dict[str, Any] | None = None, backend: str | None = None, profile: int | None = None
    ) -> None:
        self.program, self.func, self.backend, self.profile = program, func, backend, profile
        params, results = program.signature(func)
        self.params = [(tuple(s), d, numpy_dtype(d)) for s, d in params]
        self.results = [(tuple(s), d, numpy_dtype(d)) for s, d in results]
        self._kernels = _Kernels(kernels, self) if kernels else None
        self._compiled: dict[int, Any] = {}

    def compiled(self) -> Any:
        """The code for the numeric profile that holds here."""
        profile = profile_now() if self.profile is None else self.profile
        found = self._compiled.get(profile)
        if found is None:
            found = self._compiled[profile] = self.program.compile(self.func, self.backend, False, profile)
        return found

    def __call__(self, arrays: list[numpy.ndarray]) -> list[numpy.ndarray]:
        ready = [_row_major(a, t) for a, t in zip(arrays, self.params, strict=True)]
        if _mode.get() == "oracle":
            inputs = [((list(a.shape), d), a.tobytes()) for a, (_, d, _) in zip(ready, self.params, strict=True)]
            made = self.program.evaluate(self.func, inputs, self._kernels)
            return [numpy.frombuffer(b, numpy_dtype(d)).reshape(s) for s, d, b in made]
        outputs = [numpy.empty(s, kind) for s, _, kind in self.results]
        self.compiled().run(ready, outputs, self._kernels)
        return outputs


def _row_major(array: Any, wanted: tuple) -> numpy.ndarray:
    made = to_numpy(array)
    if made.dtype != wanted[2]:
        made = made.astype(wanted[2])
    return made if made.flags.c_contiguous else numpy.ascontiguousarray(made).reshape(made.shape)


class _Kernels:
    """Runs the kernels that a function calls."""

    def __init__(self, kernels: dict[str, Any], runner: Runner) -> None:
        self._kernels, self._runner = kernels, runner

    def __call__(self, name: str, config: str | None, privileges: list[str], arrays: list) -> list[bytes]:
        made = [numpy.frombuffer(data, numpy_dtype(dtype)).reshape(shape) for shape, dtype, data in arrays]
        if name in self._kernels:
            self._kernels[name](made)
        else:
            # One that a transform made of them.
            runner = self._runner
            profile = profile_now() if runner.profile is None else runner.profile
            backend = "interp" if _mode.get() == "oracle" else runner.backend
            runner.program.run_kernel(name, made, backend, profile)
        return [a.tobytes() for a in made]

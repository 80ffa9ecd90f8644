"""What `dist`, which is above this package, does where functions are traced and called."""

from __future__ import annotations

from typing import Any

#: Filled in by `dist._traced`.
#:
#: - ``results(frame, form, tracers, profile, args)``: the form of the results of a trace whose arrays are on a mesh.
#: - ``jit(mesh, in_specs, out_specs)``: what `ts.jit` does with arguments and results where it is given one of these.
#: - ``gathered(fn, args, kwargs)``: a call with arrays of the host for those on a mesh, and results in copies.
functions: dict[str, Any] = {}


def as_placed(x: Any, made: Any) -> Any:
    """A traced value of the shape of ``x``, placed as ``x`` is where that is an array on a mesh."""
    place = getattr(x, "_placed_alike", None)
    return made if place is None or made.shape != x.shape else place(made)

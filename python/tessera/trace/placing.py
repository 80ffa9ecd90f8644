"""What `dist`, which is above this package, does where functions are traced and called."""

from __future__ import annotations

from typing import Any

#: Filled in by `dist._traced`.
#:
#: - ``results(frame, form, tracers, profile, args)``: the form of the results of a trace whose arrays are on a mesh.
#: - ``jit(mesh, in_specs, out_specs)``: what `ts.jit` does with arguments and results where it is given one of these.
functions: dict[str, Any] = {}

"""Recipes: what is needed to compile a kernel again, that is its source, the dtypes of its parameters, and its configuration.

From a recipe, any machine emits the code that ran on a GPU. The kernel that runs is made from the same recipe, so the two
cannot differ in their configuration.
"""

import dataclasses
import functools
import hashlib
import importlib
import json
from dataclasses import dataclass, field

import tessera as ts
from tessera.kernel.capture import capture
from tessera.kernel.kernel_fn import KernelFn

from .former_names import present

#: The architecture of NVIDIA's H200.
TARGET = "sm_90a"


@dataclass(frozen=True)
class Emitted:
    """Hashes of the levels of a kernel: Tile IR by structure, the plan (Staged IR) by its text, PTX without source
    locations. `plan` is None for lane kernels, which have no Staged IR."""

    tile: str
    plan: str | None
    ptx: str

    def as_dict(self):
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Recipe:
    #: `module:name`.
    kernel: str
    #: Dtypes of arrays and numbers whose annotation has none; where it gives no axes, `bf16[4]` is an array of four. Fields of records
    #: and parts of lists are named by their paths.
    types: dict = field(default_factory=dict)
    #: Static dims, tunables and constants. A function is `{"function": "module:name"}`, the result of a factory
    #: `{"function": "module:maker", "of": […]}`.
    config: dict = field(default_factory=dict)
    profile: str = "default"
    target: str = TARGET
    #: Layouts of arrays, as `jit(layouts=…)` takes them, where they are not row-major and aligned.
    layouts: dict = field(default_factory=dict)

    def as_dict(self):
        # Older rows have no layouts.
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "layouts" or value}

    @classmethod
    def of(cls, data):
        unknown = set(data) - {f.name for f in dataclasses.fields(cls)}
        if unknown:
            raise ValueError(f"a recipe has no field {', '.join(sorted(unknown))}")
        return cls(**present(data))

    @property
    def name(self):
        return self.kernel.partition(":")[2]

    def values(self):
        return {name: _value(value) for name, value in self.config.items()}

    def constants(self):
        """The part of the configuration that a call passes by name. The rest comes from the arrays, or is tuned."""
        kinds = {p[0]: p[1] for p in self.spec.params}
        return {name: value for name, value in self.values().items() if kinds.get(name) in ("const", "function")}

    def arguments(self, values):
        """Run-time arguments by name, given in the order of the parameters."""
        names = [p[0] for p in self.spec.params if p[1] not in ("const", "function")]
        return dict(zip(names, values, strict=True))

    @property
    def spec(self):
        """The data of the kernel. One that takes lists has the lengths that the recipe names parts of."""
        kernel = found(self.kernel)
        parts = [name.split(".") for name in self.types if "." in name]
        lengths = {path[0]: 1 + max(int(p[-1]) for p in parts if p[0] == path[0]) for path in parts if path[-1].isdigit()}
        return kernel.of_lengths(**lengths).spec if lengths else kernel.spec

    def make(self):
        """The kernel that runs: one for each recipe and process, so that other calls do not use it."""
        return _made(json.dumps(self.as_dict(), sort_keys=True), "run")

    def compiled(self):
        """The code, from a kernel that never runs. One that ran would show the code for the layouts of its last call."""
        kernel = _made(json.dumps(self.as_dict(), sort_keys=True), "emit")
        with ts.numerics.profile(self.profile):
            return kernel.jit(target=self.target, layouts=self.layouts, **self.values())

    def emit(self):
        return hashes(self.compiled())


def hashes(kernel):
    """The hashes of a kernel that was compiled or called for a GPU."""
    fields = kernel.explain().fields
    return Emitted(fields["tile_hash"], _plan(kernel), fields["target_hash"])


def _plan(kernel):
    try:
        text = kernel.inspect_ir("staged")
    except ts.TesseraError as error:
        if error.code != "E_UNSUPPORTED":
            raise
        return None
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def found(path):
    """The object that `module:name` names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _value(value):
    """The value of a constant: itself, a function by its name, or the result of a factory with its arguments."""
    if not isinstance(value, dict):
        return value
    named = found(value["function"])
    return named(*map(_value, value["of"])) if "of" in value else named


@functools.lru_cache(maxsize=None)
def _made(text, _what_for):
    recipe = Recipe.of(json.loads(text))
    spec = recipe.spec
    tunables = {name for candidate in spec.candidates for name in candidate}
    pinned = {name: capture(value) for name, value in recipe.values().items() if name in tunables}
    return KernelFn(
        dataclasses.replace(
            spec,
            params=[_typed(param, recipe.types) for param in spec.params],
            candidates=[pinned] if pinned else spec.candidates,
        )
    )


def _typed(param, types):
    name, kind, about, default = param
    if name not in types:
        return param
    dtype, bracket, rank = types[name].partition("[")
    if kind == "tensor":
        dims, _, privilege, out = about
        return name, kind, (["?"] * int(rank.rstrip("]")) if bracket else dims, ts.dtype(dtype), privilege, out), default
    assert kind in ("any", "scalar"), f"`{name}` has no dtype to be given"
    if bracket:
        return name, "tensor", (["?"] * int(rank.rstrip("]")), ts.dtype(dtype), None, False), default
    return name, "scalar", ts.dtype(dtype), default

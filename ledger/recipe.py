"""How a kernel is made anew: where its source is, the dtypes of its parameters, and its configuration.

With a recipe the code that ran on a GPU is emitted again on any machine. What runs is made from the same recipe, so that
the two cannot differ by how they are requested.
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

#: What NVIDIA's H200 gets.
TARGET = "sm_90a"
#: Present names of what rows name as it was called when they were measured: a row is signed and keeps its text. Modules, and
#: tunables and constants of kernels.
FORMER_MODULES = {"gpu.kernels": "ledger.kernels"}
FORMER_PARAMETERS = {"free_reference": "lazy_rescale"}


@dataclass(frozen=True)
class Emitted:
    """Hashes of the levels of a kernel: Tile IR by structure, the plan (Staged IR) by its text, PTX without places in the
    source. `plan` is None where there is none: kernels of lanes."""

    tile: str
    plan: str | None
    ptx: str

    def as_dict(self):
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Recipe:
    #: `module:name`.
    kernel: str
    #: Dtypes of arrays and numbers whose annotation has none; `bf16[4]` is an array of so many axes where there is no
    #: annotation at all.
    types: dict = field(default_factory=dict)
    #: Dims that reach tiles, tunables and constants; a function is `{"function": "module:name"}`, one that was made by a
    #: function `{"function": "module:maker", "of": […]}`.
    config: dict = field(default_factory=dict)
    profile: str = "default"
    target: str = TARGET
    #: How arrays lie, as `jit(layouts=…)` takes it, where it is not row by row on good addresses.
    layouts: dict = field(default_factory=dict)

    def as_dict(self):
        # Rows that were kept before there were layouts have none.
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "layouts" or value}

    @classmethod
    def of(cls, data):
        unknown = set(data) - {f.name for f in dataclasses.fields(cls)}
        if unknown:
            raise ValueError(f"a recipe has no field {', '.join(sorted(unknown))}")
        return cls(**present_names(data))

    @property
    def name(self):
        return self.kernel.partition(":")[2]

    def values(self):
        return {name: _value(value) for name, value in self.config.items()}

    def constants(self):
        """The part of the configuration that a call passes by name; the rest it gets from the arrays, or is tuned."""
        kinds = {p[0]: p[1] for p in found(self.kernel).spec.params}
        return {name: value for name, value in self.values().items() if kinds.get(name) in ("const", "function")}

    def make(self):
        """The kernel that runs: one for each recipe and process, so that nobody else's calls are among its own."""
        return _made(json.dumps(self.as_dict(), sort_keys=True), "run")

    def compiled(self):
        """The code, of a kernel that never runs: one that ran with arrays that lie otherwise shows what it made for those."""
        kernel = _made(json.dumps(self.as_dict(), sort_keys=True), "emit")
        with ts.numerics.profile(self.profile):
            return kernel.jit(target=self.target, layouts=self.layouts, **self.values())

    def emit(self):
        return hashes(self.compiled())


def hashes(kernel):
    """The hashes of a kernel that was compiled or called, for GPUs."""
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


def present_names(data):
    """The data of a recipe, with the present names of modules and parameters."""
    if isinstance(data, dict):
        return {FORMER_PARAMETERS.get(name, name): present_names(value) for name, value in data.items()}
    if isinstance(data, list):
        return [present_names(value) for value in data]
    module, colon, name = data.partition(":") if isinstance(data, str) else ("", "", "")
    return f"{FORMER_MODULES[module]}:{name}" if colon and module in FORMER_MODULES else data


def found(path):
    """What `module:name` names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _value(value):
    """A constant; a function is named, and one that a function made also has what it was made of."""
    if not isinstance(value, dict):
        return value
    named = found(value["function"])
    return named(*map(_value, value["of"])) if "of" in value else named


@functools.lru_cache(maxsize=None)
def _made(text, _what_for):
    recipe = Recipe.of(json.loads(text))
    spec = found(recipe.kernel).spec
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
    if kind == "tensor":
        dims, _, privilege, out = about
        return name, kind, (dims, ts.dtype(types[name]), privilege, out), default
    assert kind in ("any", "scalar"), f"`{name}` has no dtype to be given"
    dtype, bracket, rank = types[name].partition("[")
    if bracket:
        return name, "tensor", (["?"] * int(rank.rstrip("]")), ts.dtype(dtype), None, False), default
    return name, "scalar", ts.dtype(dtype), default

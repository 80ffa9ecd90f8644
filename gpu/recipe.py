"""How a kernel is made anew: where its source is, the dtypes of its parameters, and its configuration.

With a recipe the code that ran on a GPU is emitted again on any machine. What runs is made from the same recipe, so that
the two cannot differ by the way they are asked for.
"""

import dataclasses
import functools
import hashlib
import importlib
import json
from dataclasses import dataclass, field

import tessera as ts
from tessera._capture import capture
from tessera._kernel import KernelFn

#: What NVIDIA's H200 gets.
TARGET = "sm_90a"


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
    #: Dtypes of arrays and numbers whose annotation has none.
    types: dict = field(default_factory=dict)
    #: Dims that reach tiles, tunables and constants; a function is `{"function": "module:name"}`.
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
        return cls(**data)

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
        """The kernel: one for each recipe and process, so that nobody else's calls are among its own."""
        return _made(json.dumps(self.as_dict(), sort_keys=True))

    def compiled(self):
        with ts.numerics.profile(self.profile):
            return self.make().jit(target=self.target, layouts=self.layouts, **self.values())

    def emit(self):
        return hashes(self.compiled())


def hashes(kernel):
    """The hashes of a kernel that was compiled or called, for GPUs."""
    told = kernel.explain().fields
    return Emitted(told["tile_hash"], _plan(kernel), told["target_hash"])


def _plan(kernel):
    try:
        text = kernel.inspect_ir("staged")
    except ts.TesseraError as error:
        if error.code != "E_UNSUPPORTED":
            raise
        return None
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def found(path):
    """What `module:name` names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _value(value):
    return found(value["function"]) if isinstance(value, dict) else value


@functools.lru_cache(maxsize=None)
def _made(text):
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
    return name, "scalar", ts.dtype(types[name]), default

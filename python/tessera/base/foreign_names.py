"""What names of NumPy, JAX, Optax, Flax and PyTorch are called here, for the error that an unknown name raises."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable

from .. import _core

_LATER = "it is not there yet: use NumPy's outside traced functions"
_COMPLEX = "there are no complex numbers yet"
_KEYED = "random functions take a key: `key = ts.random.key(0)`"

#: By module: what to write instead, as a sentence without its end.
WORDS: dict[str, dict[str, str]] = {
    "tessera": {
        "numpy": "write `ts.xp`: `from tessera import xp`",
        "jnp": "write `ts.xp`: `from tessera import xp`",
        "scipy": "its special functions are in `ts.xp`, such as `xp.digamma`, `xp.logsumexp`",
        "lax": "control flow is in `ts` itself (`ts.scan`, `ts.cond`, `ts.fori_loop`, `ts.while_loop`, `ts.switch`), functions of arrays are in `ts.xp`",
        "tree_util": "write `ts.tree`",
        "config": "there is none: f64 arrays stay f64 without a flag, and settings are environment variables, listed by `ts.runtime.knobs()`",
        "device_put": 'write `ts.array(x, device="cuda:0")`, or `x.to("cuda:0")`',
        "device_get": "write `np.asarray(x)`",
        "devices": "write `ts.runtime.devices()`",
        "local_devices": "write `ts.runtime.devices()`",
        "default_backend": "write `ts.runtime.backends()`",
        "make_jaxpr": "write `f.trace(*args)` of a jitted `f`, which gives its Graph IR",
        "pmap": "write `ts.dist.shard_map`, which names the axes of a mesh; `ts.vmap` maps over an axis",
        "shard_map": "write `ts.dist.shard_map`",
        **dict.fromkeys(("psum", "pmean", "pmax", "pmin"), "write `ts.collective.all_reduce(x, axis, op)` in a function of `ts.dist.shard_map`"),
        "ppermute": "write `ts.collective.permute(x, axis, pairs)` in a function of `ts.dist.shard_map`",
        "psum_scatter": "write `ts.collective.reduce_scatter(x, axis)` in a function of `ts.dist.shard_map`",
        "axis_index": "write `ts.dist.axis_index(axis)` in a function of `ts.dist.shard_map`",
        "disable_jit": "call the function without `ts.jit`: `ts.xp` runs immediately outside traced functions",
        "block_until_ready": "calls on the CPU return when they are done, and `ts.runtime.synchronize()` waits for a device",
        "jacobian": "write `ts.jacrev` or `ts.jacfwd`",
        "custom_gradient": "write `ts.custom_vjp`",
        "closure_convert": "functions under `ts.grad` and `ts.jit` may close over arrays as they are",
        "no_grad": "there is nothing to turn off: derivatives are taken where `ts.grad` asks for them; `ts.stop_gradient(x)` has none",
        "compile": "write `ts.jit`",
        "autograd": "write `ts.grad` of a function",
        "from_numpy": "pass NumPy's arrays as they are, or write `ts.array(x)`",
        "cat": "write `xp.concat`; in a kernel store the parts one after another",
        "tensor": "write `ts.array(values)`",
        "asarray": "write `ts.array(values)`, or `ts.xp.asarray`",
        "as_tensor": "write `ts.array(values)`",
        "manual_seed": _KEYED,
        "seed": _KEYED,
        "PRNGKey": "write `ts.random.key(0)`",
        "randn": "write `ts.random.normal(key, shape)`; in a kernel `ts.tile.philox(seed, counter)`",
        "rand": "write `ts.random.uniform(key, shape)`; in a kernel `ts.tile.philox(seed, counter)`",
        "pure_callback": "write `ts.debug.callback`, which gives no values back",
        "io_callback": "write `ts.debug.callback`, which gives no values back",
        "print": "write `ts.debug.print`; in a kernel `ts.tile.print`",
        "ndarray": "write `ts.Array`",
        "cuda": 'devices have names: `ts.array(x, device="cuda:0")`',
        "device": 'devices have names: `ts.array(x, device="cuda:0")`',
        "profiler": "write `ts.profile`",
        "clear_caches": "write `f.cache_clear()` of a jitted `f`",
        "named_scope": "there is none: traces name functions, and `ts.profile` shows the user's lines",
        "named_call": "there is none: traces name functions, and `ts.profile` shows the user's lines",
        "value_and_gradient": "write `ts.value_and_grad`",
        "linear_transpose": "write `ts.vjp`: the pullback of a linear function is its transpose",
        "linalg": _LATER,
        "fft": _LATER,
    },
    "tessera.xp": {
        "cat": "write `xp.concat`",
        "clamp": "write `xp.clip`",
        "permute": "write `xp.transpose`",
        "unsqueeze": "write `xp.expand_dims`",
        "view": "write `xp.reshape`",
        "numel": "write `xp.size`",
        "flatten": "write `xp.ravel`",
        "trapz": "write `xp.trapezoid`",
        "product": "write `xp.prod`",
        "cumproduct": "write `xp.cumprod`",
        "row_stack": "write `xp.vstack`",
        "in1d": "write `xp.isin`",
        "round_": "write `xp.round`",
        "msort": "write `xp.sort(x, axis=0)`",
        "alltrue": "write `xp.all`",
        "sometrue": "write `xp.any`",
        "asscalar": "write `x.item()`",
        "asanyarray": "write `xp.asarray`",
        "ascontiguousarray": "write `xp.asarray`",
        "put": "write `x.at[i].set(v)`",
        "place": "write `xp.where(mask, values, x)`",
        "putmask": "write `xp.where(mask, values, x)`",
        "copyto": "write `xp.where(mask, values, x)`",
        "r_": "write `xp.concat([a, b])`",
        "c_": "write `xp.column_stack([a, b])`",
        "float_": "write `xp.float32`, which Python's floats become, or `xp.float64`",
        "int_": "write `xp.int64`, which Python's integers become",
        "intp": "write `xp.int64`",
        "uint": "write `xp.uint64`",
        "single": "write `xp.float32`",
        "double": "write `xp.float64`",
        "half": "write `xp.float16`",
        "float128": "write `xp.float64`, the widest",
        "longdouble": "write `xp.float64`, the widest",
        "complex64": _COMPLEX,
        "complex128": _COMPLEX,
        "real": _COMPLEX,
        "imag": _COMPLEX,
        "conj": _COMPLEX,
        "angle": _COMPLEX,
        "random": "write `ts.random`, whose functions take a key",
        "vmap": "write `ts.vmap`",
        "linalg": _LATER,
        "fft": _LATER,
        "polyfit": _LATER,
        "roots": _LATER,
        "histogramdd": _LATER,
        "save": "write `ts.save(path, tree)`",
        "load": "write `ts.load(path)`",
        "max_pool": "write `ts.nn.max_pool`",
    },
    "tessera.nn": {
        "Dense": "write `nn.Linear(inputs, outputs)`",
        "Embed": "write `nn.Embedding`",
        "Conv": "write `nn.Conv1d`, `nn.Conv2d` or `nn.Conv3d`",
        "ConvTranspose1d": "write `nn.ConvTranspose(..., axes=1)`",
        "ConvTranspose2d": "write `nn.ConvTranspose`",
        "ConvTranspose3d": "write `nn.ConvTranspose(..., axes=3)`",
        "BatchNorm1d": "write `nn.BatchNorm`",
        "BatchNorm2d": "write `nn.BatchNorm`",
        "LSTMCell": "write `nn.LSTM`",
        "GRUCell": "write `nn.GRU`",
        "RNN": "write `nn.LSTM` or `nn.GRU`, or `ts.scan` of your own step",
        "MultiHeadDotProductAttention": "write `nn.MultiHeadAttention`",
        "MultiheadAttention": "write `nn.MultiHeadAttention`",
        "dot_product_attention": "write `nn.attention(q, k, v)`",
        "scaled_dot_product_attention": "write `nn.attention(q, k, v)`",
        "Flatten": "write a function: `lambda x: x.reshape(x.shape[0], -1)`",
        "Identity": "write a function: `lambda x: x`",
        "MaxPool2d": "write `nn.max_pool`, in `nn.Sequential` as a function",
        "AvgPool2d": "write `nn.avg_pool`, in `nn.Sequential` as a function",
        "CrossEntropyLoss": "write `nn.cross_entropy(logits, labels)`",
        "softmax_cross_entropy": "write `nn.cross_entropy(logits, labels)`",
        "MSELoss": "write `nn.mse_loss`",
        "BCEWithLogitsLoss": "write `nn.binary_cross_entropy`",
        "Parameter": "parameters are arrays in a tree: `layer.init(key)` makes them",
        "ModuleList": "a list of layers is a tree like any other",
        "ModuleDict": "a dict of layers is a tree like any other",
        "functional": "the functions are in `nn` itself: `nn.relu`, `nn.softmax`",
        "init": "write `nn.initializers`",
        "compact": "write a class of `nn.Module`, or functions of parameters",
        "scan": "write `ts.scan`",
        "remat": "write `ts.checkpoint`",
        "jit": "write `ts.jit`",
    },
    "tessera.random": {
        "randn": "write `random.normal(key, shape)`",
        "standard_normal": "write `random.normal(key, shape)`",
        "rand": "write `random.uniform(key, shape)`",
        "random": "write `random.uniform(key, shape)`",
        "random_sample": "write `random.uniform(key, shape)`",
        "integers": "write `random.randint(key, shape, low, high)`",
        "seed": _KEYED,
        "default_rng": _KEYED,
        "RandomState": _KEYED,
        "manual_seed": _KEYED,
    },
    "tessera.optim": {
        "apply_updates": "`params, state = opt.update(params, grads, state)` gives the new parameters",
        "adam": "write `optim.Adam(lr)`",
        "adamw": "write `optim.AdamW(lr)`",
        "sgd": "write `optim.SGD(lr)`",
        "constant_schedule": "write `optim.constant`",
        "linear_schedule": "write `optim.linear`",
        "cosine_decay_schedule": "write `optim.cosine`",
        "exponential_decay": "write `optim.exponential`",
        "warmup_cosine_decay_schedule": "write `optim.warmup_cosine`",
        "incremental_update": "write `optim.EMA`",
        "ema": "write `optim.EMA`",
        "scale_by_adam": "write `optim.Adam`",
        "add_decayed_weights": "write `optim.add_weight_decay`",
        "GradientTransformation": "write `optim.Transform`",
        "apply_if_finite": "write `optim.LossScaler`, which leaves out steps with gradients that are not finite",
        "MultiSteps": "write `optim.accumulate`",
        "multi_transform": "write `optim.groups`",
        "lr_scheduler": "a schedule is the `lr` of an optimiser: `optim.Adam(optim.cosine(1e-3, 1000))`",
    },
    "tessera.tree": {
        "map_structure": "write `tree.map`",
        "register_pytree_node": "write `tree.register`",
        "register_pytree_node_class": "write `tree.register_class`",
        "register_dataclass": "dataclasses are trees without being registered",
        "tree_map_with_path": "write `tree.map_with_path`",
    },
}  # fmt: skip
#: Of jitted functions.
JITTED: dict[str, str] = {
    "lower": "write `f.trace(*args)` for its Graph IR, `f.compiled(*args)` for what is compiled, and `f.explain(*args)` for what was chosen",
    "eval_shape": "write `ts.eval_shape(f, *args)`",
    "clear_caches": "write `f.cache_clear()`",
    "compile": "write `f.compiled(*args)`, which compiles for these arguments without a call",
    "forward": "call it: `f(x)`",
}  # fmt: skip
#: Where a name may stand that a module does not have, in this order, and how a user writes it.
_PLACES = {
    "tessera.xp": "xp", "tessera.nn": "ts.nn", "tessera.optim": "ts.optim", "tessera.random": "ts.random", "tessera.tree": "ts.tree", "tessera": "ts",
}  # fmt: skip


def missing(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that a module does not have."""
    if name.startswith("_"):
        return AttributeError(f"module '{module}' has no attribute '{name}'")
    return AttributeError(f"module '{module}' has no attribute '{name}'{_hint(module, name, [n for n in known if not n.startswith('_')])}")


def missing_of_jitted(name: str) -> AttributeError:
    """The error for a name that a jitted function does not have."""
    hint = JITTED.get(name)
    return AttributeError(f"a jitted function has no attribute '{name}'{'' if hint is None else '; ' + hint}")


def _hint(module: str, name: str, known: list[str]) -> str:
    hint = WORDS.get(module, {}).get(name)
    if hint is None:
        hint = _standing_elsewhere(module, name)
    if hint is None and module == "tessera":
        hint = _core.instead_of(name)
    if hint is not None:
        return f"; {hint}"
    plain = name.lower().replace("_", "")
    near = [n for n in known if n.lower().replace("_", "") == plain] or difflib.get_close_matches(name, known, n=3, cutoff=0.7)
    return f"; did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else ""


def _standing_elsewhere(module: str, name: str) -> str | None:
    """A name that another module of ours has, also without the prefix that JAX gave it."""
    for place, written in _PLACES.items():
        names = vars(sys.modules[place]) if place in sys.modules else {}
        for given in (name, name.removeprefix("tree_")) if place == "tessera.tree" else (name,):
            if given not in names or (place == module and given == name) or _is_module(names[given]):
                continue
            inside = " in traced functions and outside; in a kernel `ts.tile.{0}`".format(name) if module == "tessera" and _in_kernels(name) else ""
            return f"write `{written}.{given}`{inside}"
    return None


def _is_module(value: object) -> bool:
    return type(value).__name__ == "module"


def _in_kernels(name: str) -> bool:
    return hasattr(sys.modules.get("tessera.tile"), name)

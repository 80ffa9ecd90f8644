"""Present names of what rows of the ledger name as it was called when they were measured: a row is signed and keeps its text."""

#: Modules and functions.
MODULES = {"gpu.kernels": "ledger.kernels"}
FUNCTIONS = {
    "tessera.kernels.attention:any_score": "tessera:identity",
    "tessera.kernels.gemm:epilogue_of": "tessera.kernels.matmul:epilogue_of",
}
#: Tunables and constants of all kernels.
PARAMETERS = {"free_reference": "lazy_rescale", "roles": "warp_specialization"}


def present(data):
    """The data of a recipe, with present names of modules, functions and parameters."""
    data = _renamed(data)
    change = _RECORDS.get(data.get("kernel"))
    if change is None or "." in "".join([*data.get("types", {}), *data.get("config", {})]):
        return data
    data = {**data, "types": dict(data.get("types", {})), "config": dict(data.get("config", {}))}
    names = change(data["types"], data["config"])
    return {
        field: {names.get(name, name): v for name, v in value.items()} if field in ("types", "config", "layouts") else value
        for field, value in data.items()
    }


def _renamed(data):
    if isinstance(data, dict):
        return {PARAMETERS.get(name, name): _renamed(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_renamed(value) for value in data]
    module, colon, name = data.partition(":") if isinstance(data, str) else ("", "", "")
    data = f"{MODULES[module]}:{name}" if colon and module in MODULES else data
    return FUNCTIONS.get(data, data) if isinstance(data, str) else data


# Kernels whose parameters have become fields of records. Each changes what a field means now, and gives the paths of the others.


def _fields(record, names):
    return {name: f"{record}.{name}" for name in names.split()}


def _function(config, record, of, given, kinds):
    """A function of the caller, of which a recipe had the number of arrays."""
    config[f"{record}.of"] = config.pop(of)
    config[f"{record}.kinds"] = kinds
    config[f"{record}.given"] = given
    return {}


def _seen(config, record, of, count):
    number = config.pop(count, -1)
    plain = config.get(of) == {"function": "tessera:identity"}
    _function(config, record, of, number >= 0 and not plain, "-" * max(number, 0))


def _attention(types, config):
    _seen(config, "score", "scores", "changes")
    _seen(config, "mask", "mask", "masks")
    for name in ("num_warps", "num_stages"):
        config.pop(name, None)
    config.setdefault("by", 0)
    config.setdefault("checked", False)
    return {
        **_fields("x", "Q K V O LSE"), **_fields("seen", "low high"), **_fields("how", "BM BN keep positive lazy_rescale checked"),
        **_fields("table", "R L ragged"), "by": "how.pad_to", "X": "score.arrays.0", "Y": "score.arrays.1", "Z": "mask.arrays.0",
        "W": "mask.arrays.1",
    }  # fmt: skip


def _states(types, config):
    _seen(config, "mask", "mask", "masks")
    return {"Z": "mask.arrays.0", "W": "mask.arrays.1", **_fields("seen", "low high")}


def _kinds(config, names):
    letters = "".join(config.pop(name, "-") for name in names)
    return letters[: config.pop("count")]


def _product(types, config):
    _function(config, "epilogue", "epilogue", True, _kinds(config, ("ke", "kf", "kg")))
    config.setdefault("precision", "default")
    fields = "BM BN BK num_warps num_stages cluster_m cluster_n warp_specialization persistent precision"
    return {**_fields("tile", fields), **{name: f"epilogue.arrays.{i}" for i, name in enumerate("EFG")}}


def _elementwise(types, config):
    _function(config, "f", "function", True, _kinds(config, ("ka", "kb", "kc", "kd")))
    return {name: f"f.arrays.{i}" for i, name in enumerate("abcd")}


def _area(types, config):
    config.setdefault("num_warps", 0)
    return _elementwise(types, config)


def _norm(types, config):
    return _fields("a", "x scale shift centre scaled shifted")


_RECORDS = {
    "tessera.kernels.attention:forward": _attention,
    "tessera.kernels.block_mask:forward": _attention,
    "tessera.kernels.block_mask:states": _states,
    "tessera.kernels.gemm:product": _product,
    "tessera.kernels.elementwise:line": _elementwise,
    "tessera.kernels.elementwise:area": _area,
    "tessera.kernels.norm:whole": _norm,
    "tessera.kernels.norm:pieces": _norm,
}

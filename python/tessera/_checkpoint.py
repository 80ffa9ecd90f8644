"""Trees of arrays in safetensors files: every array under its path, the form of the tree in the header, so that what is
loaded is what was saved, bit for bit."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy

from . import _core, _tree
from ._arrays import numpy_dtype
from ._dtypes import dtype as as_dtype
from ._errors import MissingFileError
from ._trace import fail, to_numpy
from .random import Key

_PLAIN = {"dict": dict, "list": list, "tuple": tuple, "none": type(None)}


def _form(tree: Any, path: str) -> Any:
    """The tree with paths for leaves, as JSON; ``None`` where it holds what JSON cannot say."""
    if tree is None:
        return {"none": []}
    if type(tree) is dict:
        if not all(isinstance(k, str) for k in tree):
            return None
        inner = {k: _form(v, f"{path}.{k}" if path else k) for k, v in sorted(tree.items())}
        return None if None in inner.values() else {"dict": inner}
    if type(tree) in (list, tuple):
        items = [_form(v, f"{path}.{i}" if path else str(i)) for i, v in enumerate(tree)]
        return None if None in items else {type(tree).__name__: items}
    if type(tree) is Key:
        return {"key": f"{path}.words" if path else "words"}
    if isinstance(tree, (bool, int, float, str)):
        return {"value": tree}
    if hasattr(tree, "shape"):
        return path or "array"
    return None


def _dotted(path: str) -> str:
    out = path.replace("['", ".").replace("']", "").replace("[", ".").replace("]", "").lstrip(".")
    return out or "array"


def save(path: str | os.PathLike, tree: Any) -> None:
    """Writes a tree of arrays and numbers. The file is there whole or not at all."""
    leaves, paths = _tree.leaves(tree), [_dotted(p) for p in _tree.paths(tree)]
    arrays, kinds = [], {}
    for name, leaf in zip(paths, leaves, strict=True):
        if isinstance(leaf, (bool, int, float, str)) and not isinstance(leaf, numpy.generic):
            continue
        array = to_numpy(leaf)
        dtype = as_dtype(array.dtype).name
        kinds[name] = dtype
        arrays.append((name, dtype, list(array.shape), numpy.ascontiguousarray(array).tobytes()))
    note = json.dumps({"form": _form(tree, ""), "dtypes": kinds}, sort_keys=True)
    _core.safetensors_save(os.fspath(path), arrays, note)


def load(path: str | os.PathLike, like: Any = None) -> Any:
    """The tree that was saved. With ``like`` a tree of that form, whose arrays must have the same shapes and dtypes; a file
    of another program without our header gives a dict of its arrays."""
    if not os.path.exists(path):
        found = fail("E_ARGUMENT", f"expected a file to load, got {os.fspath(path)}, where there is none",
                     "check the path, and the directory that it starts from")  # fmt: skip
        missing = MissingFileError(str(found), found.diagnostics)  # type: ignore[attr-defined]
        missing.filename = os.fspath(path)
        raise missing
    arrays, note = _core.safetensors_load(os.fspath(path))
    head = json.loads(note) if note else {}
    kinds = head.get("dtypes", {})
    found = {}
    for name, dtype, shape, data in arrays:
        kind = numpy_dtype(kinds.get(name, dtype))
        found[name] = numpy.frombuffer(bytearray(data), kind).reshape(shape)
    if like is not None:
        return _into(found, like, os.fspath(path))
    form = head.get("form")
    return found if form is None else _build(form, found)


def _build(form: Any, found: dict) -> Any:
    if isinstance(form, str):
        return found[form]
    ((kind, inner),) = form.items()
    if kind == "value":
        return inner
    if kind == "none":
        return None
    if kind == "key":
        return Key(found[inner])
    if kind == "dict":
        return {k: _build(v, found) for k, v in inner.items()}
    items = [_build(v, found) for v in inner]
    return tuple(items) if kind == "tuple" else items


def _into(found: dict, like: Any, path: str) -> Any:
    leaves, form = _tree.flatten(like)
    names = [_dotted(p) for p in _tree.paths(like)]
    out = []
    for name, leaf in zip(names, leaves, strict=True):
        if name not in found:
            raise fail(
                "E_NAME",
                f"expected an array `{name}` in {path}, got {', '.join(sorted(found)[:8])}",
                "load into a tree of the names that were saved",
            )
        wanted, got = to_numpy(leaf), found[name]
        if wanted.shape != got.shape or wanted.dtype != got.dtype:
            raise fail(
                "E_SHAPE_MISMATCH",
                f"expected `{name}` in {path} to be {wanted.dtype} of shape {list(wanted.shape)}, got {got.dtype} of shape {list(got.shape)}",
                "load into arrays of the shapes and dtypes that were saved",
            )
        out.append(got)
    return _tree.unflatten(form, out)

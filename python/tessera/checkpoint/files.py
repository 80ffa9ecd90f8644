"""Trees of arrays in safetensors files: every array under its path, the structure of the tree in the metadata (`tree_format`), so that
what is loaded is what was saved, bit for bit. Files of other programs are dicts of their arrays."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy

from ..base.errors import MissingFileError, Refusal
from ..trace.tracer import fail
from . import durable
from .bounded_json import parse as parse_json, shown
from .leaves import Spec, data_of, empty, numpy_dtype, restored, restored_like, spec_of, wanted
from .safetensors import METADATA, NARROW, Entry, header, read_header
from .tree_format import LEAVES, VERSION, Node, build, describe, parse, rows_of
from .values import PLAIN, decode, encode

#: What holds our description in the metadata of a file.
_OURS = "tessera"
_DAMAGED = "the file is damaged: write it again"


def save(path: str | os.PathLike, tree: Any) -> None:
    """Writes a tree of arrays, numbers and text into a safetensors file: dicts, lists, tuples, named tuples, dataclasses, modules, keys
    and registered classes. A tree that could not be loaded again is refused.

    The file is there whole or not at all: a process that ends, a full disk or a power cut leaves the file that was there before.
    When `save` returns, the new one is on the disk."""
    target = _path(path)
    try:
        _check_target(target)
        nodes = describe(tree)
        specs = {id(node): spec_of(node.leaf, node.at) for node in nodes if node.kind == "leaf"}
        names = _names([node for node in nodes if specs.get(id(node)) is not None])
        arrays = {names[id(n)]: (n, specs[id(n)]) for n in nodes if id(n) in names}
        note = json.dumps(rows_of(nodes, lambda n: _row(n, specs[id(n)], names.get(id(n)))), separators=(",", ":"))
        first, order = header({name: (s.dtype, s.shape) for name, (_, s) in arrays.items()}, {_OURS: note})
        durable.write_whole(target, _parts(first, [arrays[name] for name in order]))
    except Refusal as found:
        raise _fail(found.message, found.help) from found.__cause__
    except OSError as error:
        raise _failed("save", target, error) from error
    except MemoryError as error:
        raise _fail(f"expected memory to save {target}, got none", "save fewer arrays at a time") from error


def load(path: str | os.PathLike, like: Any = None) -> Any:
    """The tree that was saved. With ``like`` a tree of that structure: entries are matched by their paths, and each must be there, with the
    same shape and dtype, and no other; static fields, classes of arrays and devices are those of ``like``, whose leaves may also be
    `ShapeDtypeStruct`. A file of another program gives a dict of its arrays.

    Arrays come back in host memory. Nothing of a file is executed or imported: classes are looked up among those the program has."""
    target = _path(path)
    try:
        with _opened(target) as file:
            size = os.fstat(file.fileno()).st_size
            entries, metadata, start = read_header(file, size)
            reader = _Reader(file, entries, start)
            nodes, flat = _nodes(metadata.get(_OURS), entries)
            reader.check_all_named(nodes)
            return build(nodes, reader.leaf) if like is None else _into(nodes, flat, reader, like, target)
    except Refusal as found:
        message = found.message if target in found.message else f"{target}: {found.message}"
        raise _fail(message, found.help) from found.__cause__
    except OSError as error:
        raise _failed("load", target, error) from error
    except (MemoryError, RecursionError) as error:
        raise _fail(f"expected memory to load {target}, got none", "load it with more memory, or save fewer arrays in a file") from error


def _fail(message: str, help: str) -> Exception:
    """The error; names of files may hold bytes that are no text."""
    return fail("E_CHECKPOINT", *(text.encode("utf-8", "replace").decode() for text in (message, help)))


def _path(path: Any) -> str:
    try:
        target = os.fsdecode(path)
        os.fsencode(target)  # a lone surrogate is text, and no path
    except (TypeError, ValueError):
        raise _fail(f"expected the path of a file, got {ascii(path) if isinstance(path, str) else 'a value of type ' + type(path).__name__}",
                   'write for example `ts.save("run.safetensors", tree)`') from None  # fmt: skip
    if not target or "\0" in target:
        raise _fail(f"expected the path of a file, got {target!r}", 'write for example `ts.save("run.safetensors", tree)`')
    return target


def _check_target(target: str) -> None:
    """A rename would put a file in the place of a pipe or a device."""
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if target.endswith(os.sep) or not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise Refusal(f"expected the path of a file, got {target}, which is {_kind(mode) if mode != stat.S_IFREG else 'a folder'}",
                      f"name a file in it: {os.path.join(target, 'run.safetensors')}" if stat.S_ISDIR(mode) or target.endswith(os.sep)
                      else "give the path of a file, or of one that is not there yet")  # fmt: skip


def _kind(mode: int) -> str:
    return "a folder" if stat.S_ISDIR(mode) else "no file that is written once and kept"


def _opened(target: str) -> BinaryIO:
    mode = os.stat(target).st_mode
    if not stat.S_ISREG(mode):  # opening a pipe would wait for who writes into it
        raise Refusal(f"expected a file to load, got {target}, which is {_kind(mode)}", "give the path of a safetensors file")
    return open(target, "rb")


def _failed(verb: str, target: str, error: OSError) -> Exception:
    """The error for what the system said."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if verb == "load":
            message, help = f"expected a file to load, got {target}, where there is none", "check the path, and the directory that it starts from"
        else:
            folder = os.path.dirname(target) or "."
            message, help = f"expected a folder to save in, got {folder}, where there is none", f"make it: `os.makedirs({folder!r})`"
            if os.path.isdir(folder):
                message, help = f"expected a folder to save in, got {folder}, which takes no new files", "save in a folder of files"
        found = _fail(message, help)
        missing = MissingFileError(str(found), found.diagnostics)  # type: ignore[attr-defined]
        missing.filename = target
        return missing
    help = "look at the disk, and at who may read and write there"
    if verb == "save" and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        help = "make room and save again; a file that was there before is as it was"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        help = f"{verb} a file that this user may {'write' if verb == 'save' else 'read'}"
    return _fail(f"expected to {verb} {target}, got: {error.strerror or error}", help)


def _names(nodes: list[Node]) -> dict[int, str]:
    """Names in the file: paths with dots, as other programs write them. Where two would be one, a number is added."""
    plain = [node.name for node in nodes]
    taken, out = {METADATA, *plain}, {}
    given = {METADATA}
    for node, name in zip(nodes, plain, strict=True):
        free, number = name, 1
        while free in given or free != name and free in taken:
            number += 1
            free = f"{name}#{number}"
        given.add(free)
        out[id(node)] = free
    return out


def _row(node: Node, spec: Spec | None, name: str | None) -> dict[str, Any]:
    if spec is None:
        return {"kind": "value", "value": encode(node.leaf)}
    row = {"kind": "array", "name": name, "dtype": spec.dtype, "as": spec.form}
    return row | {"order": "big"} if spec.big else row


def _parts(first: bytes, arrays: list[tuple[Node, Spec]]) -> Iterator[memoryview]:
    """The bytes of a file; arrays of devices are copied one by one."""
    yield memoryview(first)
    for node, spec in arrays:
        yield data_of(node.leaf, spec, node.at)


class _Reader:
    """The arrays of a file."""

    def __init__(self, file: BinaryIO, entries: dict[str, Entry], start: int) -> None:
        self.file, self.entries, self.start = file, entries, start

    def array(self, name: str, dtype: str) -> numpy.ndarray:
        entry = self.entries[name]
        try:
            made, room = empty(Spec(dtype, entry.shape))
        except ValueError:  # more axes, or longer ones, than NumPy has
            raise Refusal(f"expected `{shown(name)}` to be an array that NumPy has, got the shape {shown(list(entry.shape))}",
                          "load it with the program that wrote it") from None  # fmt: skip
        self.file.seek(self.start + entry.begin)
        done = 0
        while done < len(room):
            count = self.file.readinto(room[done:])  # type: ignore[attr-defined]
            if not count:
                raise Refusal(f"expected {len(room)} bytes of `{shown(name)}`, got {done}: the file changed while it was read", "load it again")
            done += count
        if dtype == "bool" and len(room) and made.view(numpy.uint8).max() > 1:
            raise Refusal(f"expected `{shown(name)}` to be of bool, got bytes other than 0 and 1", _DAMAGED)
        return made

    def spec(self, node: Node) -> Spec:
        """The array of a row, whose dtype must be what the file has."""
        assert node.row is not None
        name, dtype = node.row["name"], node.row["dtype"]
        entry = self.entries.get(name)
        if entry is None:
            raise Refusal(f"expected an array `{shown(name)}` {node.at}, got a file without one", _DAMAGED)
        scalar = node.row.get("as") == "scalar"
        if dtype != entry.dtype and (dtype not in NARROW or entry.dtype != "u8") or scalar and entry.shape:
            raise Refusal(f"expected {shown(dtype)} {node.at}, got {entry.dtype} of shape {list(entry.shape)}", _DAMAGED)
        return Spec(dtype, entry.shape, node.row.get("as", "numpy"), node.row.get("order") == "big")

    def leaf(self, node: Node) -> Any:
        assert node.row is not None
        if node.kind == "value":
            return decode(node.row.get("value"), node.at)
        spec = self.spec(node)
        return restored(self.array(node.row["name"], spec.dtype), spec)

    def check_all_named(self, nodes: list[Node]) -> None:
        """Each array belongs to one place of the tree."""
        named = [node.row["name"] for node in nodes if node.kind == "array" and node.row is not None]
        left = set(self.entries) - set(named)
        if left or len(set(named)) != len(named):
            what = f"`{shown(min(left))}` beside it" if left else "one of them twice"
            raise Refusal(f"expected the arrays of the tree, got {what}", _DAMAGED)


def _nodes(note: str | None, entries: dict[str, Entry]) -> tuple[list[Node], bool]:
    """The tree of a file, and whether it is only a dict of arrays by their names, as in files of other programs."""
    if note is None:
        return _flat({name: entry.dtype for name, entry in entries.items()}), True
    described = parse_json(note.encode("utf-8", "surrogatepass"), 2000, "the description of the tree")
    if isinstance(described, dict) and "form" in described and "version" not in described:
        kinds = described.get("dtypes", {})
        if not isinstance(kinds, dict):
            raise Refusal("expected dtypes by names in the description of the tree, got something else", _DAMAGED)
        dtypes = {name: kinds.get(name, entry.dtype) for name, entry in entries.items()}
        # What the first format had no words for it wrote as arrays by their paths.
        return (_flat(dtypes), True) if described["form"] is None else (_first_format(described["form"], dtypes), False)
    return parse(described), False


def _flat(dtypes: dict[str, Any]) -> list[Node]:
    names = sorted(dtypes)
    arrays = [{"kind": "array", "name": name, "dtype": dtypes[name]} for name in names]
    return parse({"version": VERSION, "tree": [{"kind": "dict", "keys": names}, *arrays]})


def _first_format(form: Any, dtypes: dict[str, Any]) -> list[Node]:
    """The tree of a file from before descriptions had a version: a nested form with names for arrays."""
    rows: list[dict] = []
    todo = [form]
    while todo:
        form = todo.pop()
        if isinstance(form, str):
            rows.append({"kind": "array", "name": form, "dtype": dtypes.get(form)})
            continue
        ((kind, inner),) = form.items() if isinstance(form, dict) and len(form) == 1 else (("", None),)
        if kind == "value" and type(inner) in PLAIN:
            rows.append({"kind": "value", "value": inner})
        elif kind == "none":
            rows.append({"kind": "none"})
        elif kind == "key" and isinstance(inner, str):
            rows.append({"kind": "key"})
            todo.append(inner)
        elif kind == "dict" and isinstance(inner, dict):
            rows.append({"kind": "dict", "keys": list(inner)})
            todo += reversed(inner.values())
        elif kind in ("list", "tuple") and isinstance(inner, list):
            rows.append({"kind": kind, "count": len(inner)})
            todo += reversed(inner)
        else:
            raise Refusal(f"expected a part of a tree in its description, got {shown(form)}", _DAMAGED)
    return parse({"version": VERSION, "tree": rows})


def _into(nodes: list[Node], flat: bool, reader: _Reader, like: Any, target: str) -> Any:
    """The leaves of a file in the structure of another tree."""
    into = describe(like)
    leaves = [node for node in into if node.kind == "leaf"]
    keys: dict[int, Any] = {id(node): node.name if flat else node.key for node in leaves}
    have: dict[Any, Node] = {node.row["name"] if flat else node.key: node for node in nodes if node.kind in LEAVES}  # type: ignore[index]
    requested = set(keys.values())
    if len(requested) < len(keys):
        raise Refusal("expected a tree whose arrays have different names, with dots for their paths, got two of one name", "load the file without `like`")
    _check_entries([node for node in leaves if keys[id(node)] not in have], [n for k, n in have.items() if k not in requested], target)
    # All of them before any is read.
    for node in leaves:
        _check_leaf(node, have[keys[id(node)]], reader, target)

    def leaf(node: Node) -> Any:
        found = have[keys[id(node)]]
        if found.kind == "value" or type(node.leaf) in PLAIN:
            return reader.leaf(found)
        return restored_like(reader.array(found.row["name"], reader.spec(found).dtype), node.leaf, node.at)  # type: ignore[index]

    return build(into, leaf)


def _check_entries(missing: list[Node], extra: list[Node], target: str) -> None:
    if not missing and not extra:
        return
    problems = []
    if missing:
        problems.append(f"none for `{missing[0].text}`" + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""))
    if extra:
        problems.append(f"`{extra[0].text}`" + (f" and {len(extra) - 1} more" if len(extra) > 1 else "") + " beside them")
    raise Refusal(f"expected the entries of `like` in {target}, got {', and '.join(problems)}",
                  "load into a tree of the names that were saved; `ts.load(path)` gives what the file has")  # fmt: skip


def _check_leaf(node: Node, found: Node, reader: _Reader, target: str) -> None:
    """Whether a leaf of a file is what `like` has there."""
    if type(node.leaf) in PLAIN:
        expected: Any = f"a number or text of type {type(node.leaf).__name__}"
        # A counter that went through a compiled function is an array of one number.
        kinds = {bool: "b", int: "iu", float: "f"}.get(type(node.leaf), "")
        spec = reader.spec(found) if found.kind == "array" else None
        same = numpy_dtype(spec.dtype).kind in kinds and not spec.shape if spec else type(reader.leaf(found)) is type(node.leaf)
    else:
        expected = wanted(node.leaf, node.at)
        same = found.kind == "array" and reader.spec(found)[:2] == expected[:2]
    if not same:
        got = str(reader.spec(found)) if found.kind == "array" else f"the {type(reader.leaf(found)).__name__} {shown(repr(reader.leaf(found)))}"
        raise Refusal(f"expected `{node.text}` in {target} to be {expected}, got {got}", "load into arrays of the shapes and dtypes that were saved")

"""Untrusted files: `ts.load` returns a tree or raises a `CheckpointError`, and runs no code that the file chooses."""

import itertools
import json
import math
import os
import random
import struct
import sys
import time

import checkpoint_trees as trees
import numpy as np
import pytest
from plans.fuzz import day

import tessera as ts

A = np.arange(4, dtype=np.float32)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


def refused(path, words, **kwargs):
    with pytest.raises(ts.CheckpointError) as caught:
        ts.load(path, **kwargs)
    error = caught.value
    assert error.code == "E_CHECKPOINT" and str(path) in error.message and error.help and words in error.message, str(error)
    assert len(error.message) < 500 + len(str(path))


def written(path, head, data=b"", length=None):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def row(dtype="F32", shape=(4,), begin=0, end=16, **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end], **more}


HEADERS = {
    "empty": (b"", b"", "expected the header to be JSON"),
    "no object": ([], b"", "to be a JSON object"),
    "text": (b'"x"', b"", "to be a JSON object"),
    "no JSON": (b"{a:1}", b"", "to be JSON, got other text at character 1"),
    "two values": (b"{}{}", b"", "to be JSON"),
    "not UTF-8": (b'{"\xff\xfe":1}', b"", "to be UTF-8"),
    "deep lists": (b"[" * 200_000, b"", "of at most 3 levels, got 200000"),
    "deep objects": (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, b"", "of at most 3 levels"),
    "deep behind text": (b'{"a\\\\":' + b"[" * 10 + b"]" * 10 + b"}", b"", "of at most 3 levels"),
    "twice": (b'{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}', bytes(4), "`a` twice"),
    "twice inside": (b'{"a":{"dtype":"F32","dtype":"F64","shape":[],"data_offsets":[0,4]}}', bytes(4), "`dtype` twice"),
    "twice in metadata": (b'{"__metadata__":{"tessera":"","tessera":"{}"}}', b"", "`tessera` twice"),
    "digits": (b'{"a":' + b"9" * 5000 + b"}", b"", "to be JSON"),
    "metadata of numbers": ({"__metadata__": {"a": 1}}, b"", "to hold text by names"),
    "metadata a list": ({"__metadata__": []}, b"", "to hold text by names"),
    "a number for a row": ({"a": 1}, b"", "expected dtype, shape and place of `a`"),
    "an empty row": ({"a": {}}, b"", "expected the dtype of `a`"),
    "a dtype of nobody": ({"a": row("F31")}, bytes(16), "got F31"),
    "a dtype that is packed": ({"a": row("F4", (32,))}, bytes(16), "got F4"),
    "a dtype that is a list": ({"a": row(["F32"])}, bytes(16), "expected the dtype of `a`"),
    "a negative extent": ({"a": row(shape=(-4,))}, bytes(16), "expected the shape of `a`"),
    "a float extent": ({"a": row(shape=(4.0,))}, bytes(16), "expected the shape of `a`"),
    "a bool extent": ({"a": row("U8", (True,), 0, 1)}, bytes(1), "expected the shape of `a`"),
    "a shape of text": ({"a": {**row(), "shape": "4"}}, bytes(16), "expected the shape of `a`"),
    "a thousand axes": ({"a": row(shape=[1] * 1000, end=4)}, bytes(4), "expected the shape of `a`"),
    "sixty axes and five": ({"a": row(shape=[1] * 65, end=4)}, bytes(4), "expected the shape of `a`"),
    "a product that wraps": ({"a": row(shape=(1 << 62, 4))}, bytes(16), "bytes of `a`"),
    "an extent beyond 64 bits": ({"a": row(shape=(1 << 64,))}, bytes(16), "expected the shape of `a`"),
    "nothing of huge extents": ({"a": row(shape=(0, 1 << 62, 1 << 62), end=0)}, b"", "an array that NumPy has"),
    "a negative place": ({"a": row(begin=-16, end=0)}, bytes(16), "expected the place of `a`"),
    "three places": ({"a": {**row(), "data_offsets": [0, 8, 16]}}, bytes(16), "expected the place of `a`"),
    "places turned": ({"a": row(begin=16, end=0)}, bytes(16), "bytes of `a`"),
    "a place beyond 64 bits": ({"a": row(begin=1 << 64, end=(1 << 64) + 16)}, bytes(16), "expected the place of `a`"),
    "a place behind the end": ({"a": row(begin=16, end=32)}, bytes(16), "to begin at 0, got 16"),
    "too few bytes": ({"a": row()}, bytes(15), "expected 16 bytes of elements, got 15"),
    "too many bytes": ({"a": row()}, bytes(17), "expected 16 bytes of elements, got 17"),
    "other bytes than the shape": ({"a": row(end=12)}, bytes(12), "expected 16 bytes of `a`"),
    "one over another": ({"a": row(), "b": row()}, bytes(16), "inside the array before"),
    "one half over another": ({"a": row(), "b": row(begin=8, end=24)}, bytes(24), "inside the array before"),
    "a hole": ({"a": row(), "b": row(begin=20, end=36)}, bytes(36), "behind bytes of no array"),
    "a bool of two": ({"a": row("BOOL", (2,), 0, 2)}, b"\x01\x02", "bytes other than 0 and 1"),
    "terminal codes": ({"\x1b[2J\n": row("F31")}, bytes(16), "of `�[2J�`"),
    "a long name": ({"n" * 100_000: row("F31")}, bytes(16), "nnn…`"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers_are_refused(path, name):
    head, data, words = HEADERS[name]
    written(path, head, data)
    refused(path, words)
    refused(path, "", like={"a": A})


@pytest.mark.parametrize("length", [0, 1, 2**31, 2**32 + 8, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1, 100_000_001])
def test_hostile_lengths_are_refused(path, length):
    written(path, {"a": row()}, bytes(16), length)
    refused(path, "")


def test_every_shorter_and_longer_file_is_refused(path):
    ts.save(path, {"a": A, "n": 3})
    whole = path.read_bytes()
    for count in range(len(whole)):
        path.write_bytes(whole[:count])
        refused(path, "")
    path.write_bytes(whole + b"\0")
    refused(path, "")
    sparse = path.with_name("sparse")
    with open(sparse, "wb") as file:
        file.write(struct.pack("<Q", 1 << 40))
        file.truncate(1 << 41)
    refused(sparse, "expected a header of at most 100000000 bytes")


def described(path, tree, arrays=None, **more):
    """A file with a description of our own making."""
    note = tree if isinstance(tree, str) else json.dumps({"version": 2, "tree": tree} | more)
    names = ["a"] if arrays is None else arrays
    rows = {name: row(begin=16 * k, end=16 * k + 16) for k, name in enumerate(names)}
    written(path, {"__metadata__": {"tessera": note}, **rows}, A.tobytes() * len(names))


ARRAY = {"kind": "array", "name": "a", "dtype": "f32"}


def a_value(value):
    return [{"kind": "list", "count": 2}, ARRAY, {"kind": "value", "value": value}]


def a_class(**more):
    return [{"kind": "dataclass", "class": "checkpoint_trees:State", "fields": ["step", "mu"], "static": {"name": "x", "config": None}, **more},
            ARRAY, {"kind": "none"}]  # fmt: skip


NOTES = {
    "no JSON": "{", "nothing": "", "a number": "3", "a list": "[]", "null": "null", "no tree": "{}", "a tree of text": '{"version": 2, "tree": "x"}',
    "deep": "[" * 100_000, "deep and closed": "[" * 1500 + "]" * 1500, "version of text": '{"version": "2", "tree": []}', "lone half of a pair": '"\ud800"',
    "a bool for a version": '{"version": true, "tree": []}', "twice": '{"version": 2, "version": 2, "tree": []}',
    "no rows": [], "a row of text": ["x"], "a row of nothing": [None], "no kind": [{}], "an unknown kind": [{"kind": "pickle"}], "a kind that is a list": [{"kind": []}],
    "too many rows": [ARRAY, ARRAY], "too few rows": [{"kind": "list", "count": 2}, ARRAY],
    "a huge count": [{"kind": "list", "count": 10**18}, ARRAY], "a negative count": [{"kind": "list", "count": -1}, ARRAY],
    "a bool for a count": [{"kind": "list", "count": True}, ARRAY], "a count of text": [{"kind": "tuple", "count": "1"}, ARRAY],
    "nested beyond all": [{"kind": "list", "count": 1}] * 600 + [ARRAY],
    "keys of text": [{"kind": "dict", "keys": "a"}, ARRAY], "keys that are lists": [{"kind": "dict", "keys": [{"list": []}]}, ARRAY],
    "a key twice": [{"kind": "dict", "keys": ["x", "x"]}, ARRAY, {"kind": "none"}], "keys that are equal": [{"kind": "dict", "keys": [1, True]}, ARRAY, {"kind": "none"}],
    "an array of nobody": [{**ARRAY, "name": "b"}], "no name": [{"kind": "array", "dtype": "f32"}], "a name that is a list": [{**ARRAY, "name": ["a"]}],
    "another dtype": [{**ARRAY, "dtype": "i32"}], "a wider dtype": [{**ARRAY, "dtype": "f64"}], "a packed dtype": [{**ARRAY, "dtype": "fp4_e2m1 @packed"}],
    "a narrow dtype of floats": [{**ARRAY, "dtype": "i4"}], "no dtype": [{"kind": "array", "name": "a"}],
    "a dtype that is no text": [{**ARRAY, "dtype": 3}], "another class of arrays": [{**ARRAY, "as": "matrix"}], "a scalar of four": [{**ARRAY, "as": "scalar"}],
    "another order": [{**ARRAY, "order": "middle"}], "one array twice": [{"kind": "list", "count": 2}, ARRAY, ARRAY], "an array left over": [{"kind": "none"}],
    "no value": a_value({}), "a value of two": a_value({"int": "1", "float": "2"}), "an unknown value": a_value({"eval": "1"}), "a value that is a list": a_value([1]),
    "an int of letters": a_value({"int": "zz"}), "an int of a list": a_value({"int": []}), "a float of half": a_value({"float": "7ff0"}), "bytes of text": a_value({"bytes": "xyz"}),
    "a complex of three": a_value({"complex": [1, 2, 3]}), "a complex of text": a_value({"complex": ["a", 1]}), "a dtype of nobody": a_value({"dtype": "f31"}),
    "a type of nobody": a_value({"type": "os"}), "a scalar of no bytes": a_value({"scalar": ["f32", ""]}), "a scalar of objects": a_value({"scalar": ["object", "00" * 8]}),
    "a set of lists": a_value({"frozenset": [{"list": []}]}), "a dict of singles": a_value({"dict": [[1]]}), "a dict of lists": a_value({"dict": [[{"list": []}, 1]]}),
    "an enum of nobody": a_value({"enum": ["os:Nobody", "A"]}), "an enum that is none": a_value({"enum": ["builtins:dict", "A"]}),
    "an enum without the name": a_value({"enum": ["checkpoint_trees:Colour", "GREEN"]}), "an enum of a list": a_value({"enum": "x"}),
    "a named tuple that is none": a_value({"named": ["builtins:tuple", [1]]}), "a dataclass that is none": a_value({"data": ["builtins:dict", {}]}),
    "what is opaque": a_value({"opaque": "a function"}), "opaque nothing": a_value({"opaque": None}),
    "a class of nobody": a_class(**{"class": "os:Nobody"}), "a class that is a function": a_class(**{"class": "os:system"}), "a class that is no text": a_class(**{"class": 3}),
    "a class without a module": a_class(**{"class": "State"}), "a class of a module that is none": a_class(**{"class": "no.such.module:State"}),
    "a class behind a function": a_class(**{"class": "os:system.x"}), "a class by another name": a_class(**{"class": "checkpoint_trees:collections.OrderedDict"}),
    "a class that is no tree": a_class(**{"class": "subprocess:Popen"}), "other fields": a_class(fields=["step", "nu"]), "a field twice": a_class(fields=["mu", "mu"]),
    "fields that are numbers": a_class(fields=[1, 2]), "fields of text": a_class(fields="ab"), "other static fields": a_class(static={"other": 1}),
    "static fields of a list": a_class(static=[]), "a named tuple of a dataclass": a_class(kind="namedtuple"), "a module of a dataclass": a_class(kind="module"),
    "a registered dataclass": a_class(kind="registered"), "a dict of a dataclass": [{"kind": "dict", "class": "checkpoint_trees:State", "keys": ["a"]}, ARRAY],
    "a module of other fields": [{"kind": "module", "class": "checkpoint_trees:Net", "fields": ["w"], "static": {}}, ARRAY],
    "static fields without a hash": [{"kind": "module", "class": "checkpoint_trees:Acted", "fields": ["w"], "static": {"act": {"list": []}}}, ARRAY],
    "a registered class with too few": [{"kind": "registered", "class": "checkpoint_trees:Pair", "count": 1, "meta": None}, ARRAY],
    "a dict with code": [{"kind": "dict", "class": "checkpoint_trees:Loud", "keys": ["a"]}, ARRAY],
    "a dict of functions": [{"kind": "dict", "class": "collections:defaultdict", "keys": ["a"]}, ARRAY],
    "code of its own": [{"kind": "dataclass", "class": "checkpoint_trees:Hostile", "fields": ["w"], "static": {}}, ARRAY],
    "code of a setter": [{"kind": "dataclass", "class": "checkpoint_trees:Setter", "fields": ["w"], "static": {}}, ARRAY],
    "code at the end": [{"kind": "namedtuple", "class": "checkpoint_trees:Last", "fields": ["w"]}, ARRAY],
    "a key of floats": [{"kind": "key"}, ARRAY], "a key of nothing": [{"kind": "key"}, {"kind": "list", "count": 1}, ARRAY],
    "a function of nobody": a_value({"function": "nn.system"}), "a function of another module": a_value({"function": "os.system"}), "a function of a list": a_value({"function": []}),
    "a form of nothing": '{"form": {}}', "a form of a list": '{"form": []}', "a form of two": '{"form": {"none": [], "value": 1}}', "a form of nobody": '{"form": "b"}',
    "a form that is deep": '{"form": ' + '{"list": [' * 5000 + "]}" * 5000 + "}", "a form of values": '{"form": {"value": [1]}}', "a key of a list": '{"form": {"key": []}}',
    "dtypes of a list": '{"form": "a", "dtypes": []}', "dtypes of numbers": '{"form": "a", "dtypes": {"a": 3}}', "other dtypes": '{"form": null, "dtypes": {"a": "f64"}}',
}  # fmt: skip


@pytest.mark.parametrize("name", NOTES)
def test_hostile_descriptions_are_refused(path, name):
    described(path, NOTES[name])
    trees.calls.clear()
    refused(path, "")
    assert trees.calls == []


def test_a_description_of_a_later_release_says_so(path):
    described(path, [ARRAY], version=3)
    refused(path, "expected a description of version 2, got 3")


def test_a_deep_stack_of_the_reader_is_no_other_error(path):
    described(path, '{"form": ' + '{"list": [' * 300 + '"a"' + "]}" * 300 + "}")
    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(150 + len(__import__("inspect").stack()))
        refused(path, "")
        sys.setrecursionlimit(100_000)
        assert type(ts.load(path)) is list
    finally:
        sys.setrecursionlimit(before)


def test_many_entries_take_time_in_proportion(path):
    # One more after all of them is a name that is there: looking for it pair by pair would take hours.
    rows = ",".join(f'"n{k}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for k in range(20_000))
    written(path, ("{" + rows + "}").encode())
    assert len(ts.load(path)) == 20_000
    written(path, ("{" + rows + ',"n19999":{}}').encode())
    refused(path, "`n19999` twice")


def places(value):
    """Every container in JSON, with each of its keys or indices."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    yield from ((value, key) for key, _ in items)
    for _, inner in items:
        yield from places(inner)


JUNK = [None, True, 0, -1, 2, 10**18, 2**64, 0.5, float("nan"), "", "a", "f32", "u8", "i4", "numpy", "x" * 5000, [], {}, [[]], {"list": [1]}, {"opaque": "x"}, {"tuple": [{"int": "0x1"}]},
        "checkpoint_trees:Hostile", "checkpoint_trees:Net", "checkpoint_trees:Point", "collections:OrderedDict", "builtins:dict", "os:system", "dict", "list", "key", "module"]  # fmt: skip


def rewritten(r, data):
    """A file of sound JSON that says something else."""
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    note = json.loads(head["__metadata__"]["tessera"])
    for _ in range(r.choice([1, 1, 2, 6])):
        found = [*places(note if r.random() < 0.8 else head)]
        if not found:
            break
        container, key = r.choice(found)
        _, other = r.choice([*places(note)] or [(None, "a")])
        kind = r.randrange(5)
        if kind == 0:
            del container[key]
        elif kind == 1 and isinstance(container, list):
            container.insert(key, json.loads(json.dumps(r.choice([container[key], *JUNK]))))
        elif kind == 2 and isinstance(container, dict):
            container[str(other)] = container.pop(key)
        elif kind == 3 and isinstance(container, list):
            r.shuffle(container)
        else:
            container[key] = json.loads(json.dumps(r.choice(JUNK)))
    if isinstance(head.get("__metadata__"), dict):
        head["__metadata__"]["tessera"] = json.dumps(note)
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def mutated(r, data):
    """A file with some of it changed: bits, bytes, pieces, numbers, and words of the format."""
    head = 8 + int.from_bytes(data[:8], "little")
    out = bytearray(data)
    for _ in range(r.choice([1, 1, 1, 2, 5])):
        at, kind = r.randrange(min(head, len(out)) or 1), r.randrange(8)
        if kind == 0:
            out[at] ^= 1 << r.randrange(8)
        elif kind == 1:
            out[at] = r.randrange(256)
        elif kind == 2:
            del out[at : at + r.randrange(1, 20)]
        elif kind == 3:
            out[at:at] = out[r.randrange(len(out)) :][: r.randrange(1, 40)]
        elif kind == 4:
            digits = [i for i, c in enumerate(out[:head]) if 48 <= c < 58 and i >= 8]
            if digits:
                at = r.choice(digits)
                out[at : at + 1] = str(r.choice([0, 1, 7, -1, 2**31, 2**63, 2**64, 1e9, 0.5])).encode()
        elif kind == 5:
            words = [b"null", b"true", b"{}", b"[]", b'"a"', b"NaN", b"-1", b"1e999", b'{"list":1}', b"\\u0000", b"\xff", b"]", b"}", b'\\"', b","]
            out[at : at + r.randrange(6)] = r.choice(words)
        elif kind == 6:
            old, new = r.sample([b"F32", b"I64", b"BOOL", b"f32", b"i64", b"dict", b"list", b"tuple", b"array", b"value", b"key", b"none", b"module",
                                 b"dataclass", b"namedtuple", b"registered", b"numpy", b"scalar", b"weak", b"host", b"Point", b"State", b"Net"], 2)  # fmt: skip
            out = bytearray(bytes(out).replace(old, new, r.choice([1, 1, -1])))
        else:
            out = out[: r.randrange(len(out))] if out else out
        if not out:
            break
    if r.random() < 0.8 and len(out) > 8:
        # Mostly with the length that fits, so that more than the first check is reached.
        out[:8] = struct.pack("<Q", max(0, head - 8 + len(out) - len(data)))
    return bytes(out)


def test_mutated_files_load_or_are_refused(path):
    seed = day()
    print(f"TESSERA_FUZZ_SEED={seed}")
    count = int(os.environ.get("TESSERA_CHECKPOINT_MUTATIONS") or 700)
    # A time instead of a count where one is given: `make fuzz`.
    end = time.monotonic() + float(os.environ.get("TESSERA_FUZZ_SECONDS", "inf"))
    numbers = range(count) if math.isinf(end) else itertools.count()
    tree = {"a": A, "b": [np.arange(3), trees.Point(A, 1)], "s": trees.State(A, None, "x", trees.Config(2)), "k": ts.random.key(3), "n": {0: 2.5, "x": "text"},
            "net": trees.Net(A, [np.float32(2)]), "o": trees.Scaled(A, (1, "x")), "t": np.array([True, False])}  # fmt: skip
    ts.save(path, tree)
    whole = path.read_bytes()
    loaded = number = 0
    for number in numbers:
        if time.monotonic() > end:
            break
        r = random.Random(f"{seed} {number}")
        path.write_bytes(r.choice([mutated, rewritten])(r, whole))
        for like in (None, tree):
            try:
                ts.load(path, like=like)
                loaded += 1
            except ts.CheckpointError as error:
                assert error.code == "E_CHECKPOINT" and error.help
            except Exception as error:
                raise AssertionError(f"TESSERA_FUZZ_SEED={seed}, mutation {number}") from error
    print(f"{number + 1} mutated files, {loaded} loads")
    assert loaded <= number + 1

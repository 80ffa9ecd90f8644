"""Checkpoints, cases that mutation testing found: values in descriptions, boundary values of limits, and system errors."""

import dataclasses
import errno
import functools
import io
import json
import os
import stat
import struct

import checkpoint_trees as trees
import numpy as np
import pytest
from checkpoint_trees import Colour, Config, Point, State, same

import tessera as ts
from tessera import nn
from tessera.checkpoint import durable, bounded_json, safetensors, class_names, leaves, values

A = np.arange(3, dtype=np.float32)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


def refused(words, call, *args, **kwargs):
    with pytest.raises(ts.CheckpointError) as caught:
        call(*args, **kwargs)
    error = caught.value
    assert error.code == "E_CHECKPOINT" and words in error.message and error.help, str(error)
    return error


def header(path):
    data = path.read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def strict(text):
    """JSON as others read it, who know no NaN."""
    def none(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=none)


VALUES = [
    None, True, "text", 0, -(1 << 63), (1 << 64) - 1, 1 << 64, -(1 << 63) - 1, 1 << 200, 2.5, -0.0, float("inf"), float("-inf"), 1e308, 5e-324,
    1 + 2j, complex(float("inf"), -0.0), b"", b"\xc0\xff\x33", (1, ("a",)), [1, [2.5]], frozenset([1, "a", (2,)]), {"a": 1, 2: [None]}, ts.bf16,
    np.dtype("int16"), np.float32, np.int8(-3), np.float64(2.5), Colour.BLUE, Point(1, (2, "x")), Config(3, Colour.RED), nn.gelu, ts.xp.sin,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_values_beside_arrays_come_back(path, value):
    ts.save(path, State(A, None, value, value))
    back = ts.load(path)
    for found in (back.name, back.config):
        assert type(found) is type(value) and found == value
        assert isinstance(value, frozenset) or repr(found) == repr(value)  # the signs of zeros too
    strict(header(path)["__metadata__"]["tessera"])


def test_values_are_written_as_documented():
    code = values.encode
    assert code(2.5) == 2.5 and code(float("inf")) == {"float": "7ff0000000000000"} and code(float("nan"))["float"].startswith("7ff8")
    assert code((1 << 64) - 1) == (1 << 64) - 1 and code(1 << 64) == {"int": "0x10000000000000000"} and code(-(1 << 63)) == -(1 << 63)
    assert code(-(1 << 63) - 1) == {"int": "-0x8000000000000001"} and code(1 - 2j) == {"complex": [1.0, -2.0]} and code(b"\xc0") == {"bytes": "c0"}
    assert code(frozenset(["b", "a", 1])) == {"frozenset": ["a", "b", 1]} and code({"a": 1}) == {"dict": [["a", 1]]}
    assert code(np.float32(1)) == {"scalar": ["f32", "0000803f"]} and code(np.float32) == {"type": "f32"} and code(np.dtype("f4")) == {"numpy": "f32"}
    assert code(nn.gelu) == {"function": "nn.gelu"} and code(Colour.BLUE) == {"enum": ["checkpoint_trees:Colour", "BLUE"]}
    assert code(Point(1, 2)) == {"named": ["checkpoint_trees:Point", [1, 2]]}
    assert code(Config(3)) == {"data": ["checkpoint_trees:Config", {"width": 3, "colour": {"enum": ["checkpoint_trees:Colour", "RED"]}}]}
    for value in (Point(1, 2), Colour.RED, np.float32(1), ts.f32):
        with pytest.raises(values.Opaque, match="a value of type"):
            code(value, plain=True)
    for value, message in ((lambda: 0, "a function"), (functools.partial(print), "a value of type partial"), (np, "a value of type module"), (object(), "object")):
        with pytest.raises(values.Opaque, match=message):
            code(value)


def nested(levels, make=lambda v: (v,)):
    value = 1
    for _ in range(levels):
        value = make(value)
    return value


def test_values_are_nested_as_deep_as_they_are_read(path):
    deepest = values._DEEPEST
    value = nested(deepest + 1)
    assert values.decode(values.encode(value), "here") == value
    inmost = nested(deepest + 1, lambda v: (1 << 70 if v == 1 else v,))
    assert values.decode(values.encode(inmost), "here") == inmost
    with pytest.raises(values.Opaque, match=f"nested deeper than {deepest}"):
        values.encode(nested(deepest + 2))
    # A file may say more than we write.
    for levels, fits in ((deepest + 1, True), (deepest + 3, False), (500, False)):
        coded = nested(levels, lambda v: {"tuple": [v]})
        if fits:
            values.decode(coded, "here")
        else:
            with pytest.raises(Exception, match="expected a value here"):
                values.decode(coded, "here")


@pytest.mark.parametrize("coded", [
    {"float": "7ff0"}, {"int": 3}, {"tuple": 3}, {"list": {"a": 1}}, {"dict": [[1]]}, {"dict": [[1, 2], [1, 3]]}, {"dict": [[[], 1]]}, {"scalar": ["f32"]},
    {"scalar": ["f32", ""]}, {"scalar": ["f32", "0000803f0000803f"]}, {"scalar": ["f33", "00"]}, {"enum": ["checkpoint_trees:Colour", "GREEN"]}, {"function": "xp.gelu"}, {"function": "os.system"},
    {"function": "gelu"}, {"named": []}, {"data": ["checkpoint_trees:Config", [1]]}, {"dtype": "f33"}, {"type": 3}, {"a": 1}, {}, {"int": "1", "float": "2"}, [1],
    {"complex": [1]}, {"complex": ["a", 1]}, {"bytes": "0"}, {"frozenset": [{"list": []}]},
])  # fmt: skip
def test_values_that_are_none_are_refused(coded):
    if coded == {"complex": [1]}:
        assert values.decode(coded, "here") == 1 + 0j
        return
    from tessera.base.errors import Refusal

    with pytest.raises(Refusal, match="here"):
        values.decode(coded, "here")


def test_text_of_files_is_shown_short_and_printable():
    assert bounded_json.shown("x" * 60) == "x" * 60 and bounded_json.shown("x" * 61) == "x" * 59 + "…" and len(bounded_json.shown("x" * 10**6)) == 60
    assert bounded_json.shown("a\n\x1b[31m") == "a��[31m" and bounded_json.shown("abcdef", 3) == "ab…" and bounded_json.shown("abc", 3) == "abc"


@pytest.mark.parametrize("data, depth, message", [
    (b"[[1]]", 2, None), (b"[[[1]]]", 2, "of at most 2 levels, got 3"), (b'{"a]]": "[[["}', 1, None), (b'["\\"[[["]', 1, None), (b"[" * 10**5, 3, "levels"),
    (b"\xff", 3, "UTF-8"), (b"[1,]", 3, "at character"), (b"9" * 5000, 3, "no reader takes"), (b'{"a": 1, "a": 2}', 3, "`a` twice"), (b"3", 0, None),
])  # fmt: skip
def test_json_of_files_is_bounded(data, depth, message):
    from tessera.base.errors import Refusal

    if message is None:
        assert bounded_json.parse(data, depth, "it") == json.loads(data)
    else:
        with pytest.raises(Refusal, match=message):
            bounded_json.parse(data, depth, "it")


def test_a_header_has_a_limit(path, monkeypatch):
    ts.save(path, {"a": A})
    first = path.read_bytes()
    length = int.from_bytes(first[:8], "little")
    assert length % 8 == 0
    monkeypatch.setattr(safetensors, "_MOST", length)
    ts.save(path, {"a": A})
    assert same(ts.load(path), {"a": A}) is None
    monkeypatch.setattr(safetensors, "_MOST", length - 1)
    refused(f"a header of at most {length - 1} bytes, got {length}", ts.save, path, {"a": A})
    refused(f"at most {length - 1} bytes, got one that says it has {length}", ts.load, path)
    assert path.read_bytes() == first


def test_arrays_are_stored_widest_first_without_gaps(path):
    tree = {"a": np.zeros(3, np.int8), "b": np.zeros(2), "c": np.zeros((2, 0), np.int16), "d": np.zeros(1, np.float32), "e": np.zeros(5, bool)}
    ts.save(path, tree)
    places = {name: row["data_offsets"] for name, row in header(path).items() if name != "__metadata__"}
    assert places == {"b": [0, 16], "d": [16, 20], "c": [20, 20], "a": [20, 23], "e": [23, 28]}


def test_what_is_no_array_says_what_it_is_and_what_to_write(path):
    class Shaped:
        shape, dtype = (2,), np.dtype("f4")

    class Units(np.ndarray):
        pass

    class Small(int):
        pass

    for leaf, message, help in (
        (print, "the function `print`", "nn.static"), (int, "the class `int`", "nn.static"), (functools.partial(print), "a value of type partial", "ts.tree.register"),
        (np, "a value of type module", "ts.tree.register"), ({1, 2}, "a value of type set", "sorted(x)"), (Small(3), "a value of type Small", "`int(x)`"),
        (Shaped(), "a value of type Shaped", "ts.tree.register"), (np.zeros(2).view(Units), "a value of type Units", "numpy.asarray(x)"),
        (np.ma.zeros(2), "a masked array", "x.filled(0)"), (np.zeros(2, "U3"), "dtype", "astype"),
    ):  # fmt: skip
        error = refused(message, ts.save, path, {"a": leaf})
        assert help in error.help, (leaf, error.help)
    assert not path.exists()
    mapped = np.memmap(path, np.float32, "w+", shape=(2,))
    ts.save(path.with_name("m"), mapped)
    assert type(ts.load(path.with_name("m"))) is np.ndarray


def test_like_may_be_shapes_and_dtypes(path):
    ts.save(path, {"a": A, "n": 2})
    back = ts.load(path, like={"a": ts.ShapeDtypeStruct((3,), "f32"), "n": 0})
    assert back["a"].tolist() == A.tolist() and back["n"] == 2 and type(back["a"]) is type(ts.xp.ones(1))
    refused("to be f32 of shape [4], got f32 of shape [3]", ts.load, path, like={"a": ts.ShapeDtypeStruct((4,), "f32"), "n": 0})
    assert leaves.Spec("f32", (2,)).form == "numpy" and not leaves.Spec("f32", (2,)).big


@pytest.mark.parametrize("number, save_help, load_help", [
    (errno.ENOSPC, "make room", "look at the disk"), (errno.EDQUOT, "make room", "look at the disk"), (errno.EFBIG, "make room", "look at the disk"),
    (errno.EACCES, "may write", "may read"), (errno.EPERM, "may write", "may read"), (errno.EROFS, "may write", "may read"),
    (errno.EIO, "look at the disk", "look at the disk"),
])  # fmt: skip
def test_what_the_system_refuses_says_what_to_do(path, monkeypatch, number, save_help, load_help):
    ts.save(path, A)
    before = path.read_bytes()

    def fails(*_, **__):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(durable.FILES.__class__, "write", fails)
        error = refused(os.strerror(number), ts.save, path, {"b": A})
    assert save_help in error.help and path.read_bytes() == before and os.listdir(path.parent) == [path.name]
    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", fails)
        error = refused(os.strerror(number), ts.load, path)
    assert load_help in error.help and not isinstance(error, FileNotFoundError)


def test_folders_that_cannot_be_synced_are_distinguished_from_disks_that_fail(path, monkeypatch):
    synced = os.fsync

    def fsync(number):
        def call(handle):
            if stat.S_ISDIR(os.fstat(handle).st_mode):
                raise OSError(number, os.strerror(number))
            synced(handle)

        return call

    monkeypatch.setattr(os, "fsync", fsync(errno.EINVAL))
    ts.save(path, A)
    open_before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    monkeypatch.setattr(os, "fsync", fsync(errno.EIO))
    refused(os.strerror(errno.EIO), ts.save, path, A)
    if open_before:
        assert len(os.listdir("/proc/self/fd")) == open_before
    monkeypatch.setattr(os, "fsync", synced)
    # A name without a folder is in the present one.
    monkeypatch.chdir(path.parent)
    ts.save("here.safetensors", A)
    assert ts.load("here.safetensors").tolist() == A.tolist()


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system does not tell the mask")
def test_the_mask_of_modes_is_read_and_not_set(path, monkeypatch):
    """Setting it and back would show in other threads."""
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", lambda *_: pytest.fail("it was set"))
            ts.save(path, A)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        os.umask(0o002)
        # The file that is replaced passes its mode on; a new one has that of the mask.
        ts.save(path, A)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        other = path.with_name("other.safetensors")
        ts.save(other, A)
        assert stat.S_IMODE(other.stat().st_mode) == 0o664
    finally:
        os.umask(before)


def test_saving_again_keeps_who_may_read(path):
    for mode in (0o600, 0o444, 0o660):
        ts.save(path, A)
        path.chmod(mode)
        ts.save(path, {"b": A})
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_names_that_are_taken_get_numbers(path):
    tree = {"a.b": A, "a": {"b": A + 1, "b#2": A + 2}, "x": {"y": A}, "x.y": A + 1, "__metadata__": A}
    ts.save(path, tree)
    assert sorted(name for name in header(path) if name != "__metadata__") == ["__metadata__#2", "a.b", "a.b#2", "a.b#3", "x.y", "x.y#2"]
    assert same(ts.load(path), tree) is None


def first_format(path, form, **arrays):
    """A file of the release before descriptions had a version."""
    rows, place, data = {}, 0, b""
    for name, array in arrays.items():
        rows[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [place, place + array.nbytes]}
        place, data = place + array.nbytes, data + array.tobytes()
    rows["__metadata__"] = {"tessera": json.dumps({"form": form})}
    text = json.dumps(rows).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_the_first_format(path):
    first_format(path, {"dict": {"b": {"list": ["x", {"value": 2}]}, "a": {"tuple": ["y", {"none": None}]}}}, x=A, y=A + 1)
    back = ts.load(path)
    assert list(back) == ["b", "a"] and back["b"][0].tolist() == A.tolist() and back["b"][1] == 2
    assert type(back["a"]) is tuple and back["a"][0].tolist() == (A + 1).tolist() and back["a"][1] is None
    for form in ({"dict": ["x"]}, {"list": {"a": "x"}}, {"value": ["x"]}, {"key": 3}, {"set": ["x"]}, {"list": ["x"], "tuple": []}, 3):
        first_format(path, form, x=A)
        refused("expected a part of a tree in its description", ts.load, path)
    first_format(path, {"list": ["x", "x"]}, x=A)
    refused("one of them twice", ts.load, path)
    first_format(path, {"list": ["x"]}, x=A, y=A)
    refused("`y` beside it", ts.load, path)


def test_differences_from_like_are_counted(path):
    ts.save(path, {"a": A, "b": A, "c": 1})
    refused("got none for `['d']` and 1 more, and `['a']` and 2 more beside them", ts.load, path, like={"d": A, "e": A})
    refused("got none for `['d']`", ts.load, path, like={"a": A, "b": A, "c": 1, "d": A})
    refused("got `['c']` beside them", ts.load, path, like={"a": A, "b": A})
    refused("to be a number or text of type float, got the int 1", ts.load, path, like={"a": A, "b": A, "c": 1.0})
    refused("to be f32 of shape [3], got the int 1", ts.load, path, like={"a": A, "b": A, "c": A})
    refused("to be a number or text of type int, got f32 of shape [3]", ts.load, path, like={"a": 1, "b": A, "c": 1})


def rewritten(path, change):
    """The file with another description, made by a function from the old one."""
    data = path.read_bytes()
    rows = header(path)
    note = json.loads(rows["__metadata__"]["tessera"])
    rows["__metadata__"]["tessera"] = json.dumps(change(note) or note)
    text = json.dumps(rows).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + int.from_bytes(data[:8], "little") :])


def test_classes_with_other_fields_are_named(path):
    net = trees.Net(A, [A], 8)
    ts.save(path, {"net": net})
    whole = path.read_bytes()
    assert same(ts.load(path), {"net": net}) is None
    static = type(net)._static[0]

    def other_static(note):
        row = next(row for row in note["tree"] if row["kind"] == "module")
        row["static"] = {"other" if name == static else name: value for name, value in row["static"].items()}

    rewritten(path, other_static)
    refused("with the fields", ts.load, path)
    path.write_bytes(whole)

    def no_static(note):
        next(row for row in note["tree"] if row["kind"] == "module")["static"] = {}

    rewritten(path, no_static)
    refused("with the fields", ts.load, path)
    path.write_bytes(whole)

    def unhashable(note):
        next(row for row in note["tree"] if row["kind"] == "module")["static"][static] = {"list": [1]}

    rewritten(path, unhashable)
    refused("static fields that can be compared", ts.load, path)


def test_an_array_that_the_file_does_not_have_is_named(path):
    ts.save(path, {"a": A, "b": A})

    def other(note):
        next(row for row in note["tree"] if row.get("name") == "b")["name"] = "c"

    whole = path.read_bytes()
    rewritten(path, other)
    refused("`b` beside it", ts.load, path)
    path.write_bytes(whole)

    def more(note):
        note["tree"][0]["keys"].append("z")
        note["tree"].append({"kind": "array", "name": "z", "dtype": "f32"})

    rewritten(path, more)
    refused("expected an array `z`", ts.load, path)
    refused("", ts.load, path, like={"a": A, "b": A, "z": A})


def test_a_file_that_shrinks_while_it_is_read_is_reported():
    data = (80).to_bytes(8, "little") + b"{}"
    from tessera.base.errors import Refusal

    with pytest.raises(Refusal, match="expected a header of 80 bytes, got 2"):
        safetensors.read_header(io.BytesIO(data), 1000)


def test_classes_of_dicts_from_elsewhere_are_made_without_their_code():
    made = class_names.dict_of(trees.Bag, {"b": 1, "a": 2}, False, "here")
    assert type(made) is trees.Bag and list(made.items()) == [("b", 1), ("a", 2)]


def test_which_dataclasses_are_their_fields():
    assert class_names._only_fields(Config) is True and class_names._only_fields(State) is True
    assert class_names._only_fields(trees.Checked) is False

    @dataclasses.dataclass(init=False)
    class Own:
        w: int

        def __init__(self, w):
            self.w = w + 1

    assert class_names._only_fields(Own) is False
    made = class_names.data_class(Config, {"width": 3, "colour": Colour.RED}, False, "here")
    assert made == Config(3)


def test_headers_and_numbers_at_their_ends():
    from tessera.base.errors import Refusal

    with pytest.raises(Refusal, match="expected a header of at most 2 bytes, got one that says it has 3"):
        safetensors.read_header(io.BytesIO((3).to_bytes(8, "little") + b"{}"), 10)
    assert safetensors.read_header(io.BytesIO((2).to_bytes(8, "little") + b"{}"), 10) == ({}, {}, 10)
    whole = safetensors._whole
    assert whole([0, (1 << 63) - 1]) and whole([]) and whole([1] * 64)
    assert not any(map(whole, ([-1], [1 << 63], [1] * 65, [True], [1.0], (1,), "1", None)))


def test_trees_are_nested_as_deep_as_they_are_read(path):
    tree = A
    for _ in range(500):
        tree = [tree]
    ts.save(path, tree)
    back, levels = ts.load(path), 0
    while isinstance(back, list):
        (back,), levels = back, levels + 1
    assert levels == 500 and back.tolist() == A.tolist()
    refused("a tree of at most 500 levels", ts.save, path, [tree])

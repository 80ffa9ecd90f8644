"""`ts.save` and `ts.load`: what comes back is what was saved, or saving is refused."""

import base64
import collections
import dataclasses
import functools
import json
import os
import random
import subprocess
import sys
import zlib
from typing import NamedTuple

import checkpoint_trees as trees
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from checkpoint_trees import Acted, Bag, Checked, Colour, Config, Net, Pair, Point, Scaled, State, same
from plans.fuzz import day

import tessera as ts
from tessera import nn

A = np.arange(3, dtype=np.float32)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


def round_trip(path, tree):
    ts.save(path, tree)
    back = ts.load(path)
    assert same(tree, back) is None, same(tree, back)
    assert ts.tree.structure(back) == ts.tree.structure(tree)
    return back


def refused(words, call, *args, **kwargs):
    with pytest.raises(ts.CheckpointError) as caught:
        call(*args, **kwargs)
    error = caught.value
    assert error.code == "E_CHECKPOINT" and words in error.message and error.help and error.file == __file__, str(error)
    return error


@pytest.mark.parametrize("tree", [
    A, 3, None, "text", {}, [], (), {"a": {}, "b": [], "c": ()},
    {"a": Point(A, [Point(1, None)])}, Point(A, 2.0), collections.OrderedDict(b=A, a=1), {"a": collections.OrderedDict(b=A, a=1)},
    Bag(a=A), {"x": Bag(a=A)}, collections.Counter(a=2), {0: A, 1: A}, {"a": {10: A, 9: A}}, {"0": A, 0: 2 * A},
    {"a.b": A, "a": {"b": 2 * A}}, {"a": {"b": A}, "a.b": A, "a.b#2": A}, {"a[0]": A, "a": [2 * A]}, {"['x']": A, "x": A},
    {"__metadata__": A}, {"__metadata__": {"format": A}}, {"": A, "a": {"": A}}, {"array": A, "": 2 * A}, {"w\ud800": A, "w?": A},
    {(1, "x"): A, None: 1, True: A, 2.5: 3, b"k": A}, [[A], (A, {"z": A, "a": A})],
    State(1, [A], "adam", Config(2, Colour.BLUE)), {"s": [State(A, None)]}, Net(A, [A, 2 * A], 8), {"net": Net(A, [])},
    Scaled(A, 2), {"s": Scaled({"w": A}, ("x", 1.5))}, Pair(A, Pair(1, A)), Checked(A),
    ts.random.key(7), {"k": ts.random.split(ts.random.key(7), 3)}, {"bare": ts.random.PRNGKey(1)},
    ts.xp.ones(3), {"weak": ts.xp.sqrt(2.0), "host": ts.xp.arange(4), "numpy": np.arange(4)},
    np.float32(1.5), {"s": np.int8(-3), "b": np.bool_(True), "h": ml_dtypes.bfloat16(2.5)},
], ids=lambda tree: type(tree).__name__)  # fmt: skip
def test_trees_come_back(path, tree):
    round_trip(path, tree)


def test_optimiser_states_come_back(path):
    round_trip(path, trees.optimiser_states())


def test_results_of_a_trained_module_come_back(path):
    net = ts.jit(lambda n: ts.tree.map(lambda p: p * 2, n))(Net(A, [A]))
    assert isinstance(round_trip(path, {"net": net})["net"].w, ts.Array)


@pytest.mark.parametrize("dtype", trees.DTYPES)
def test_dtypes_shapes_and_layouts_come_back(path, dtype):
    r = random.Random(dtype)
    arrays = [trees.some_array(r, dtype) for _ in range(24)]
    assert any(a.ndim == 0 for a in arrays) and any(a.size == 0 for a in arrays) and any(not a.flags.c_contiguous for a in arrays)
    back = round_trip(path, arrays)
    assert all(a.flags.writeable and a.flags.owndata and a.flags.aligned for a in back if a.dtype.isnative)
    like = ts.load(path, like=arrays)
    assert same(arrays, like) is None


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i2", ">u8", ">f2"])
def test_big_endian_arrays_are_written_right(path, dtype):
    x = np.arange(1, 7).astype(dtype).reshape(2, 3)
    round_trip(path, {"x": x})
    raw = path.read_bytes()
    # The file itself is little-endian, as other readers expect.
    assert raw.endswith(x.astype(x.dtype.newbyteorder("<")).tobytes())


def test_random_trees_come_back(path):
    seed = day()
    print(f"TESSERA_FUZZ_SEED={seed}")
    r = random.Random(seed)
    for number in range(100):
        tree = trees.some_tree(r)
        ts.save(path, tree)
        for back in (ts.load(path), ts.load(path, like=tree)) if tree is not None else (ts.load(path),):
            assert same(tree, back) is None, f"tree {number} of seed {seed}: {same(tree, back)}"


def test_the_bytes_of_a_file_follow_from_the_tree(path, tmp_path):
    tree = trees.some_tree(random.Random(5))
    ts.save(path, tree)
    ts.save(tmp_path / "again", tree)
    assert path.read_bytes() == (tmp_path / "again").read_bytes()


def head_of(path):
    raw = path.read_bytes()
    return json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])


def test_names_in_the_file_are_paths_with_dots(path):
    ts.save(path, {"net": Net(A, [A]), "opt": [Point(A, 1)], "model.w": A, "model": {"w": A}, 3: A})
    head = head_of(path)
    assert set(head) == {"__metadata__", "net.w", "net.layers.0", "opt.0.x", "model.w", "model.w#2", "3"}
    begins = [row["data_offsets"][0] for name, row in head.items() if name != "__metadata__"]
    assert all(b % 4 == 0 for b in begins) and (path.read_bytes().find(b"{") == 8)


# Refused when they are saved


class Wrong:
    pass


class Quantity(np.ndarray):
    """Means more than its elements."""


class Broken:
    """Cannot be made of what it is taken apart into."""


class Loud(dict):
    def __init__(self):
        super().__init__(a=A)


@dataclasses.dataclass
class Extra:
    w: object
    seed: dataclasses.InitVar[int]


class Word(str):
    pass


def _raise(*args):
    raise RuntimeError("words of the user's own")


ts.tree.register(Broken, lambda b: ((A,), None), _raise)


@functools.cache
def circular():
    made = []
    made.append([made])
    return made


@pytest.mark.parametrize("tree, words", [
    ({"m": [np.ma.masked_array(A, mask=[0, 1, 0])]}, "without a mask at `['m'][0]`, got a masked array"),
    ({"a": nn.gelu}, "at `['a']`, got the function `gelu`"),
    ({"a": {"b": Wrong()}}, "at `['a']['b']`, got a value of type Wrong"),
    ({"a": {1, 2}}, "at `['a']`, got a value of type set"),
    ({"a": Word("x")}, "at `['a']`, got a value of type Word"),
    ({"a": Colour.RED}, "at `['a']`, got a value of type Colour"),
    ({"a": np.zeros(2).view(Quantity)}, "at `['a']`, got a value of type Quantity"),
    ({"a": np.array(["x"])}, "of a dtype that Tessera has at `['a']`, got dtype str"),
    ({"a": np.array([object()])}, "got dtype object"),
    ({"a": np.zeros(2, np.complex64)}, "got dtype complex64"),
    ({"a": np.zeros(2, np.longdouble)}, "got dtype"),
    ({"a": np.zeros(2, "M8[s]")}, "got dtype datetime64"),
    ({"a": np.zeros(2, [("x", "f4")])}, "got dtype void"),
    # Ours of this name is another format: it has no infinities.
    ({"a": np.ones(2, ml_dtypes.float8_e4m3)}, "got dtype float8_e4m3"),
    ({Colour.RED: A}, "expected keys that are text or numbers at the top of the tree, got a value of type Colour"),
    ({"a": {Word("x"): A}}, "text or numbers at `['a']`"),
    ({"a": collections.defaultdict(list, x=A)}, "a file cannot hold what makes its missing values"),
    ({"a": Loud()}, "expected to make a `Loud` at `['a']`"),
    ({"a": Broken()}, "RuntimeError: words of the user's own"),
    (circular(), "got a deeper one, or one that holds itself"),
])  # fmt: skip
def test_what_cannot_come_back_is_refused_when_it_is_saved(path, tree, words):
    refused(words, ts.save, path, tree)
    assert os.listdir(path.parent) == []


def test_traced_values_are_not_saved(path):
    with pytest.raises(ts.CheckpointError, match=r"expected an array at `\['x'\]`, got a traced value"):
        ts.jit(lambda x: ts.save(path, {"x": x}))(A)


def test_two_classes_of_one_name_are_refused(path):
    one, other = collections.namedtuple("P", "x"), collections.namedtuple("P", "y")
    refused("got another at `['b']`", ts.save, path, {"a": one(A), "b": other(A)})


@pytest.mark.parametrize("target", [None, 3, "", "a\0b", object()])
def test_paths_that_are_none_are_refused(target):
    refused("expected the path of a file", ts.save, target, A)
    refused("expected the path of a file", ts.load, target)


def test_folders_and_pipes_are_no_files(tmp_path):
    refused("which is a folder", ts.save, tmp_path, A)
    refused("which is a folder", ts.save, f"{tmp_path}/new/", A)
    refused("which is a folder", ts.load, tmp_path)
    os.mkfifo(tmp_path / "pipe")
    refused("no file that is written once", ts.save, tmp_path / "pipe", A)
    refused("no file that is written once", ts.load, tmp_path / "pipe")


def test_what_is_missing_is_a_missing_file(tmp_path):
    for call in (lambda: ts.load(tmp_path / "none" / "x"), lambda: ts.save(tmp_path / "none" / "x", A), lambda: ts.load(tmp_path / "x")):
        with pytest.raises(FileNotFoundError) as caught:
            call()
        error = caught.value
        assert isinstance(error, ts.CheckpointError) and isinstance(error, RuntimeError) and error.code == "E_CHECKPOINT"
        assert error.filename.endswith("x") and error.errno == 2 and error.help


# Classes that a file names


def test_static_fields_that_are_code_come_from_like(path):
    ts.save(path, {"net": Acted(A)})
    refused("expected a function at `['net'].act`, which files do not hold", ts.load, path)
    back = ts.load(path, like={"net": Acted(0 * A)})
    assert back["net"].act is Acted(A).act and np.array_equal(back["net"].w, A)


def in_another_process(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=os.path.dirname(__file__), timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_process_finds_classes_that_it_has_imported_and_imports_none(path):
    tree = {"p": Point(A, 1), "s": State(A, None, "x", Config(4, Colour.BLUE)), "net": Net(A, []), "bag": Bag(a=A)}
    ts.save(path, tree)
    ts.save(f"{path}.checked", [Checked(A)])
    trees.calls.clear()
    script = f"""
import sys, numpy as np, tessera as ts
path = {str(path)!r}
try:
    ts.load(path)
except ts.CheckpointError as error:
    print(error.message.partition(": ")[2], "checkpoint_trees" in sys.modules)
import checkpoint_trees as t
back = ts.load(path)
print(type(back["p"]) is t.Point, back["s"].config, type(back["net"]).__name__, type(back["bag"]) is t.Bag, back["s"].name)
try:
    ts.load(path + ".checked")
except ts.CheckpointError as error:
    print(error.message.partition(": ")[2], t.calls)
print(type(ts.load(path + ".checked", like=[t.Checked(np.zeros(3, np.float32))])[0]) is t.Checked)
"""
    first, second, third, fourth = in_another_process(script).splitlines()
    assert first == "expected a class `checkpoint_trees:Point` at `['p']`, got a program without one False"
    assert second == "True Config(width=4, colour=<Colour.BLUE: 'b'>) Net True x"
    assert third.startswith("expected a class without `__init__`, `__post_init__` or setters of its own at `[0]`") and third.endswith("[]")
    assert fourth == "True"


def test_what_only_init_takes_is_no_part_of_a_class(path):
    ts.save(path, [Extra(A, 1)])
    back = ts.load(path)
    assert type(back[0]) is Extra and back[0].w.tolist() == A.tolist()


def test_classes_of_functions_come_back_where_they_were_saved(path):
    class Inner(NamedTuple):
        a: object

    @dataclasses.dataclass
    class Data:
        b: object

    ts.save(path, [Inner(A), Data(A)])
    back = ts.load(path)
    assert type(back[0]) is Inner and type(back[1]) is Data and np.array_equal(back[1].b, A)


def test_a_class_that_has_changed_is_refused(path, monkeypatch):
    ts.save(path, {"p": Point(A, 1), "net": Net(A, [])})
    monkeypatch.setattr(trees, "Point", collections.namedtuple("Point", "x z", module="checkpoint_trees"))
    refused("at `['p']` with the fields x, z, got x, y", ts.load, path)
    back = ts.load(path, like={"p": {"x": A, "y": 0}, "net": {"w": A, "layers": []}})
    assert back["p"]["y"] == 1 and np.array_equal(back["net"]["w"], A)


# Into a tree that is there


def test_like_gives_its_structure_and_the_numbers_of_the_file(path):
    ts.save(path, {"a": A, "n": 3, "lr": 0.5, "name": "x", "none": None, "p": [A, (2 * A,)]})
    like = collections.OrderedDict(p=(np.zeros(3, np.float32), [ts.xp.zeros(3)]), none=None, name="", lr=0.0, n=0, a=ts.ShapeDtypeStruct((3,), "f32"))
    back = ts.load(path, like=like)
    assert type(back) is collections.OrderedDict and list(back) == list(like) and (back["n"], back["lr"], back["name"]) == (3, 0.5, "x")
    assert isinstance(back["p"], tuple) and isinstance(back["p"][1][0], ts.Array) and type(back["p"][0]) is np.ndarray
    assert np.array_equal(back["p"][1][0], 2 * A) and isinstance(back["a"], ts.Array)


@pytest.mark.parametrize("like, words", [
    ({"a": A, "n": 3, "p": [A]}, "got `['extra']` beside them"),
    ({"a": A, "n": 3, "extra": A, "p": [A], "q": A, "r": [A]}, "got none for `['q']` and 1 more"),
    ({"a": A, "n": 3, "extra": A, "p": [A, A]}, "got none for `['p'][1]`"),
    ({"a": A}, "got `['n']` and 2 more beside them"),
    ({"a": A, "n": 3, "extra": A, "q": [A]}, "got none for `['q'][0]`, and `['p'][0]` beside them"),
    ({"a": A, "n": 3, "extra": A, "p": [np.zeros(4, np.float32)]}, "to be f32 of shape [4], got f32 of shape [3]"),
    ({"a": A.astype(np.float64), "n": 3, "extra": A, "p": [A]}, "expected `['a']` in"),
    ({"a": A.astype(np.int32), "n": 3, "extra": A, "p": [A]}, "to be i32 of shape [3], got f32 of shape [3]"),
    ({"a": A[:, None], "n": 3, "extra": A, "p": [A]}, "to be f32 of shape [3, 1], got f32 of shape [3]"),
    ({"a": 1.0, "n": 3, "extra": A, "p": [A]}, "to be a number or text of type float, got f32 of shape [3]"),
    ({"a": A, "n": 3.0, "extra": A, "p": [A]}, "of type float, got the int 3"),
    ({"a": A, "n": A, "extra": A, "p": [A]}, "to be f32 of shape [3], got the int 3"),
    ({"a": None, "n": 3, "extra": A, "p": [A]}, "got `['a']` beside them"),
    (A, "got none for `the tree`, and `['a']` and 3 more beside them"),
    ({"a": nn.gelu, "n": 3, "extra": A, "p": [A]}, "got the function `gelu`"),
])  # fmt: skip
def test_like_names_the_first_difference(path, like, words):
    ts.save(path, {"a": A, "n": 3, "extra": A, "p": [A]})
    refused(words, ts.load, path, like=like)


# Files of others, and of earlier releases


def foreign(path, arrays, **metadata):
    """As the package `safetensors` writes."""
    rows, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, (dtype, array) in arrays.items():
        rows[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(rows).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_files_of_other_programs_are_dicts_of_their_arrays(path):
    half = np.arange(2).astype(ml_dtypes.bfloat16)
    foreign(path, {"model.layers.0.w": ("F32", A), "model.b": ("BF16", half), "n": ("I64", np.array(3)), "e": ("U8", np.zeros((0, 4), np.uint8))}, format="pt")
    assert same(ts.load(path), {"e": np.zeros((0, 4), np.uint8), "model.b": half, "model.layers.0.w": A, "n": np.array(3)}) is None
    like = {"model": {"layers": [{"w": 0 * A}], "b": 0 * half}, "n": np.array(0), "e": np.zeros((0, 4), np.uint8)}
    back = ts.load(path, like=like)
    assert np.array_equal(back["model"]["layers"][0]["w"], A) and back["n"] == 3
    refused("got none for `['model']['layers'][0]['v']`, and `['model.layers.0.w']` beside them", ts.load, path,
            like=like | {"model": {"layers": [{"v": A}], "b": half}})  # fmt: skip
    refused("got two of one name", ts.load, path, like={"n": A, "a.b": A, "a": {"b": A}})
    foreign(path, {})
    assert ts.load(path) == {}


def test_the_package_safetensors_reads_and_writes_what_we_do(path):
    ts.save(path, {"a.b": A, "a": {"b": 2 * A}, "s": "text"})
    assert np.array_equal(safetensors.numpy.load_file(path)["a.b#2"], 2 * A)
    safetensors.numpy.save_file({"w": A}, path)
    assert same(ts.load(path), {"w": A}) is None


#: Written by the release before this format.
EARLIER = {
    "plain": "c-obcL2JS=7>0E?+|MXE?GU6*(-OQWg9$s#+fJ*LR8v-Ftu%3)h_IjLPg|3Ib#12;bLf}6d7mV2`R;oiGj=EpQ=#~RD;|buxI;=vDRPd6XcwS`+OCBR(9kLtd|>NYfMS;f2wPflN+pUNzm%fNl=!q#oR%Wsm}(tU5Y{vlBy~V#mC8avQ@2zT@Fu{%i|ybu%NMeC$KK#sp2EWy$y`+#pe_?>q*sV_OfxfZ1U9u<F9rCb$`}3m=HOdptI}4=5Ky$@(N-{aHWC~QvqnmD!3qo?e7P}~xki?4IY62MNVRuWz7b~UtGzSj(|s`tPRG`5VLG8`iYK2UjN}{Ft5<i1k!hVQj-^ntkZero%y7<m?k`3tc8TVWQLmw0f~l=(QKu#i%El*NOKkvoGv>r4HI$qNSqV0BK1>|{0?DvvlE$oYBMTqtv->~m5$u`28`C=b!Y*JGd%nh!>o6aCMaI2lSsfT%s5emiP;V<k=P)Wh--nSkw#VJxUH=Cl3OQ{",  # noqa: E501
    "array": "c-k$EF$%*l5CkuIiP>63OhASHkt#Ccz!GVUgH9=o&>!;ToUB|mI}3YX8dnj*77MRjI0U$g5=CNWI8=|d9PcO|ZqmRx^U>MkGh2^ll+vEJ;r?|~Ke(@*1G@E?EezzvJw5M>!TE7dNn#OIH)EI9CZY>n=?CXPFDC",
    "other": "c-m!<O$x#=5Ju}w%B)<3QqxdEH|_+_U_uBqMWKH*5nD>YBYOmsRH52|z|3PF-;n(-3N?cejWV*7MhXGN3`S|K1_=es3`#TgN;4>8H?+zm58pGWGRy$ErccI&+~^lfN%~pJ2?Oh4)eVhj?Y*w8L(7&=3jr?cloLRpuhLJK14j@p>Z(dBqa8{S<xUJY{D>J|i5TInN)aYJgpO<TOxNO8!vx`+TO0dYe(QCNqUYax1KAf{o&",
}  # fmt: skip


def test_files_of_the_release_before_still_load(path):
    def earlier(name):
        path.write_bytes(zlib.decompress(base64.b85decode(EARLIER[name])))
        return path

    plain = {
        "a": [np.array([1.5, -0.0], np.float32), ts.array([1.5, 2.5], "bf16")], "b": (np.arange(3), np.array(7, np.int64)), "c": None,
        "e": np.zeros((0, 3)), "f4": ts.array([0.5, 2.0], "fp4_e2m1"), "f8": ts.array([0.5, 2.0], "fp8_e4m3"), "i4": ts.array([-8, 7], "i4"),
        "key": ts.random.key(5), "n": 3, "s": "word", "t": True, "x": float("nan"),
    }  # fmt: skip
    assert same(ts.load(earlier("plain")), plain) is None
    assert same(ts.load(path, like=plain), plain) is None
    assert same(ts.load(earlier("array")), np.arange(3, dtype=np.uint16)) is None
    # Of trees that it had no words for it kept the arrays alone.
    arrays = {"net.w": np.ones((2, 2), np.float32), "p.x": np.zeros(2, np.int8), "p.y.0": np.ones(1)}
    assert same(ts.load(earlier("other")), arrays) is None
    like = {"net": {"w": np.zeros((2, 2), np.float32)}, "p": Point(np.ones(2, np.int8), [np.zeros(1)])}
    assert same(ts.load(path, like=like), {"net": {"w": arrays["net.w"]}, "p": Point(arrays["p.x"], [arrays["p.y.0"]])}) is None

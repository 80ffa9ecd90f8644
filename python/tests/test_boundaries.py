"""Where Python's values enter: whatever is wrong with them is an error of ours, and nothing ends the process."""

import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest

import foreign_arrays
import tessera as ts
from foreign_arrays import CudaInterface, Foreign
from kernels import saxpy
from tessera import _core

SECONDS = float(os.environ.get("TESSERA_FUZZ_SECONDS", 3))
SEED = int(os.environ.get("TESSERA_FUZZ_SEED", time.time() // 86400))


@ts.kernel
def double(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.program_id(0) * 4
    y[i : i + 4] = x[i : i + 4] * 2.0
    return y


@ts.kernel
def anything(x):
    x[0] = 1.0


def test_what_a_foreign_array_says_is_read():
    eight = np.arange(8, dtype=np.float32)
    for fields, expected in [
        ({}, eight),
        ({"version": (1, 0)}, eight),
        ({"version": (1, 3), "strides": [2]}, 2 * eight),
        ({"byte_offset": 4}, eight + 1),
        ({"byte_offset": 28, "strides": [-1]}, 7 - eight),
        ({"strides": [0]}, 0 * eight),
        ({"shape": [0], "data": 0}, eight[:0]),
        ({"shape": [0], "data": 0, "strides": [2**63 - 1], "byte_offset": 2**64 - 1}, eight[:0]),
    ]:
        assert (double(Foreign(**fields)) == 2 * expected).all(), fields


WRONG = {
    "no axes": ({"ndim": -1}, "expected 0 to 64 axes, got -1"),
    "many axes": ({"ndim": 2**31 - 1}, "expected 0 to 64 axes"),
    "65 axes": ({"ndim": 65, "shape": [1] * 65}, "expected 0 to 64 axes, got 65"),
    "no shape": ({"shape": None}, "a null pointer"),
    "no data": ({"data": 0}, "a null pointer"),
    "negative extent": ({"shape": [-1]}, "at least 0, got -1"),
    "least extent": ({"shape": [-(2**63)]}, "at least 0"),
    "huge extent": ({"shape": [2**62]}, "2^63 bytes"),
    "huge product": ({"shape": [2**40, 2**40], "ndim": 2}, "2^63 bytes"),
    "huge product of repeated elements": ({"shape": [2**40, 2**40], "strides": [0, 0], "ndim": 2}, "2^63 bytes"),
    "huge stride": ({"strides": [2**62]}, "strides"),
    "huge negative stride": ({"strides": [-(2**62)]}, "strides"),
    "stride out of memory": ({"strides": [2**59]}, "addresses of memory"),
    "stride below memory": ({"strides": [-(2**50)]}, "addresses of memory"),
    "offset": ({"byte_offset": 2**64 - 1}, "offset"),
    "other offset": ({"byte_offset": 2**63}, "offset"),
    "lanes": ({"lanes": 4}, "4 lanes"),
    "no lanes": ({"lanes": 0}, "0 lanes"),
    "bits": ({"bits": 33}, "33 bits"),
    "no bits": ({"bits": 0}, "0 bits"),
    "code": ({"code": 200}, "code 200"),
    "version": ({"version": (2, 0)}, "DLPack of version 1, got 2.0"),
    "device number": ({"device_type": 2, "device_id": -1}, "a number of a device"),
    "name": ({"name": b"another"}, "capsule of a known kind"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("kernel", [double, anything], ids=["annotated", "any"])
def test_a_wrong_description_is_refused(kernel, what):
    fields, why = WRONG[what]
    versions = [{}, {"version": (1, 1)}] if "version" not in fields and "name" not in fields else [{}]
    for version in versions:
        with pytest.raises(ts.LaunchError, match=why.replace("^", r"\^")) as e:
            kernel(Foreign(**fields, **version))
        assert e.value.code == "E_LAUNCH_BAD_LAYOUT"


def test_a_read_only_capsule_is_not_written():
    with pytest.raises(ts.PrivilegeError):
        anything(Foreign(version=(1, 0), flags=1))


class Raises:
    def __init__(self, device=foreign_arrays.HOST, capsule=None):
        self.device, self.capsule = device, capsule

    def __dlpack_device__(self):
        return self.device() if callable(self.device) else self.device

    def __dlpack__(self, **_):
        return self.capsule() if callable(self.capsule) else self.capsule


def fail():
    raise ValueError("no")


@pytest.mark.parametrize("device", ["cpu", None, (1,), (2**40, 0), fail, (1, 0)], ids=lambda value: getattr(value, "__name__", str(value)))
@pytest.mark.parametrize("capsule", [None, 3, object(), fail], ids=["none", "number", "object", "fails"])
def test_an_object_that_fails_to_describe_itself_is_refused(device, capsule):
    with pytest.raises(ts.LaunchError):
        double(Raises(device, capsule))


def test_an_interrupt_inside_an_object_is_no_error_of_ours():
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        double(Raises(interrupt))


@pytest.mark.parametrize(
    "fields",
    [
        {"typestr": ...}, {"typestr": 3}, {"typestr": ""}, {"typestr": "<f"}, {"typestr": ">f4"}, {"typestr": "<c8"},
        {"typestr": "<f4\0"}, {"typestr": "|O8"}, {"typestr": "\u00e9" * 9},
        {"shape": ...}, {"shape": 8}, {"shape": (-1,)}, {"shape": (2**62,)}, {"shape": (2**70,)}, {"shape": ("8",)},
        {"shape": (2**40, 2**40)}, {"shape": (1.5,)}, {"shape": (1,) * 65},
        {"strides": (2**62,)}, {"strides": (-(2**62),)}, {"strides": (4, 4)}, {"strides": (2**80,)}, {"strides": "4"},
        {"data": ...}, {"data": (0, False)}, {"data": (-1, False)}, {"data": (2**64 - 4, False)}, {"data": (2**80, False)},
        {"data": (1 << 20,)}, {"data": 1 << 20}, {"data": (1 << 20, "no")}, {"mask": [1]}, {"stream": 0}, {"stream": -7},
    ],
    ids=repr,
)
def test_a_wrong_cuda_interface_is_refused(fields):
    with pytest.raises(ts.LaunchError) as e:
        double(CudaInterface(**fields))
    assert e.value.code == "E_LAUNCH_BAD_LAYOUT", str(e.value)


def test_an_interface_that_is_no_dict_is_refused():
    class Odd:
        __cuda_array_interface__ = 3

    with pytest.raises(ts.LaunchError):
        double(Odd())


def test_numpy_views_with_any_strides_are_refused_and_not_computed_with():
    strided = np.lib.stride_tricks.as_strided
    for shape, strides in [((8,), (2**62,)), ((8,), (-(2**62),)), ((3, 3), (2**62, -(2**62)))]:
        view = strided(np.zeros(8, np.float32), shape, strides)
        for kernel in (double, anything):
            with pytest.raises(ts.LaunchError, match="addresses of memory"):
                kernel(view)


def test_random_descriptions_are_read_or_refused():
    """In another process: one that ends is a failure, whatever it ends by."""
    code = """
import random, sys, time, warnings
import numpy as np
import tessera as ts
from tessera import _core
from foreign_arrays import CudaInterface, Foreign, NUMBERS, wrong_fields
from test_boundaries import anything, double
seed, seconds = int(sys.argv[1]), float(sys.argv[2])
rng, end = random.Random(seed), time.monotonic() + seconds
counts = {"read": 0, "refused": 0}
number = 0
while time.monotonic() < end:
    number += 1
    fields, there = wrong_fields(rng)
    print(f"{seed}:{number} {fields}", file=sys.stderr, flush=True)
    try:
        if rng.random() < 0.3:
            odd = {k: rng.choice([tuple(rng.choice(NUMBERS) for _ in range(rng.randrange(4))), "<f4", (rng.choice(NUMBERS), True), None, 1.5])
                   for k in ("shape", "strides", "typestr", "data", "stream") if rng.random() < 0.5}
            double(CudaInterface(**odd))
        elif there and len(fields["shape"]) == 1:
            double(Foreign(**fields))
        elif not there:
            # A consistent description of other memory cannot be distinguished from a valid one: it is only described.
            _core.debug_describe(Foreign(**fields))
        counts["read"] += 1
    except ts.InternalError:
        raise
    except ts.TesseraError:
        counts["refused"] += 1
print(counts)
"""
    print(f"descriptions of arrays: SEED={SEED}")
    here = os.path.dirname(__file__)
    path = os.pathsep.join([here, os.path.dirname(os.path.dirname(ts.__file__))])
    done = subprocess.run(
        [sys.executable, "-c", code, str(SEED), str(SECONDS)],
        capture_output=True, text=True, timeout=SECONDS + 60, env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, f"SEED={SEED}\n" + done.stderr[-3000:]


def panic():
    _core.debug_panic("a secret of nobody's")


def test_a_panic_anywhere_is_an_internal_error_with_a_report(monkeypatch, capfd):
    monkeypatch.setenv("HUSH_HUSH", "hunter2")
    monkeypatch.setenv("TESSERA_VERIFY", "1")
    with pytest.raises(ts.InternalError) as e:
        panic()
    text = str(e.value)
    assert e.value.code == "E_UNKNOWN" and "a secret of nobody's" in text and "report" in text
    path = next(word for word in text.split() if "tessera-report-" in word)
    assert os.stat(path).st_mode & 0o777 == 0o600
    report = open(path, encoding="utf-8").read()
    os.unlink(path)
    assert f"Tessera {ts.__version__}" in report and "Python 3" in report and sys.platform in report.lower()
    assert "debug_panic" in report and "in panic" in report and "TESSERA_VERIFY='1'" in report
    assert "report.rs" in report, "the backtrace"
    assert "hunter2" not in report and "HUSH" not in report
    assert capfd.readouterr().err == ""


def test_a_panic_of_a_call_reports_what_kinds_of_arguments_it_had(monkeypatch):
    saxpy.cache_clear()
    monkeypatch.setenv("TESSERA_DEBUG_PANIC", "1")
    with pytest.raises(ts.InternalError) as e:
        saxpy(np.full(3, 1234.5, np.float32), np.zeros(3, np.float32), 2.0)
    path = next(word for word in str(e.value).split() if "tessera-report-" in word)
    report = open(path, encoding="utf-8").read()
    os.unlink(path)
    assert "ndarray of float32, shape (3,), strides (4,)" in report and "float 2.0" in report
    assert "1234.5" not in report and "test_boundaries.py" in report


def test_a_report_that_cannot_be_written_leaves_the_error(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/nowhere/at/all")
    with pytest.raises(ts.InternalError, match="please report it"):
        panic()


@pytest.mark.parametrize("rank", [31, 32, 33, 64])
def test_the_most_axes_are_named(rank, monkeypatch):
    names = ", ".join(f'"a{i}"' for i in range(rank))
    zeros = ", ".join(["0"] * rank)
    source = f"def first(x: ts.Tensor[{names}, ts.f32]):\n    x[{zeros}] = 1.0\n    return x\n"
    first = _kernel(source)
    x = np.zeros((1,) * rank, np.float32)
    monkeypatch.setenv("TESSERA_BACKEND", "cpu")
    if rank <= 31:
        assert first(x).sum() == 1
    else:
        with pytest.raises(ts.UnsupportedError, match=f"expected at most 31 axes of `x`, got {rank}"):
            first(x)
    monkeypatch.setenv("TESSERA_BACKEND", "interp")
    assert first(np.zeros((1,) * rank, np.float32)).sum() == 1


def _kernel(source):
    import linecache

    name = f"<boundaries {hash(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space = {"ts": ts}
    exec(compile(source, name, "exec"), space)
    return ts.kernel(space["first"])


@pytest.mark.parametrize("rank", [31, 32, 33, 64])
def test_functions_of_arrays_with_many_axes_run_or_are_refused(rank):
    x = np.arange(4, dtype=np.float32).reshape((1,) * (rank - 2) + (2, 2))
    try:
        assert (ts.jit(lambda x: x.T + 1.0)(x) == x.T + 1).all()
    except ts.UnsupportedError as e:
        assert "axes" in str(e)


def squares(dim):
    @ts.kernel
    def square(x: ts.Tensor[dim, ts.f32], y: ts.Out[dim, ts.f32]):
        i = ts.tile.program_id(0) * 4
        y[i : i + 4] = x[i : i + 4] * x[i : i + 4]
        return y

    return square


@pytest.mark.parametrize(
    "dim, fit, wrong, why",
    [
        ("n*n", (0, 1, 4, 9), (2, 8, 10), "expected `n\\*n` to be a square"),
        ("n*n*n", (0, 1, 8), (4, 9), "a cube"),
        ("2*n", (0, 2, 8), (1, 7), "a multiple of 2"),
        ("n*m", (0, 1, 7), (), ""),
    ],
)
def test_products_have_sizes_that_their_factors_give(dim, fit, wrong, why):
    square = squares(dim)
    for n in fit:
        x = np.arange(n, dtype=np.float32)
        assert (square(x) == x * x).all()
    for n in wrong:
        with pytest.raises(ts.LaunchError, match=why):
            square(np.zeros(n, np.float32))


def test_two_products_agree_on_their_factors():
    @ts.kernel
    def both(x: ts.Tensor["n*n", ts.f32], y: ts.Tensor["n*n*n", ts.f32]):
        x[0] = y[0]

    both(np.zeros(4, np.float32), np.ones(8, np.float32))
    with pytest.raises(ts.LaunchError, match="expected `n\\*n\\*n` to be 8 along axis 0, got 27"):
        both(np.zeros(4, np.float32), np.ones(27, np.float32))


@pytest.mark.parametrize("dim", [2**63, 2**70, 10**5000, "9223372036854775808", "4294967296*4294967296", "9" * 5000], ids=range(6))
def test_a_size_beyond_64_bits_is_refused(dim):
    with pytest.raises(ts.ShapeError, match="below 2\\*\\*63"):
        ts.Tensor[dim, ts.f32]


@pytest.mark.parametrize("dim", ["\u00b2", "n**2", "", "n*", "-1", "0x10", "1e3", "n n"])
def test_what_is_no_dimension_is_refused(dim):
    with pytest.raises(ts.KernelTypeError):
        ts.Tensor[dim, ts.f32]


@pytest.mark.parametrize("name", ["TESSERA_CHECK", "TESSERA_BACKEND", "TESSERA_CACHE", "TESSERA_OFF", "TESSERA_TUNE"])
def test_an_environment_that_is_no_text_is_refused(name, monkeypatch):
    x = np.ones(8, np.float32)
    double(x)
    monkeypatch.setitem(os.environ, name, "\udcff\udcfe")
    for call in (lambda: double(x), lambda: ts.jit(lambda x: x - 0.25)(x), double.jit):
        with pytest.raises(ts.LaunchError, match=f"expected text in {name}, got bytes that are not UTF-8"):
            call()
    monkeypatch.delitem(os.environ, name)
    assert (double(x) == 2).all()


def test_a_directory_may_have_any_name(monkeypatch, tmp_path):
    monkeypatch.setenv("TESSERA_CACHE_DIR", os.fsdecode(bytes(tmp_path / "cache") + b"\xff"))
    _core.cache_put("a", "a", b"code")
    assert [name for name in os.listdir(bytes(tmp_path)) if name == b"cache\xff"]


def test_an_empty_grid_leaves_zeros(monkeypatch):
    """Memory that is handed out without being cleared would show."""
    empty = np.empty

    def junk(*args, **kwargs):
        made = empty(*args, **kwargs)
        made[...] = 77
        return made

    monkeypatch.setattr(np, "empty", junk)

    @ts.kernel
    def fixed(x: ts.Tensor["n", ts.f32], y: ts.Out[4, ts.f32]):
        y[0:4] = x[0:4]
        return y

    x = np.ones(8, np.float32)
    for _ in range(2):  # the second is replayed
        assert (double[(0,)](x) == 0).all() and (double[(0, 1)](x) == 0).all() and (fixed[(0,)](x) == 0).all()
        assert (double[(1,)](x) == [2] * 4 + [0] * 4).all()
        assert (ts.jit(lambda x: double[(0,)](x * 2.0))(x) == 0).all()
        assert (double.jit()[(0,)](x) == 0).all()
    given = np.full(8, 5, np.float32)
    assert (double[(0,)](x, given) == 5).all(), "an array of the caller's stays as it is"


@pytest.mark.parametrize(
    "make",
    [
        lambda y: ts.xp.zeros((2**40, 2**40)).sum() + y,
        lambda y: ts.xp.broadcast_to(y, (2**62, 8)).sum(),
        lambda y: ts.xp.arange(2**62)[:8] + y,
        lambda y: ts.xp.ones((2**40, 0, 2**40)).sum() + y,
    ],
    ids=range(4),
)
def test_arrays_that_nothing_can_hold_are_refused(make):
    with pytest.raises(ts.ResourceError, match=r"at most 2\^56 bytes"):
        ts.jit(make)(np.ones(8, np.float32))


def test_an_object_with_odd_attributes_is_no_function():
    class Odd:
        api_name = 3

    with pytest.raises(ts.LaunchError):
        double(Odd())


def test_a_grid_without_end_can_be_interrupted():
    code = """
import signal, numpy as np
from test_boundaries import double
signal.alarm(1)
signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    double[(2**40,)](np.ones(8, np.float32))
except KeyboardInterrupt:
    print("interrupted")
"""
    here = os.path.dirname(__file__)
    path = os.pathsep.join([here, os.path.dirname(os.path.dirname(ts.__file__))])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": path, "TESSERA_BACKEND": "cpu"},
    )
    assert done.stdout == "interrupted\n", done.stderr

"""Calls that do not fit are refused before anything is written."""

import numpy as np
import pytest
import tessera as ts
from kernels import gemm, saxpy, shift


def f32(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def readonly(a):
    a.flags.writeable = False
    return a


BASE = f32(40)


@pytest.mark.parametrize("args, kwargs, kind, code, words", [
    ((f32(8), f32(8)), {}, ts.LaunchError, "E_ARGUMENT", ["alpha"]),
    ((f32(8), f32(8), 1, 2), {}, ts.LaunchError, "E_ARGUMENT", ["at most 3", "got 4"]),
    ((f32(8), f32(8), 1), {"beta": 1}, ts.LaunchError, "E_ARGUMENT", ["beta"]),
    ((f32(8), f32(8), 1), {"alpha": 1}, ts.LaunchError, "E_ARGUMENT", ["alpha", "twice"]),
    ((f32(2, 4), f32(8), 1), {}, ts.LaunchError, "E_LAUNCH_INVALID_SHAPE", ["rank 1", "rank 2", "(2, 4)"]),
    ((f32(8), f32(7), 1), {}, ts.LaunchError, "E_LAUNCH_INVALID_SHAPE", ["`x`", "`y`", "8", "7"]),
    ((np.array(1, np.float32), f32(8), 1), {}, ts.LaunchError, "E_LAUNCH_INVALID_SHAPE", ["rank 0"]),
    ((f32(8).astype("f8"), f32(8), 1), {}, ts.KernelTypeError, "E_TYPE", ["f32", "f64"]),
    (([1.0], f32(8), 1), {}, ts.LaunchError, "E_ARGUMENT", ["array", "list"]),
    ((f32(8), f32(8), "one"), {}, ts.LaunchError, "E_ARGUMENT", ["alpha", "one"]),
    ((f32(8), f32(8), 1e300), {}, ts.LaunchError, "E_ARGUMENT", ["range of f32"]),
    ((f32(8).astype(">f4"), f32(8), 1), {}, ts.LaunchError, "E_LAUNCH_BAD_LAYOUT", ["byte order"]),
    ((f32(8).astype(object), f32(8), 1), {}, ts.LaunchError, "E_LAUNCH_BAD_LAYOUT", ["objects"]),
    ((f32(8), readonly(f32(8)), 1), {}, ts.PrivilegeError, "E_READ_ONLY", ["`y`", "read-only"]),
    ((BASE[:8], BASE[4:12], 1), {}, ts.PrivilegeError, "E_PRIVILEGE", ["`x`", "`y`", "overlap"]),
    ((BASE[:8], BASE[7::-1], 1), {}, ts.PrivilegeError, "E_PRIVILEGE", ["overlap"]),
    ((f32(8), np.lib.stride_tricks.as_strided(f32(9), (8,), (2,)), 1), {}, ts.PrivilegeError, "E_PRIVILEGE", ["share memory"]),
])
def test_a_call_that_does_not_fit_is_refused_and_leaves_the_arrays(args, kwargs, kind, code, words):
    before = [a.tobytes() if isinstance(a, np.ndarray) and a.dtype != object else None for a in args]
    with pytest.raises(kind) as e:
        saxpy(*args, **kwargs)
    error = e.value
    assert error.code == code and error.file.endswith("kernels.py") and error.line and error.column
    assert all(word in str(error) for word in words), str(error)
    after = [a.tobytes() if isinstance(a, np.ndarray) and a.dtype != object else None for a in args]
    assert before == after


def test_a_wrong_grid_is_refused():
    with pytest.raises(ts.LaunchError, match="integer in the grid"):
        saxpy["all"](f32(4), f32(4), 1)
    with pytest.raises(ts.LaunchError, match="one to three axes"):
        saxpy[1, 1, 1, 1](f32(4), f32(4), 1)
    with pytest.raises(ts.LaunchError, match="at least 0"):
        saxpy[-1](f32(4), f32(4), 1)


def test_views_that_do_not_share_an_element_may_interleave():
    base = f32(40)
    expected = base[1::2] + 2 * base[0::2]
    saxpy(base[0::2], base[1::2], 2)
    assert (base[1::2] == expected).all()


def test_one_array_may_be_read_and_written_where_the_kernel_is_pointwise():
    x = f32(8)
    saxpy(x, x, 1)
    assert (x == 2 * f32(8)).all()
    with pytest.raises(ts.PrivilegeError, match="same index"):
        shift(x, x)


@pytest.mark.parametrize("view", [slice(None, None, -1), slice(None, None, 3), slice(5, 5), slice(3, 17, 2)])
def test_strided_arrays_are_used_in_place(view):
    x, y = f32(20), f32(20)[::-1].copy()
    expected = y.copy()
    expected[view] = 3 * x[view] + y[view]
    out = y[view]
    assert saxpy(x[view], out, 3.0) is out
    assert (y == expected).all()


def test_transposed_and_unaligned_arrays_work():
    a, b = ts.array(f32(5, 3), "bf16"), ts.array(f32(7, 5), "bf16")
    c = np.zeros((7, 3), np.float32).T
    gemm(a.T, b.T, c)
    assert (c == a.T.astype("f4") @ b.T.astype("f4")).all()
    raw = np.zeros(33, np.uint8)
    y = raw[1:].view(np.float32)
    saxpy(np.ones(8, np.float32), y, 2)
    assert (y == 2).all()


def test_scalars_take_python_and_numpy_numbers():
    for alpha in (2, 2.0, np.float32(2), np.int64(2), True + 1, ts.array(2.0, "bf16")[()]):
        y = np.zeros(3, np.float32)
        saxpy(np.ones(3, np.float32), alpha=alpha, y=y)
        assert (y == 2).all()


def test_integers_are_range_checked():
    @ts.kernel
    def fill(x: ts.Tensor["n", ts.i32], value: ts.u8):
        i = ts.tile.linear_id()
        x[i] = value

    x = np.zeros(3, np.int32)
    fill(x, 255)
    assert (x == 255).all()
    for bad in (256, -1, 1.5, 2**200):
        with pytest.raises(ts.LaunchError):
            fill(x, bad)
    assert (x == 255).all()


class Shared:
    """An array that only DLPack knows."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, stream=None, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


def test_dlpack_arrays_are_used_in_place():
    y = np.ones(6, np.float32)
    out = Shared(y[::2])
    assert saxpy(Shared(f32(3)), out, 1) is out
    assert y.tolist() == [1, 1, 2, 1, 3, 1]
    with pytest.raises(ts.PrivilegeError, match="read-only"):
        saxpy(f32(3), Shared(readonly(f32(3))), 1)


def test_arrays_on_another_device_are_named():
    with pytest.raises(ts.LaunchError, match="`x` is on hip:1") as e:
        saxpy(Shared(f32(3), (10, 1)), f32(3), 1)
    assert e.value.code == "E_LAUNCH_DEVICE_MISMATCH"


@pytest.mark.jax
def test_jax_arrays_are_read_without_a_copy():
    import jax.numpy as jnp

    y = np.ones(3, np.float32)
    saxpy(jnp.arange(3, dtype="float32"), y, 1)
    assert y.tolist() == [1, 2, 3]
    with pytest.raises(ts.PrivilegeError):
        saxpy(y, jnp.arange(3, dtype="float32"), 1)


def test_an_interrupt_ends_a_long_launch():
    import signal

    @ts.kernel
    def spin(x: ts.Tensor["n", ts.f32], rounds: ts.i64):
        i = ts.tile.linear_id()
        for k in range(rounds):
            x[i] = x[i] + 1.0

    def stop(*_):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            spin(np.zeros(1, np.float32), 10**10)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


@pytest.mark.parametrize("name", ["interp", "cpu", "ptx-emulated:sm_80"])
def test_elements_between_multiples_of_their_size(name):
    @ts.kernel
    def twice(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        y[i] = x[i] * 2.0
        return y

    misaligned = np.zeros(17, np.uint8)[1:].view(np.float32)
    misaligned[:] = [1, 2, 3, 4]
    assert misaligned.ctypes.data % 4
    ts.runtime.select_backend(name)
    try:
        if name.startswith("ptx"):
            for x, y, which in ((misaligned, f32(4), "x"), (f32(4), misaligned, "y")):
                with pytest.raises(ts.LaunchError) as caught:
                    twice(x, y)
                assert caught.value.code == "E_LAUNCH_BAD_LAYOUT" and f"`{which}`: expected f32 elements" in str(caught.value)
                assert f"`{which} = {which}.copy()`" in caught.value.help
            misaligned = misaligned.copy()
        assert twice(misaligned, f32(4)).tolist() == [2, 4, 6, 8]
        # No element, no address.
        assert twice(misaligned[:0], f32(0)).size == 0
    finally:
        ts.runtime.select_backend(None)

"""Messages that named the wrong thing: what they say, and what they say to write."""

import numpy as np
import pytest
from oracle.fuzz import load

import tessera as ts


def message(code, f, *args, **kwargs):
    with pytest.raises(ts.TesseraError) as caught:
        f(*args, **kwargs)
    assert caught.value.code == code, caught.value
    return str(caught.value)


def test_items_of_a_list_that_overlap():
    k = load("""
@ts.kernel
def k(xs: list[ts.Tensor["n", ts.f32]]):
    i = ts.tile.linear_id()
    xs[0][i] = xs[1][i] * 2.0
    xs[1][i] = 0.0
""")["k"]
    x = np.zeros(8, np.float32)
    text = message("E_PRIVILEGE", k, [x[:5], x[3:]])
    assert "`xs[0]` and `xs[1]`" in text and "xs[1].copy()" in text and "xs.0" not in text


def test_a_count_of_different_elements_is_one_error():
    text = message("E_RAGGED", load, """
@ts.kernel
def k(x: ts.Tensor["n", ts.f32], y: ts.Out[1, ts.i32]):
    y[0] = ts.tile.unique_count(x[0:16])
""")
    assert text.count("E_RAGGED") == 1 and "a count of different elements" in text and "a sum" not in text


def test_numbers_are_shown_with_their_point():
    whole = load("""
@ts.kernel
def k(x: ts.Tensor["n", ts.f32], BLOCK: int = 4):
    i = ts.tile.linear_id()
    x[i] = x[i] + BLOCK
""")["k"]
    assert "got the number 1.0" in message("E_ARGUMENT", whole, np.zeros(4, np.float32), BLOCK=1.0)
    scalar = load("""
@ts.kernel
def k(x: ts.Tensor["n", ts.f32], by: ts.i32):
    i = ts.tile.linear_id()
    x[i] = x[i] + ts.tile.cast(by, ts.f32)
""")["k"]
    text = message("E_ARGUMENT", scalar, np.zeros(4, np.float32), 1.5)
    assert "float dtype" in text and "wider" not in text


def test_a_dict_for_a_list():
    k = load("""
@ts.kernel
def k(xs: list[ts.Tensor["n", ts.f32]], y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = xs[0][i]
""")["k"]
    text = message("E_ARGUMENT", k, {"a": np.zeros(2, np.float32)})
    assert "list(xs.values())" in text
    assert "`[xs]`" in message("E_ARGUMENT", k, np.float32(1))


def test_a_list_that_is_returned():
    text = message("E_GRAPH_INVALID", load, """
@ts.kernel
def k(xs: list[ts.Tensor["n", ts.f32]]):
    i = ts.tile.linear_id()
    xs[0][i] = 1.0
    return xs
""")
    assert "a list of arrays" in text and "tuple of" not in text


@pytest.mark.parametrize("word,meant", [("nearest", "rne"), ("trunc", "rtz"), ("ceil", "up"), ("floor", "down")])
def test_other_words_for_roundings(word, meant):
    text = message("E_ARGUMENT", load, f"""
@ts.kernel
def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.bf16]):
    i = ts.tile.linear_id()
    y[i] = ts.tile.cast(x[i], ts.bf16 @ ts.round("{word}"))
""")
    assert f'ts.round("{meant}")' in text


RECORD = """
import dataclasses

@dataclasses.dataclass(frozen=True)
class Pair:
    x: ts.Tensor["n", ts.f32]
    by: ts.f32

    def twice(self, i):
        return self.x[i] * 2.0

@ts.kernel
def k(p: Pair, y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    BODY
"""


def test_records_have_no_methods_and_are_not_built():
    text = message("E_NAME", load, RECORD.replace("BODY", "y[i] = p.twice(i)"))
    assert "a method is no field" in text and "@ts.func" in text
    text = message("E_TYPE", load, RECORD.replace("BODY", "q = Pair(p.x, 2.0)\n    y[i] = q.by"))
    assert "records are not built in kernels" in text


NAN = [("fp6_e3m2", 28), ("fp6_e2m3", 7.5), ("fp4", 6)]


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype,most", NAN)
def test_what_casts_make_of_nan_and_infinity(dtype, most):
    k = load(f"""
@ts.kernel
def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = ts.tile.cast(ts.tile.cast(x[i], ts.{dtype}), ts.f32)
    return y
""")["k"]
    assert k(np.float32([np.nan, np.inf, -np.inf, 1e9])).tolist() == [most, most, -most, most]


@pytest.mark.usefixtures("backend")
def test_a_scan_from_the_end_gives_its_result_first():
    k = load("""
@ts.func
def digits(a, b):
    return a * 10 + b

@ts.kernel
def k(x: ts.Tensor[3, ts.i32], y: ts.Out[3, ts.i32]):
    ts.tile.grid(1)
    y[:] = ts.tile.associative_scan(x[:], digits, reverse=True)
    return y
""")["k"]
    assert k(np.int32([1, 2, 3])).tolist() == [321, 32, 3]

"""Kernels and helpers in classes, `ts.func` of a `lambda`, and sources from `python -c`, standard input and prompts."""

import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tessera as ts

F = np.float32


class Scaled:
    SCALE = 3.0
    BLOCK = 4
    Vector = ts.Tensor["n", ts.f32]

    double = ts.func(lambda v: v + v)

    @ts.func
    def helper(v):
        return v * SCALE  # noqa: F821

    @staticmethod
    @ts.func
    def static_helper(v):
        return double(v) * SCALE  # noqa: F821

    @ts.kernel
    def method(x: Vector, y: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        y[i] = helper(x[i]) + static_helper(x[i])  # noqa: F821

    @staticmethod
    @ts.kernel
    def static(x: Vector, y: ts.Out["(n + BLOCK - 1) // BLOCK", ts.f32]):
        p = ts.tile.program_id(0)
        y[p] = ts.tile.sum(x[p * BLOCK : p * BLOCK + BLOCK]) * SCALE  # noqa: F821

    @ts.struct
    class Record:
        x: ts.Tensor["n", ts.f32]
        y: ts.Out["n", ts.f32] = None

    @ts.kernel
    def of_record(p: Record):
        i = ts.tile.linear_id()
        p.y[i] = p.x[i] * SCALE  # noqa: F821

    class Inner:
        SCALE = 5.0

        @ts.kernel
        def method(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
            i = ts.tile.linear_id()
            y[i] = x[i] * SCALE  # noqa: F821


@pytest.mark.usefixtures("backend")
def test_names_of_the_class():
    x = np.arange(5, dtype=F)
    assert Scaled.method(x).tolist() == (x * 9).tolist()
    assert Scaled().static(x).tolist() == Scaled.static(x).tolist() == [18, 12]
    assert Scaled.Inner.method(x).tolist() == (x * 5).tolist()
    assert Scaled.of_record(Scaled.Record(x)).tolist() == (x * 3).tolist()


def test_the_class_is_read_at_every_call(monkeypatch):
    x = np.ones(5, F)
    monkeypatch.setattr(Scaled, "SCALE", 1.0)
    monkeypatch.setattr(Scaled, "BLOCK", 5)
    assert Scaled.method(x).tolist() == [3] * 5
    assert Scaled.static(x).tolist() == [5]
    assert Scaled.of_record(Scaled.Record(x)).tolist() == [1] * 5


def test_a_class_in_a_function_sees_both():
    offset = 7.0

    class Local:
        SCALE = 2.0

        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32]):
            i = ts.tile.linear_id()
            x[i] = x[i] * SCALE + offset  # noqa: F821
            return x

    assert Local.k(np.ones(2, F)).tolist() == [9, 9]


def test_names_of_an_outer_class_are_not_seen():
    """As in Python: the body of a class does not see the names of the class around it."""
    with pytest.raises(ts.KernelSyntaxError, match="`OUTER` is not defined"):

        class Outer:
            OUTER = 1.0

            class Inner:
                @ts.kernel
                def k(x: ts.Tensor["n", ts.f32]):
                    i = ts.tile.linear_id()
                    x[i] = OUTER  # noqa: F821


# Lambdas.


@ts.kernel
def apply(x: ts.Tensor["n", ts.f32], f: ts.Fn = ts.identity):
    i = ts.tile.linear_id()
    x[i] = f(x[i])
    return x


def scale_by(c):
    return ts.func(
        lambda v, w=2.0: (
            v * c
            + w
        )
    )  # fmt: skip


@pytest.mark.usefixtures("backend")
def test_functions_of_lambdas():
    assert apply(np.ones(2, F), ts.func(lambda v: v * 4)).tolist() == [4, 4]
    assert apply(np.ones(2, F), scale_by(10.0)).tolist() == [12, 12]
    assert apply(np.ones(2, F), scale_by(3.0)).tolist() == [5, 5]
    f = pickle.loads(pickle.dumps(scale_by(5.0)))
    assert f.parameters == ["v", "w"] and apply(np.ones(2, F), f).tolist() == [7, 7]
    assert repr(f) == "<tessera func lambda>"


def test_a_lambda_is_found_by_its_parameters():
    def use(f):
        return apply(np.ones(1, F), f()).tolist()

    assert use(lambda: ts.func(lambda v: v + 1)) == [2]


def test_errors_point_into_a_lambda():
    f = ts.func(lambda v: v.zip)
    with pytest.raises(ts.KernelSyntaxError, match="no attribute `zip`") as e:
        apply(np.ones(1, F), f)
    source = open(__file__, encoding="utf-8").read().splitlines()
    assert "lambda v: v.zip" in source[e.value.line - 1] and source[e.value.line - 1][e.value.column - 1 :].startswith("v.zip")


def test_two_lambdas_on_a_line_are_refused():
    with pytest.raises(ts.KernelSyntaxError, match="expected one `lambda` on line") as e:
        ts.func(lambda v: v), ts.func(lambda v: v + 1)
    assert e.value.code == "E_SYNTAX" and "a line of its own" in e.value.help


def test_lambdas_in_bodies_and_as_kernels_are_refused():
    with pytest.raises(ts.KernelSyntaxError, match="`lambda` is not part"):

        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32]):
            f = lambda v: v  # noqa: E731
            x[0] = f(x[0])

    with pytest.raises(ts.KernelSyntaxError, match="got a `lambda`"):
        ts.kernel(lambda x: x)
    with pytest.raises(ts.KernelSyntaxError, match="`\\*v` is not part"):
        apply(np.ones(1, F), ts.func(lambda *v: v))


# Where Python keeps the text.

PROGRAM = textwrap.dedent(
    """
    import numpy as np, tessera as ts
    f = ts.func(lambda v: v + LATER)
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        y[i] = f(x[i]) * 2

    LATER = 1.0
    print(k(np.ones(3, np.float32)).tolist())
    """
)


def python(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, **options)


@pytest.mark.parametrize("flags", [["-c"], ["-Wdefault", "-c"], ["-sc"]], ids=" ".join)
def test_a_command_is_a_source(flags):
    found = python(*flags, PROGRAM)
    assert found.stdout == "[4.0, 4.0, 4.0]\n", found.stderr


def test_standard_input_that_is_a_file_is_a_source(tmp_path):
    (tmp_path / "program.txt").write_text(PROGRAM)
    with open(tmp_path / "program.txt") as file:
        found = python(stdin=file)
    assert found.stdout == "[4.0, 4.0, 4.0]\n", found.stderr


def test_a_pipe_and_a_prompt_say_how():
    for flags in ([], ["-i"]):
        found = python(*flags, input=PROGRAM)
        assert "source=" in found.stderr and "E_SYNTAX" in found.stderr, found.stderr


def test_a_source_that_is_given_works_everywhere():
    text = 'SOURCE = """def k(x):\\n    i = ts.tile.linear_id()\\n    x[i] = 5.0\\n"""\n'
    program = "import numpy as np, tessera as ts\n" + text + (
        "@ts.kernel(source=SOURCE)\ndef k(x): pass\n\nx = np.zeros(2, np.float32)\nk(x)\nprint(x.tolist())\n"
    )
    found = python(input=program)
    assert found.stdout == "[5.0, 5.0]\n", found.stderr


def test_a_source_that_is_no_text_is_refused():
    with pytest.raises(ts.TesseraError, match="text of a function") as e:
        ts.kernel(source=3)(lambda x: x)
    assert e.value.code == "E_ARGUMENT"

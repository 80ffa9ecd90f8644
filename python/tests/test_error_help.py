"""Errors have help: those that the package raises, unknown names, and wrong calls."""

import ast
from pathlib import Path

import numpy as np
import pytest
from doc_blocks import ROOT

import tessera as ts

PACKAGE = ROOT / "python" / "tessera"
#: Calls that give no help, by file and the beginning of the message, and why.
WITHOUT = {
    ("gradcheck.py", "gradcheck: expected the derivative"): "the message is the finding",
    ("tracer.py", "(any)"): "hands on what it is given",
    ("error_location.py", "(any)"): "hands on what it is given",
}


def silent_calls(path: Path) -> list[str]:
    """The calls of ``_core.error`` and ``fail`` in a file that give no help."""
    found = []
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func)
        if name not in ("_core.error", "fail", "tracer.fail"):
            continue
        given = [a for a in call.args if not isinstance(a, ast.Starred)]
        starred = len(given) < len(call.args)
        helped = len(given) > 2 or starred or any(k.arg == "help" for k in call.keywords)
        none = len(given) > 2 and isinstance(given[2], ast.Constant) and given[2].value is None
        if not helped or none:
            found.append(ast.unparse(call.args[1]).lstrip("f").strip("'\""))
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_errors_of_the_package_have_help(path) -> None:
    excused = [start for (name, start), _ in WITHOUT.items() if name == path.name]
    silent = [m for m in silent_calls(path) if not any(m.startswith(start) or start == "(any)" for start in excused)]
    assert not silent, f"{path.name}: give these errors a help: {silent}"


def test_a_call_without_help_is_found(tmp_path) -> None:
    """The check above can fail."""
    page = tmp_path / "page.py"
    page.write_text("raise fail('E_TYPE', f'expected {x}')\nraise _core.error('E_TYPE', 'a', 'b')\nraise fail('E_TYPE', 'c', None)\n")
    assert silent_calls(page) == ["expected {x}", "c"]


@pytest.mark.parametrize(
    ("name", "help"),
    [
        ("constexpr", "`int`"),
        ("fori_loopp", "did you mean `fori_loop`"),
        ("matmull", "did you mean `matmul`"),
        ("Tensr", "did you mean `Tensor`"),
    ],
)
def test_unknown_names_of_the_package_say_what_to_write(name, help) -> None:
    with pytest.raises(AttributeError, match=help.replace("(", r"\(").replace(")", r"\)")):
        getattr(ts, name)


def test_unknown_names_of_the_language_say_what_to_write() -> None:
    for name, help in {"popc": "popcount", "program_idd": "program_id", "trans": "transpose", "cdiv": "ts.cdiv"}.items():
        with pytest.raises(AttributeError, match=help):
            getattr(ts.tile, name)
    assert not hasattr(ts.tile, "popc")


def test_wrong_annotations_name_their_line() -> None:
    def marked(text: str) -> int:
        lines = Path(__file__).read_text(encoding="utf-8").splitlines()
        (line,) = [n for n, l in enumerate(lines, 1) if l.endswith(f"# {text}")]
        return line

    with pytest.raises(ts.KernelTypeError) as caught:

        @ts.kernel
        def listed(
            x: ts.Tensor["n", ts.f32],
            y: dict,  # a dict
        ):
            x[0] = 1.0

    assert caught.value.line == marked("a dict") and caught.value.help
    with pytest.raises(ts.KernelTypeError) as caught:

        @ts.kernel
        def misspelt(
            x: ts.Tensor["n", ts.f32],
            y: ts.Tensor["n", "fp7"],  # a dtype
        ):
            x[0] = 1.0

    assert caught.value.line == marked("a dtype") and caught.value.code == "E_UNSUPPORTED_DTYPE"
    with pytest.raises(ts.LaunchError) as caught:

        @ts.kernel
        def regional(
            x: ts.Region["wrte"],  # a privilege
        ):
            x[0] = 1.0

    assert caught.value.line == marked("a privilege") and "ts.write" in caught.value.help


def test_wrong_annotations_kept_as_text_name_their_line() -> None:
    with pytest.raises(ts.KernelSyntaxError) as caught:

        @ts.kernel
        def quoted(
            x: "ts.Tensor['n', ts.f32]",
            y: "ts.Tensr['n', ts.f32]",  # as text
        ):
            x[0] = 1.0

    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert lines[caught.value.line - 1].endswith("# as text")
    assert lines[caught.value.line - 1][caught.value.column - 1 :].startswith('"ts.Tensr')


def test_quoted_annotations_are_read_where_all_are_text() -> None:
    text = "def filled(x: \"ts.Tensor['n', ts.f32]\"):\n    i = ts.tile.linear_id()\n    x[i] = 1.0\n    return x\n"
    namespace = {"ts": ts}
    exec("from __future__ import annotations\n" + text, namespace)
    assert ts.kernel(source=text)(namespace["filled"])(np.zeros(2, np.float32)).tolist() == [1, 1]


@ts.kernel
def scaled(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], factor: ts.f32):
    i = ts.tile.linear_id()
    y[i] = factor * x[i]


X = np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: scaled(X, X), "E_ARGUMENT"),
        (lambda: scaled(X, X, 1.0, 2.0), "E_ARGUMENT"),
        (lambda: scaled(X, X, factr=1.0), "E_ARGUMENT"),
        (lambda: scaled(X, np.zeros(5, np.float32), 1.0), "E_LAUNCH_INVALID_SHAPE"),
        (lambda: scaled(X, np.zeros(4), 1.0), "E_TYPE"),
        (lambda: scaled(X, X[::-1], 1.0), "E_PRIVILEGE"),
        (lambda: scaled[(1, 2, 3, 4)](X, X.copy(), 1.0), "E_LAUNCH_GEOMETRY"),
        (lambda: scaled["a"](X, X.copy(), 1.0), "E_LAUNCH_GEOMETRY"),
        (lambda: scaled.check(X, X), "E_ARGUMENT"),
        (lambda: scaled.jit(N=3), "E_ARGUMENT"),
    ],
)
def test_errors_of_calls_name_the_callers_line(call, code) -> None:
    with pytest.raises(ts.TesseraError) as caught:
        call()
    error = caught.value
    assert error.code == code and error.help
    # Two places: the kernel, and the lambda above.
    text = str(error)
    line = call.__code__.co_firstlineno
    assert f"{Path(__file__).name}:{line}:" in text, text
    assert "called here" in text or error.line == line, text


def test_a_misspelt_keyword_is_named() -> None:
    with pytest.raises(ts.LaunchError, match="`scaled` has no parameter `factr`") as caught:
        scaled(X, X.copy(), factr=1.0)
    assert "factor" in caught.value.help


@pytest.mark.parametrize("text", ["bf16 @acum(f32)", "fp7", "half", "bf16 @accum", "bf16 accum(f32)", "", "i32 @packed", "bf16 @scale(a)"])
def test_dtypes_that_do_not_parse_say_what_would(text) -> None:
    with pytest.raises(ts.TesseraError) as caught:
        ts.dtype(text)
    error = caught.value
    assert Path(error.file).name == Path(__file__).name, "the error is at the line of the call"
    quoted = error.help.split('"')[1::2]
    assert quoted or text == "i32 @packed", error.help
    for example in quoted:
        ts.dtype(example)

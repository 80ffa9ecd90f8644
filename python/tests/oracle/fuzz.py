"""Fuzzing of kernels: random programs, executed by Python (the oracle) and by each backend.

``python -m oracle.fuzz --programs 1000 --backend interp`` from ``python/tests``; ``--seed`` repeats, ``--minutes`` bounds.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import math
import multiprocessing
import os
import re
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import numpy as np

import tessera as ts
from tally import Tally, arguments, day  # noqa: F401

from . import context
from .expressions import OPTIONAL, Case
from .generate import generate
from .form import PACKED, packed, unpacked
from .memory import Array
from .run import Program, array, scalar
from .values import Lacks, OracleError

#: A refusal with another code is a failure.
EXPECTED = {"E_UNSUPPORTED", "E_NONDETERMINISTIC", "E_LAUNCH_INVALID_RESOURCE", "E_RESOURCE"}


context.limit = 20_000


class Refused(Exception):
    """The compiler does not take the program."""

    def __init__(self, error: ts.TesseraError) -> None:
        super().__init__(str(error))
        self.code = error.code


class Broken(Exception):
    """The program is not one that the language has: of the generator, or of the minimiser."""


def expected(case: Case) -> list[dict[str, np.ndarray]]:
    """The arrays after each call, by the oracle."""
    program = Program(case.text, types=case.types)
    out = []
    for changes in [{}, case.later] if case.later else [{}]:
        change(program.namespace, changes)
        arrays = case.arguments()
        grid = case.grid if isinstance(case.grid, tuple) else (case.grid,)
        program.namespace["g"] = math.prod(grid)
        held = {name: unpacked(a, dt) if (dt := case.arrays[name][1]) in PACKED else a for name, a in arrays.items()}
        seen = {name: Array(a, PACKED[dt]) if (dt := case.arrays[name][1]) in PACKED else array(a) for name, a in held.items()}
        call = case.form.put_together(seen, None, lambda dt, v: scalar(v, getattr(ts, dt))) if case.form else list(seen.values())
        program.launch("k", call, grid, case.lanes)
        out.append({name: packed(a) if case.arrays[name][1] in PACKED else a for name, a in held.items()})
    return out


def ordered(case: Case, want: list[dict[str, np.ndarray]]) -> bool:
    """Whether what a program gives depends on the order of its lanes and groups: a race."""
    from . import run as runner

    runner.backwards = True
    try:
        return bool(differences(want, expected(case)))
    finally:
        runner.backwards = False


def change(namespace: dict[str, Any], changes: dict[str, Any]) -> None:
    """Binds captured names again, dotted ones too."""
    for name, value in changes.items():
        root, _, attribute = name.partition(".")
        if attribute and root in namespace:
            setattr(namespace[root], attribute, value)
        elif not attribute:
            namespace[root] = value


_FILES = 0


def load(text: str) -> dict[str, Any]:
    """The module of a program, with the real decorators."""
    global _FILES
    _FILES += 1
    file = f"<random {_FILES}>"
    linecache.cache.pop(f"<random {_FILES - 4}>", None)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"ts": ts, "np": np, "math": math, "__name__": "random_program"}
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    return namespace


def compiled(case: Case, backend: str, profile: str = "strict") -> list[dict[str, np.ndarray]]:
    """The arrays after each call, by a backend."""
    out = []
    try:
        with ts.numerics.profile(profile), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ts.runtime.select_backend(backend)
            namespace = load(case.text)
            kernel = namespace["k"]
            for changes in [{}, case.later] if case.later else [{}]:
                change(namespace, changes)
                arrays = case.arguments()
                kernel.launch(*call_of(case, arrays, namespace), grid=case.grid)
                out.append(arrays)
    except ts.TesseraError as error:
        raise Refused(error) from None
    finally:
        ts.runtime.select_backend(None)
    return out


def call_of(case: Case, arrays: dict[str, np.ndarray], namespace: dict[str, Any]) -> list[Any]:
    """The arguments of a call."""
    return case.form.put_together(arrays, namespace, lambda dt, v: v) if case.form else list(arrays.values())


def broken_promises(case: Case) -> list[str]:
    """What checked mode finds wrong with the promises of a program that keeps them."""
    try:
        with ts.numerics.profile("strict"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ts.runtime.select_backend("interp")
            namespace = load(case.text)
            report = namespace["k"].check(*call_of(case, case.arguments(), namespace), grid=case.grid)
    except ts.TesseraError as error:
        raise Refused(error) from None
    finally:
        ts.runtime.select_backend(None)
    return [f"checked mode finds {finding}" for finding in report.findings if finding.code == "E_RACE"]


def differences(want: list[dict[str, np.ndarray]], got: list[dict[str, np.ndarray]]) -> list[str]:
    out = []
    for call, (a, b) in enumerate(zip(want, got)):
        for name, x in a.items():
            y = b[name]
            bits = f"u{x.dtype.itemsize}"
            same = x.view(bits) == y.view(bits)
            if x.dtype.kind not in "biu":
                same |= np.isnan(x.astype(np.float64)) & np.isnan(y.astype(np.float64))
            for where in np.argwhere(~same):
                at = tuple(int(k) for k in where)
                out.append(f"call {call}: {name}{list(at)} is {y[at]!r}, Python says {x[at]!r}")
    return out


def judge(case: Case, backend: str, want: Any = None) -> list[str]:
    """How a backend differs from the oracle; empty where it does not."""
    try:
        want = expected(case) if want is None else want
    except Lacks:
        raise
    except OracleError as error:
        raise Broken(str(error)) from None
    except (TypeError, NameError, ZeroDivisionError, SyntaxError, AttributeError, ValueError, OverflowError, IndexError) as error:
        raise Broken(f"{type(error).__name__}: {error}") from None
    try:
        got = compiled(case, backend)
    except Refused as error:
        if error.code == "E_NONDETERMINISTIC":
            return judge_default(case, backend, want)
        raise
    found = differences(want, got)
    if case.native and backend == "cpu" and not found:
        found = natively(case, want)
    return broken_promises(case) if case.checked and backend == "interp" and not found else found


def judge_default(case: Case, backend: str, want: Any) -> list[str]:
    return differences(want, compiled(case, backend, "default"))


def natively(case: Case, want: Any) -> list[str]:
    """How a program differs where the CPU runs its assembly texts, and not without them: `default` may round otherwise by itself."""
    found = differences(want, compiled(case, "cpu", "default"))
    if not found:
        return []
    without = re.sub(r'target="x86_64"(, arch="\w+")?', 'target="ptx"', case.text)
    same = differences(want, compiled(replace(case, text=without), "cpu", "default"))
    return [] if same else [f"in `default`, with the text: {line}" for line in found]


# What this build has.
PROBES = {
    "lane_break": ("lane", "i = ts.tile.linear_id()\nfor j in range(3):\n    if x[i] > j:\n        break\n    y[i] += 1"),
    "lane_loop_else": ("lane", "i = ts.tile.linear_id()\nfor j in range(3):\n    if x[i] > j:\n        break\nelse:\n    y[i] += 1"),
    "lane_while_else": ("lane", "i = ts.tile.linear_id()\nj = 0\nwhile j < x[i] % 3:\n    j += 1\nelse:\n    y[i] += 1"),
    "loop_var_after": ("group", "for j in range(3):\n    y[0] += 1\ny[1] = j"),
    "wide_literal": ("group", "y[0] = ts.tile.cast(x[0] + 2**40, ts.i32)"),
    "mixed_literal": ("group", "if ts.tile.cast(x[0], ts.u32) > -1:\n    y[0] = 1"),
    "u64_literal": ("group", "if ts.tile.cast(x[0], ts.u64) > 2**63 + 5:\n    y[0] = 1"),
    "min_literal": ("group", "if ts.tile.cast(x[0], ts.i64) > -9223372036854775808:\n    y[0] = 1"),
    "literal_carried": (
        "group",
        "s = 0\nfor j in range(3):\n    s += ts.tile.cast(x[j], ts.u64)\nif s:\n    y[0] = 1\nr = 0\nif x[0]:\n    r = ts.tile.cast(x[1], ts.f32)\n"
        "y[1] = ts.tile.cast(r, ts.i32)",
    ),
    "for_else": ("group", "for j in range(3):\n    if x[j]:\n        break\nelse:\n    y[0] = 1"),
    "while_else": ("group", "j = 0\nwhile j < 3:\n    j += 1\n    if x[j]:\n        break\nelse:\n    y[0] = 1"),
    "chained_assign": ("group", "v = y[0] = x[1]\ny[1] = v"),
    "target_order": ("group", "v = x[0]\nv, y[v % 4] = 1, 2\ny[3] = v"),
    "walrus": ("group", "v = x[0]\nif (v := x[1]) > 2 and (v := x[2]) > 1:\n    y[0] = v"),
    "or_value": ("group", "y[0] = x[0] or x[1]"),
    "shared_in_group": ("group", "s = ts.tile.alloc_shared((8,), ts.i32)\ns[0:8] = x[0:8]\ns[0], s[1] = s[1], s[0]\ny[0:8] = s[0:8]"),
    "gather_add": ("group", "y[ts.tile.arange(4) // 2] += 1"),
    "swap_slices": ("group", "y[0:4], y[4:8] = y[4:8], y[0:4]"),
    "return_in_loop": ("group", "for j in range(3):\n    if x[j]:\n        return\n    y[j] = 1"),
    "tuple_value": ("group", "t = (x[0], x[1])\ny[0] = t[1]"),
    "nested_unpack": ("group", "a, (b, c) = x[0], (x[1], x[2])\ny[0] = a + b + c"),
    "loop_var_assign": ("group", "for j in range(3):\n    y[j] = 1\n    j = j * 2"),
    "inner_exit_before_assign": ("group", "if x[0]:\n    if x[1]:\n        return\n    s = x[2]\nelse:\n    s = x[3]\ny[0] = s"),
    "scratch_of_two_types": ("group", "if x[0]:\n    u = x[1]\n    y[0] = u\nelse:\n    u = ts.tile.cast(x[1], ts.f32)\n    y[1] = ts.tile.cast(u, ts.i32)"),
    "or_literal": ("group", "v = x[0] or 9\ny[0] = v + 1\nv = 3 if x[1] else v"),
    "dotted": ("group", "y[0] = x[0] + cfg.K"),
    "tile_parts": ("group", "t = ts.tile.concat((x[0:4], x[4:8][::-1]))\ny[0:8] = ts.tile.roll(t, x[0])"),
    "own_combiners": ("group", "y[0] = ts.tile.reduce(x[0:8], ts.tile.maximum)"),
    "sort": ("group", "y[0:8] = ts.tile.sort(x[0:8])\ny[0:2] = ts.tile.histogram(x[0:8], 2)"),
    "block_formats": ("group", 'y[0:8] = ts.tile.cast(ts.tile.quantize(x[0:8], "mxfp4")[0], ts.i32)'),
    "unrolled": ("group", "for j in ts.static_range(3):\n    y[j] = 1\nfor j in (1, 2):\n    y[j] = 2"),
    "python_iterators": ("group", "for j, v in enumerate(reversed((1, 2))):\n    y[j] = v\nfor j, v in zip((1, 2), (3, 4)):\n    y[j] = v"),
    "unrolled_value_after": ("group", "for j in range(2):\n    for v in (x[0], x[1]):\n        y[0] = v\n    y[1] = v"),
    "loop_var_slice": ("group", "for j in range(2):\n    y[0] = j\ny[0:4] = x[0:8][j:j + 4]"),
    "ownership": ("group", "ts.tile.owned(y[0:4])\nts.tile.store(y[0:2], x[0:2], unique=True)"),
    "staged": ("group", "s = ts.tile.alloc_shared((2, 4), ts.i32)\nfor j in range(2):\n    ts.tile.cp_async(s[j], x[j * 4:j * 4 + 4])\ny[0:4] = s[1]"),
    "assembly": ("group", 'y[0:8] = ts.target.asm("movl $1, $0", x[0:8], dtype=ts.i32, target="x86_64", otherwise=ts.tile.abs)'),
    "tuple_carried": ("group", "t = (x[0], x[1])\nfor j in range(3):\n    t = (t[1], t[0])\ny[0] = t[0]"),
}
PROBE_HEAD = "class cfg:\n    K = 3\nG0 = 2\n\n"


def probe() -> tuple[set[str], list[str]]:
    """The optional features that this build takes, and those that it refuses with the code."""
    have, refused = set(OPTIONAL) - set(PROBES), []
    for name, (kind, body) in PROBES.items():
        lanes = "(lanes=4)" if kind == "lane" else ""
        inner = "\n".join("    " + line for line in body.splitlines())
        text = f'{PROBE_HEAD}@ts.kernel{lanes}\ndef k(x: ts.Tensor[8, ts.i32], y: ts.Tensor[8, ts.i32]):\n{inner}\n'
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ts.runtime.select_backend("interp")
                load(text)["k"].launch(np.zeros(8, np.int32), np.zeros(8, np.int32), grid=8 if kind == "lane" else 1)
            have.add(name)
        except ts.TesseraError as error:
            refused.append(f"{name} ({error.code})")
        finally:
            ts.runtime.select_backend(None)
    extra = {
        "packed": '@ts.kernel\ndef k(x: ts.Tensor[2, 8, ts.i32], y: ts.Tensor[2, 8, "i4 @packed"]):\n    y[0, :] = x[0, :]\n',
        "records": (
            "@ts.struct\nclass R:\n    x: ts.Tensor[2, 8, ts.i32]\n\n@ts.kernel\ndef k(r: R, xs: list[ts.Tensor[2, 8, ts.i32]]):\n"
            "    xs[0][0, 0] = r.x[0, 0]\n"
        ),
        "index_beside_id": (
            "@ts.kernel\ndef k(x: ts.Tensor[2, 8, ts.i32], y: ts.Tensor[2, 8, ts.i32]):\n    p = ts.tile.program_id(0)\n"
            "    y[p, ts.tile.arange(4)] = x[p, ts.tile.arange(4)]\n"
        ),
        "helper_global_default": (
            "G0 = 3\n@ts.func\ndef h(v, d=G0):\n    return v + d\n\n@ts.kernel\ndef k(x: ts.Tensor[2, 8, ts.i32], y: ts.Tensor[2, 8, ts.i32]):\n"
            "    y[0, 0] = h(x[0, 0])\n"
        ),
    }
    text = "G0 = 1\n@ts.kernel\ndef k(y: ts.Tensor[8, ts.i32]):\n    y[0] = G0\n"
    namespace, y = load(text), np.zeros(8, np.int32)
    namespace["k"](y)
    namespace["G0"] = 2
    namespace["k"](y)
    if y[0] != 2:
        have.discard("captures_change")
        refused.append("captures_change (ignored)")
    for name, text in extra.items():
        try:
            ts.runtime.select_backend("interp")
            namespace, a, b = load(text), np.zeros((2, 8), np.int32), np.zeros((2, 8), np.int32)
            given = (namespace["R"](a), [b]) if name == "records" else (a, np.zeros((2, 4), np.uint8)) if name == "packed" else (a, b)
            namespace["k"].launch(*given, grid=2 if "program_id" in text else 1)
        except ts.TesseraError as error:
            have.discard(name)
            refused.append(f"{name} ({error.code})")
        finally:
            ts.runtime.select_backend(None)
    return have, refused


# Making a failing program small.
def minimise(case: Case, fails: Callable[[Case], bool], seconds: float = 60) -> Case:
    """Drops statements, opens blocks and replaces expressions by their parts while the program still fails."""
    until = time.monotonic() + seconds

    def attempt(tree: ast.Module) -> Case | None:
        try:
            text = ast.unparse(ast.fix_missing_locations(tree))
        except Exception:
            return None
        if text == best.text:
            return None
        trial = replace(best, text=text)
        try:
            return trial if fails(trial) else None
        except Exception:
            return None

    best = replace(case, text=ast.unparse(ast.parse(case.text)))
    if best.later:
        without = replace(best, later={})
        with contextlib.suppress(Exception):
            if fails(without):
                best = without
    progress = True
    while progress and time.monotonic() < until:
        progress = False
        for change in (_drop_runs, _drop, _open, _shrink):
            place = 0
            while time.monotonic() < until:
                tree = ast.parse(best.text)
                if not change(tree, place):
                    break
                found = attempt(tree)
                if found is not None:
                    best, progress = found, True
                else:
                    place += 1
    return best


def trimmed(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Without the parameters that nothing uses."""
    if case.form is not None:
        return case
    tree = ast.parse(case.text)
    kernel = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "k")
    used = {n.id for statement in kernel.body for n in ast.walk(statement) if isinstance(n, ast.Name)}
    kernel.args.args = [a for a in kernel.args.args if a.arg in used]
    arrays = {name: what for name, what in case.arrays.items() if name in used}
    trial = replace(case, text=ast.unparse(tree), arrays=arrays)
    try:
        return trial if arrays and fails(trial) else case
    except Exception:
        return case


def _bodies(tree: ast.AST) -> list[list[ast.stmt]]:
    out = []
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                out.append(body)
    return out


def _drop_runs(tree: ast.Module, place: int) -> bool:
    """Without a half or a quarter of a block."""
    for body in _bodies(tree):
        for size in (len(body) // 2, len(body) // 4):
            for start in range(0, len(body), size) if size > 1 else ():
                run = body[start : start + size]
                if any(isinstance(node, ast.FunctionDef) and node.name == "k" for node in run):
                    continue
                if place == 0:
                    del body[start : start + size]
                    return True
                place -= 1
    return False


def _drop(tree: ast.Module, place: int) -> bool:
    for body in _bodies(tree):
        if place < len(body):
            if isinstance(body[place], ast.FunctionDef) and body[place].name == "k":
                body[place].body = body[place].body  # the kernel itself stays
                return True
            del body[place]
            if not body and body is not tree.body:
                owner = next(n for n in ast.walk(tree) if body in (getattr(n, "body", None), getattr(n, "orelse", None)))
                if getattr(owner, "body", None) is body:
                    body.append(ast.Pass())
            return True
        place -= len(body)
    return False


def _open(tree: ast.Module, place: int) -> bool:
    """A block in the place of the statement that holds it."""
    for body in _bodies(tree):
        for k, node in enumerate(body):
            if isinstance(node, (ast.If, ast.For, ast.While)):
                if place == 0:
                    body[k : k + 1] = node.body
                    return True
                if place == 1 and node.orelse:
                    body[k : k + 1] = node.orelse
                    return True
                place -= 2
    return False


def _shrink(tree: ast.Module, place: int) -> bool:
    """An expression's part in its place."""
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            for k, child in enumerate(values):
                if not isinstance(child, (ast.BinOp, ast.BoolOp, ast.IfExp, ast.Call, ast.Compare, ast.UnaryOp, ast.NamedExpr)):
                    continue
                parts = [c for c in ast.iter_child_nodes(child) if isinstance(c, ast.expr)]
                if isinstance(child, ast.Call):
                    parts = parts[1:]
                if place < len(parts):
                    if isinstance(value, list):
                        value[k] = parts[place]
                    else:
                        setattr(node, name, parts[place])
                    return True
                place -= len(parts)
    return False


def run(
    seed: int, programs: int, backends: list[str], minutes: float | None = None, have: set[str] | None = None, kind: str | None = None,
    stop_at: int = 5, say: Callable[[str], None] | None = print, minimise_for: float = 30, without: frozenset[str] = frozenset(),
    part: tuple[int, int] = (0, 1),
) -> Tally:  # fmt: skip
    """Draws programs from ``seed`` on: ``part`` says which of how many processes this is."""
    tally = Tally("statements")
    begin = time.monotonic()
    for number in range(part[0], programs, part[1]):
        if minutes is not None and time.monotonic() - begin > 60 * minutes:
            break
        this = seed * 1_000_003 + number
        clock = time.perf_counter()
        case = generate(this, have, kind, without)
        tally.seconds["generate"] += time.perf_counter() - clock
        tally.programs += 1
        tally.constructs.update(case.counts)
        tally.size += case.statements
        clock = time.perf_counter()
        try:
            want = expected(case)
        except (OracleError, TypeError, NameError, ZeroDivisionError, SyntaxError, AttributeError, ValueError, OverflowError, IndexError, Lacks) as error:
            tally.broken.append((this, f"{type(error).__name__}: {error}"))
            continue
        finally:
            tally.seconds["oracle"] += time.perf_counter() - clock
        fine = True
        for backend in backends:
            clock = time.perf_counter()
            try:
                found = judge(case, backend, want)
            except Refused as error:
                tally.refusals[f"{error.code} on {backend}"] += 1
                tally.reasons[str(error).splitlines()[0]] += 1
                if error.code in EXPECTED:
                    fine = False
                    continue
                found = [f"refused: {error}"]
            finally:
                tally.seconds[backend] += time.perf_counter() - clock
            if found:
                fine = False
                took = time.monotonic() - begin
                refused = found[0].startswith("refused: ")
                code = found[0].removeprefix("refused: ").splitlines()[0]

                def fails(c: Case, backend: str = backend, code: str = code, refused: bool = refused) -> bool:
                    meant = expected(c)
                    if ordered(c, meant):
                        return False
                    try:
                        wrong = judge(c, backend, meant)
                    except Refused as error:
                        return refused and str(error).splitlines()[0] == code
                    return bool(wrong) and not refused

                small = trimmed(minimise(case, fails, minimise_for), fails) if minimise_for else case
                text = describe(small, backend, took, this, found)
                tally.failures.append((this, text))
                if say is not None:
                    say(text)
                if len(tally.failures) >= stop_at:
                    return tally
        tally.agreed += fine
        if len(tally.failures) >= stop_at:
            break
    return tally


def _part(given: tuple) -> Tally:
    first, named, part = given
    return run(*first, **named, part=part, say=None)


def spread(processes: int, *given: Any, **named: Any) -> Tally:
    """`run` by several processes."""
    if processes == 1:
        return run(*given, **named)
    whole = Tally("statements")
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for tally in pool.imap_unordered(_part, [(given, named, (k, processes)) for k in range(processes)]):
            whole.add(tally)
    for _, text in whole.failures:
        print(text, flush=True)
    return whole


def describe(small: Case, backend: str, took: float, seed: int, found: list[str]) -> str:
    try:
        now = judge(small, backend)
    except Refused as error:
        now = [str(error)]
    except Exception as error:
        now = [*found[:3], f"({error})"]
    lines = "\n".join(f"#   {line}" for line in "\n".join(now[:4] or found[:4]).splitlines()[:12])
    launch = f"grid {small.grid}" + (f", lanes {small.lanes}" if small.lanes else "") + (f", then {small.later}" if small.later else "")
    return f"# seed {seed} on {backend} ({launch}), found after {took:.1f} s\n{small.text}\n{lines}\n"


def main(argv: list[str] | None = None) -> int:
    parser = arguments()
    parser.add_argument("--backend", action="append")
    parser.add_argument("--kind", choices=["group", "lane"])
    parser.add_argument("--without", default="", help="kinds of statements and expressions that are not drawn, by commas")
    parser.add_argument("--minimise", type=float, default=30, help="seconds to make a failing program small")
    parser.add_argument("--lacking", default="", help="optional features that are not drawn, by commas")
    parser.add_argument("--all", action="store_true", help="draw everything, also what this build refuses")
    parser.add_argument("--probe", help="writes what this build has to a file, and ends")
    parser.add_argument("--features", help="draws what such a file names")
    options = parser.parse_args(argv)
    if options.features:
        have, refused = set(Path(options.features).read_text(encoding="utf-8").split()), []
    else:
        have, refused = (set(OPTIONAL), []) if options.all else probe()
    if options.probe:
        Path(options.probe).write_text("\n".join(sorted(have)), encoding="utf-8")
        print(f"not in this build: {', '.join(refused) or 'nothing'}")
        return 0
    have -= set(options.lacking.split(","))
    backends = options.backend or ["interp"]
    if options.one is not None:
        case = generate(options.one, have, options.kind, frozenset(options.without.split(",")))
        print(case.text)
        for backend in backends:
            try:
                print(backend, judge(case, backend) or "agrees")
            except (Refused, Broken) as error:
                print(backend, error)
        return 0
    print(f"seed {options.seed}, on {', '.join(backends)}; not in this build: {', '.join(refused) or 'nothing'}", flush=True)
    begin = time.monotonic()
    given = (options.seed, options.programs, backends, options.minutes, have, options.kind, options.stop_at)
    tally = spread(options.processes, *given, minimise_for=options.minimise, without=frozenset(options.without.split(",")))
    took = time.monotonic() - begin
    print(tally.report())
    print(f"{tally.programs / took:.1f} programs a second")
    return 1 if tally.failures or len(tally.broken) > tally.programs // 100 else 0


if __name__ == "__main__":
    sys.exit(main())

"""Damaged input where text and files enter: IR, schedules and plans, Python source, tuning records, names of types.

Whatever comes in, one of our errors comes out or it is taken; nothing hangs, and nothing ends the process. A case is drawn from the seed
and its number alone:

    python -m boundary_fuzz ir --seed 20000 --seconds 60
    python -m boundary_fuzz ir --seed 20000 --case 17       that case again, with what it was given
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import importlib
import json
import linecache
import os
import random
import re
import signal
import sys
import tempfile
import time
import tokenize
import traceback
import types
import warnings
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any, Callable

import numpy as np

import tessera as ts

ROOT = Path(__file__).resolve().parents[2]
#: A case may take so long; what takes longer is stopped as a user would stop it, and must stop.
PATIENCE, HANGS = 2.0, 25.0

Case = tuple[str, Callable[[], Any]]


class TooLong(BaseException):
    """Raised by the alarm, as Ctrl-C would be."""


# Changes of text

#: Numbers that overflow, names and signs of the languages, and characters that are none.
WORDS = [
    "0", "-1", "1", "2", "7", "4294967296", "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1e400", "nan", "-0.0",
    "0x", "f32", "f64", "bf16", "fp4_e2m1", "i64", "i1", "bool", "tile<4xf32>", "tile<0x0xf32>", "tile<1048576x1048576xf32>", "array<?xf32>",
    "%0", "%x", "@f", "^", "{", "}", "(", ")", "<", ">", "[", "]", ",", ":", "=", "->", ";", '"', "\\", "loc", "func", "module", "region", "yield",
    "tile.", "graph.", "sched.", "\x00", "\ufeff", "é", "\U0001f600", "\u202e", "\n", "\t",
]  # fmt: skip
TOKEN = re.compile(r"[%@]?\w+|\s+|[^\w\s]")


def damaged(r: random.Random, text: str, others: list[str]) -> str:
    """Some of a text exchanged, doubled, left out or replaced, by characters, tokens and lines; or pieces of another."""
    for _ in range(r.choice([1, 1, 1, 2, 4, 10])):
        kind = r.randrange(8)
        if kind < 3:
            tokens = TOKEN.findall(text)
            if not tokens:
                continue
            at = r.randrange(len(tokens))
            if kind == 0:
                tokens[at] = r.choice([*WORDS, r.choice(tokens), r.choice(tokens)])
            elif kind == 1:
                del tokens[at : at + r.choice([1, 1, 2, 8])]
            else:
                other = r.randrange(len(tokens))
                tokens[at], tokens[other] = tokens[other], tokens[at]
            text = "".join(tokens)
        elif kind < 6:
            lines = text.splitlines(keepends=True)
            if not lines:
                continue
            at = r.randrange(len(lines))
            if kind == 3:
                del lines[at]
            elif kind == 4:
                lines.insert(at, r.choice(lines) * r.choice([1, 1, 2, 50]))
            else:
                lines.insert(at, r.choice(r.choice(others).splitlines(keepends=True) or [""]))
            text = "".join(lines)
        elif kind == 6:
            at = r.randrange(len(text) + 1)
            text = text[:at] + r.choice(WORDS) * r.choice([1, 1, 2, 3000]) + text[at + r.randrange(3) :]
        else:
            at = r.randrange(len(text) + 1)
            text = text[:at] if r.random() < 0.5 else text[at:]
    return text


# IR, schedules, plans


@functools.cache
def ir_texts() -> list[str]:
    found = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "filetests").rglob("*.tir"))]
    # A file holds many functions: most damage should be near something that would have been read.
    parts = [part for text in found for part in re.split(r"\n(?=func|module)", text) if part.strip()]
    return [*parts, *schedule_texts(), *plan_texts()]


@functools.cache
def schedule_texts() -> list[str]:
    import kernels

    kernels.saxpy(np.ones(8, np.float32), np.ones(8, np.float32), 1.0)
    return [kernels.saxpy.inspect_ir("schedule"), kernels.saxpy.jit(target="ptx:sm_90a").inspect_ir("schedule")]


def planned(x: Any) -> Any:
    return (ts.xp.tanh(x @ x.T) * 2.0).sum(0)


@functools.cache
def plan_texts() -> list[str]:
    return [ts.jit(planned).compiled(np.ones((4, 4), np.float32)).plan]


def ir(r: random.Random) -> Case:
    kind = r.randrange(8)
    texts = schedule_texts() if kind == 0 else plan_texts() if kind == 1 else ir_texts()
    text = damaged(r, r.choice(texts), ir_texts())

    def call() -> Any:
        if kind == 0:
            return ts.Schedule(text)
        if kind == 1:
            return ts.jit(planned, plan=text)(np.ones((4, 4), np.float32))
        module = ts.ir.parse(text)
        again = ts.ir.parse(str(module))
        assert str(again) == str(module) and again.hash() == module.hash(), "what is read is not what is printed"

    return text, call


# Source


@functools.cache
def sources() -> list[tuple[str, dict]]:
    """Functions of the gallery, as text, with the names they use."""
    sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "examples" / "kernels")]
    found = []
    for path in [*sorted((ROOT / "examples" / "kernels").glob("*.py")), ROOT / "python" / "tests" / "kernels.py"]:
        text = path.read_text(encoding="utf-8")
        names = vars(importlib.import_module(path.stem))
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and any("kernel" in ast.unparse(d) for d in node.decorator_list):
                node.decorator_list = []
                found.append((ast.unparse(node) + "\n", names))
    assert len(found) > 5, "no kernels to begin with"
    return found


PYTHON = ["for", "while", "if", "else", "return", "lambda", "yield", "await", "del", "global", "with", "try", "import", "class", "*", "**", "//", "%", "@", "<<",
          "and", "or", "not", "in", "is", ":=", "None", "True", "...", "0", "-1", "2**70", "1e400", "1j", "b'x'", "'x'", "f'{1}'", "ts", "ts.tile", "ts.f32", "range",
          "x", "y", "n", "x[0]", "x[None]", "x[...]", "x[::-1]", "x[0:2**40]", "[1, 2]", "{1: 2}", "(1,)", "ts.tile.sum", "ts.tile.zeros((4,), ts.f32)"]  # fmt: skip


def source(r: random.Random) -> Case:
    for _ in range(50):
        text, names = r.choice(sources())
        for _ in range(r.choice([1, 1, 2, 4])):
            text = damaged_source(r, text)
        try:
            compiled = compile(text, "<damaged>", "exec")
            scope = dict(names)
            exec(compiled, scope)
        except TooLong:
            raise
        except BaseException:  # Python itself refuses it
            continue
        made = [v for k, v in scope.items() if isinstance(v, types.FunctionType) and v.__code__.co_filename == "<damaged>"]
        if made:
            break
    else:
        return "", lambda: None
    fn = made[-1]
    name = f"<damaged {r.getrandbits(60)}>"
    fn.__code__ = fn.__code__.replace(co_filename=name)
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)

    def call() -> Any:
        try:
            k = ts.kernel(fn)
            k(**arguments(r, k))
        finally:
            linecache.cache.pop(name, None)

    return text, call


def arguments(r: random.Random, kernel: Any) -> dict[str, Any]:
    """Arrays that mostly fit the annotations."""
    sizes = {}
    found = {}
    for name, kind, detail, default in kernel.spec.params:
        if kind == "tensor":
            dims, elem, _, _ = detail
            shape = [sizes.setdefault(d, int(d) if d.isdigit() and int(d) < 99 else r.choice([0, 1, 4, 16, 16, 32])) for d in dims or ["n"]]
            shape = shape if r.random() < 0.9 else [8]
            found[name] = ts.array(np.ones(shape), elem if elem is not None and r.random() < 0.9 else "f32")
        elif not default or r.random() < 0.2:
            found[name] = r.choice([1, 2, 16, 0.5])
    return found


def damaged_source(r: random.Random, text: str) -> str:
    try:
        tokens = [t for t in tokenize.generate_tokens(StringIO(text).readline)]
    except (tokenize.TokenError, SyntaxError):
        return text
    at = [i for i, t in enumerate(tokens) if t.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)]
    if not at:
        return text
    one, two = tokens[r.choice(at)], tokens[r.choice(at)]
    kind = r.randrange(5)
    lines = text.splitlines(keepends=True)
    row, begin, end = one.start[0] - 1, one.start[1], one.end[1]
    if kind == 0:
        lines[row] = lines[row][:begin] + two.string + lines[row][end:]
    elif kind == 1:
        lines[row] = lines[row][:begin] + r.choice(PYTHON) + lines[row][end:]
    elif kind == 2:
        lines[row] = lines[row][:begin] + lines[row][end:]
    elif kind == 3:
        lines.insert(row, r.choice(lines[1:] or lines))
    else:
        lines[row] = lines[row][:begin] + f"({one.string}{r.choice(['+', '*', '-', '/', '//', '@', '<', 'and ', 'if 1 else '])}{two.string})" + lines[row][end:]
    return "".join(lines)


# Tuning records

JUNK = [None, True, 0, -1, 2**31, 2**63, 2**64, 0.5, 1e308, -0.0, "", "a", "f32", "x" * 3000, "\x00", "\ud800", [], {}, [[]], {"a": 1}, [None] * 40]


@functools.cache
def record() -> str:
    """A file of records, as `ts.tuning.export` writes it."""

    @ts.kernel.autotune(space=dict(B=[64, 256]))
    def double(x: ts.Tensor["n", ts.f32]):
        B = ts.tile.context().B
        i = ts.tile.program_id(0) * B
        x[i : i + B] = x[i : i + B] * 2.0

    for n in (1000, 64):
        double.tune(np.ones(n, np.float32), budget_ms=30)
    path = Path(tempfile.mkdtemp()) / "records"
    ts.tuning.export(path)
    return path.read_text(encoding="utf-8")


def places(value: Any) -> list:
    found = []
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found += [(value, key), *places(value[key])]
    return found


def records(r: random.Random) -> Case:
    text = record()
    if r.random() < 0.6:
        value = json.loads(text) if text.lstrip().startswith(("{", "[")) else [json.loads(line) for line in text.splitlines() if line]
        for _ in range(r.choice([1, 1, 2, 5])):
            found = places(value)
            if not found:
                break
            container, key = r.choice(found)
            kind = r.randrange(4)
            if kind == 0:
                del container[key]
            elif kind == 1 and isinstance(container, dict):
                container[r.choice(["", "a", *map(str, container)])] = container.pop(key)
            elif kind == 2 and isinstance(container, list):
                container.insert(key, copy.deepcopy(container[key]))
            else:
                container[key] = copy.deepcopy(r.choice(JUNK))
        text = json.dumps(value)
    else:
        text = damaged(r, text, [record()])
    data = text.encode("utf-8", "surrogatepass")
    if r.random() < 0.2 and data:
        at = r.randrange(len(data))
        data = data[:at] + bytes([r.randrange(256)]) + data[at + 1 :]
    kind = r.randrange(3)

    def call() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "records"
            path.write_bytes(data)
            if kind == 0:
                ts.tuning.merge(Path(folder) / "out", path, path)
            else:
                ts.tuning.load(path)
                for kept in ts.tuning.records():
                    json.dumps(kept)
                ts.tuning.clear()

    return text, call


# Words

SAMPLES = ["f32", "bf16", "fp8_e4m3", "i4", "key<philox4x32>", "n", "n*n", "2*n", "n+1", "128", "accum(f32)", "round(\"rtz\")", "cuda:0", "cpu", "strict", "<f4", "mxfp4"]


def words(r: random.Random) -> Case:
    text = damaged(r, r.choice(SAMPLES), SAMPLES)
    where = r.choice(["dtype", "dim", "layout", "policy", "backend", "device", "block", "profile", "schedule"])

    def call() -> Any:
        one = np.ones(8, np.float32)
        if where == "dtype":
            ts.zeros((2,), text)
        elif where == "dim":
            ts.Tensor[text, ts.f32]
        elif where == "layout":
            ts._core.layout_text([text, "64x64"], [("shape", text)])
        elif where == "policy":
            ts._core.policy_item(text)
        elif where == "backend":
            ts.jit(planned, target=text)(np.ones((2, 2), np.float32))
        elif where == "device":
            ts.runtime.capabilities(text)
        elif where == "block":
            ts.numerics.quantize(one, text)
        elif where == "profile":
            ts.jit(planned, numerics=text)
        else:
            ts.Schedule(**{"warps": text, "x": text})

    return f"{where}: {text!r}", call


BOUNDARIES: dict[str, Callable[[random.Random], Case]] = {"ir": ir, "source": source, "records": records, "words": words}


def one(name: str, seed: int, number: int) -> tuple[str, str]:
    """Runs a case. What it came to, and what it was given."""
    def late(*_: Any) -> None:
        raise TooLong

    text = "(while it was drawn)"
    signal.signal(signal.SIGALRM, late)
    try:
        text, call = BOUNDARIES[name](random.Random(f"{name} {seed} {number}"))
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
        return "taken", text
    except TooLong:
        return "long", text
    except ts.InternalError:
        return "wrong", f"{text}\n{traceback.format_exc()}"
    except ts.TesseraError as error:
        str(error)
        return ("refused" if error.code else "wrong"), text
    except BaseException:
        return "wrong", f"{text}\n{traceback.format_exc()}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="boundary_fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("boundary", choices=BOUNDARIES)
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--case", type=int)
    parser.add_argument("--all", action="store_true", help="go on after what is wrong")
    options = parser.parse_args()
    # All there is to draw from, made before time counts.
    BOUNDARIES[options.boundary](random.Random(0))
    counts: Counter = Counter()
    end = time.monotonic() + options.seconds
    number = options.case or 0
    while options.case is not None or time.monotonic() < end:
        print(f"case {number}", file=sys.stderr, flush=True)
        word, given = one(options.boundary, options.seed, number)
        counts[word] += 1
        if word == "wrong" or options.case is not None:
            print(f"{options.boundary}, --seed {options.seed} --case {number}: {word}\n{given}", flush=True)
        if options.case is not None or word == "wrong" and not options.all:
            break
        number += 1
    print(json.dumps(counts))
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    os.environ.setdefault("TESSERA_BACKEND", "interp")
    sys.exit(main())

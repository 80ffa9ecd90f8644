"""Fuzzing of plans: random functions on arrays, run by the interpreter of Graph IR and compiled.

``python -m plans.fuzz --programs 1000 --backend cpu`` from ``python/tests``; ``--seed`` repeats, ``--minutes`` bounds.

Each program is traced once for each mode: op by op (the oracle), and planned and lowered for a backend. In the profile ``strict``
all results have the oracle's bits. In ``default`` integers have them, and other numbers are within a bound: the distance of the
oracle from itself in f64, times `SLACK`, plus a small part of the largest element.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tally import Tally, arguments, day  # noqa: F401

os.environ.setdefault("RUST_BACKTRACE", "0")

from . import on_mesh, run
from .generate import generate
from .shrink import shrink
from .values import Case

#: A refusal with another code is a failure.
EXPECTED = {"E_UNSUPPORTED"}
#: How many times the rounding error of the oracle another order of operations may show.
SLACK = 50.0
EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
#: Kinds that are not drawn, with the reason: what is wrong and waits for its mending.
KNOWN: dict[str, str] = {}


def differences(want: list, got: list, case: Case | None, variants: int) -> list[str]:
    """How results differ: bit by bit, or, where the program is given, by more than rounding explains."""
    out: list[str] = []
    exact: list | None = None
    for k, (a, b) in enumerate(zip(want, got)):
        for i, (x, y) in enumerate(zip(a, b)):
            if x.shape != y.shape or x.dtype != y.dtype:
                out.append(f"result {i} is {y.dtype} of shape {y.shape}, expected {x.dtype} of shape {x.shape}")
                continue
            u = np.dtype(f"u{x.dtype.itemsize}")
            same = x.reshape(-1).view(u).reshape(x.shape) == y.reshape(-1).view(u).reshape(y.shape) if x.size else np.ones(x.shape, bool)
            if x.dtype.kind not in "biu":
                xs, ys = x.astype(np.float64), y.astype(np.float64)
                same |= np.isnan(xs) & np.isnan(ys)
                if case is not None and not same.all():
                    if exact is None:
                        exact = run.oracle(run.wide(case), variants)
                    zs = np.asarray(exact[k][i]).astype(np.float64)
                    with np.errstate(all="ignore"):
                        rough = np.abs(xs - zs)
                        rough = np.max(rough[np.isfinite(rough)], initial=0.0)
                        large = np.max(np.abs(xs[np.isfinite(xs)]), initial=1.0)
                        near = np.abs(xs - ys) <= SLACK * (rough + 8 * EPS[x.dtype.name] * large)
                    same |= near
            for where in np.argwhere(~same)[:2]:
                at = tuple(int(d) for d in where)
                out.append(f"inputs {k}: result {i}{list(at)} is {y[at]!r}, expected {x[at]!r}")
    return out


def judge(case: Case, backend: str, profile: str, variants: int = 1, want: list | None = None) -> list[str]:
    """How a plan differs from the oracle; empty where it does not."""
    if backend == "differences":
        return by_differences(case)
    if backend == "jax":
        return by_jax(case, variants)
    want = run.oracle(case, variants) if want is None else want
    got = run.compiled(case, variants, backend, profile)
    bits = profile == "strict" and case.bits
    return differences(want, got, None if bits else case, variants)


def apart(want: list[np.ndarray], got: list[np.ndarray], bound: float) -> list[str]:
    """Results in f64 that differ by more than a part of their largest element."""
    out = []
    for i, (x, y) in enumerate(zip(want, got)):
        if x.shape != y.shape:
            out.append(f"result {i} has shape {y.shape}, expected {x.shape}")
            continue
        xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
        with np.errstate(all="ignore"):
            scale = np.max(np.abs(xs[np.isfinite(xs)]), initial=1.0)
            same = (np.abs(xs - ys) <= bound * scale) | (np.isnan(xs) & np.isnan(ys)) | (xs == ys)
        for where in np.argwhere(~same)[:2]:
            at = tuple(int(d) for d in where)
            out.append(f"result {i}{list(at)} is {ys[at]!r}, expected {xs[at]!r}")
    return out


def by_differences(case: Case) -> list[str]:
    """How derivatives by rules differ from those by differences: for all of several arguments, else it is a corner."""
    if not case.counts.get("derivatives") or case.counts.get("stop_gradient"):
        return []
    variants = 3
    rules = run.oracle(run.wide(case), variants)
    steps = run.by_differences(case, variants)
    for k in range(variants):
        for each in steps:
            if not apart(each[k], rules[k], 1e-4):
                return []
    # Arguments of few different numbers may be at a corner in every variant, where several elements are the greatest: what differs from
    # above and from below says nothing.
    above, below = run.from_sides(case, variants)
    for k in range(variants):
        corners = [~np.isclose(a, b, 1e-3, 1e-3, equal_nan=True) for a, b in zip(above[k], below[k], strict=True)]
        smooth = [np.where(c, r, s) for c, r, s in zip(corners, rules[k], steps[-1][k], strict=True)]
        found = apart(smooth, rules[k], 1e-4)
        if found:
            return found
    return []


def by_jax(case: Case, variants: int) -> list[str]:
    """How the interpreter of Graph IR, with our derivatives, differs from JAX, both in f64: for all arguments, else it is a corner."""
    if case.not_jax:
        return []
    ours, theirs = run.oracle(run.wide(case), variants), run.by_jax(case, variants)
    found = [apart(t, o, 1e-8) for o, t in zip(ours, theirs)]
    return found[0] if all(found) else []


def _small(modes: list[tuple[str, str]]) -> bool:
    """Whether programs are those for meshes."""
    return any(backend == "mesh" for backend, _ in modes)


def go(
    seed: int, programs: int, modes: list[tuple[str, str]], minutes: float | None = None, stop_at: int = 5,
    say: Callable[[str], None] | None = print, shrink_for: float = 30, without: frozenset[str] = frozenset(), variants: int = 2,
    part: tuple[int, int] = (0, 1), skip: int = 0, every: bool = False, tell: Callable[[Any], None] | None = None,
) -> Tally:  # fmt: skip
    """Draws programs from ``seed`` on; ``modes`` are backends and profiles, one after another, or ``every`` one for each program;
    ``part`` says which of how many processes this is, and those before ``skip`` were drawn by another."""
    tally, failed = Tally("ops"), 0
    begin = time.monotonic()
    for number in range(part[0], programs, part[1]):
        if number < skip:
            continue
        if minutes is not None and time.monotonic() - begin > 60 * minutes or failed >= stop_at:
            break
        if tell is not None:
            # Report first what would be lost if this process died.
            tell(tally)
            tell(number)
            tally = Tally("ops")
        this = seed * 1_000_003 + number
        clock = time.perf_counter()
        case = generate(this, without, small=_small(modes))
        tally.seconds["generate"] += time.perf_counter() - clock
        if all(how == "differences" for how, _ in modes) and not case.counts.get("derivatives"):
            continue
        tally.programs += 1
        tally.constructs.update(case.counts)
        tally.size += case.ops
        clock = time.perf_counter()
        try:
            want = run.oracle(case, variants)
        except Exception as error:
            code = getattr(error, "code", "")
            if code in EXPECTED:
                tally.refusals[code] += 1
                tally.reasons[str(error).splitlines()[0]] += 1
            else:
                tally.broken.append((this, f"{type(error).__name__}: {error}"))
            continue
        finally:
            tally.seconds["oracle"] += time.perf_counter() - clock
        fine = True
        for backend, profile in modes if every else [modes[number // part[1] % len(modes)]]:
            clock = time.perf_counter()
            refused = ""
            try:
                found = judge(case, backend, profile, variants, want)
            except run.Refused as error:
                refused = str(error).splitlines()[0] if str(error) else error.code
                tally.refusals[f"{error.code} on {backend}"] += 1
                tally.reasons[refused] += 1
                if error.code in EXPECTED:
                    fine = False
                    continue
                found = [f"refused: {error}"]
            finally:
                tally.seconds[f"{backend}, {profile}"] += time.perf_counter() - clock
            if found:
                fine = False
                took = time.monotonic() - begin
                fails = failing(backend, profile, variants, refused)
                small = shrink(case, fails, shrink_for) if shrink_for else case
                text = describe(small, backend, profile, variants, took, this, found)
                tally.failures.append((this, text))
                failed += 1
                if say is not None:
                    say(text)
                break
        tally.agreed += fine
    if tell is not None:
        tell(tally)
    return tally


def failing(backend: str, profile: str, variants: int, refused: str) -> Callable[[Case], bool]:
    """Whether a program still fails in the same manner."""

    def fails(case: Case) -> bool:
        try:
            return bool(judge(case, backend, profile, variants)) and not refused
        except run.Refused as error:
            return bool(refused) and (str(error).splitlines() or [error.code])[0] == refused

    return fails


def describe(small: Case, backend: str, profile: str, variants: int, took: float, seed: int, found: list[str]) -> str:
    try:
        now = judge(small, backend, profile, variants)
    except run.Refused as error:
        now = [str(error)]
    lines = "\n".join(f"#   {line}" for line in "\n".join(now[:4] or found[:4]).splitlines()[:12])
    args = ", ".join(f"{a.name} {a.dtype}{list(a.shape)}" for a in small.args if a.name in small.text)
    args += f"; {on_mesh.described(small)}" if backend == "mesh" else ""
    return f"# seed {seed} on {backend}, {profile} ({args}), found after {took:.1f} s\n{small.text}\n{lines}\n"


#: Seconds that one program may take; a process that takes longer is ended, and its seed is a failure.
PATIENCE = 120.0


def _part(pipe: Any, given: tuple, named: dict, part: tuple[int, int], skip: int) -> None:
    go(*given, **named, part=part, skip=skip, say=None, tell=pipe.send)
    pipe.close()


def spread(processes: int, *given: Any, **named: Any) -> Tally:
    """`go` by several processes. One that dies or hangs is a failure of the program it was at; another one goes on behind it."""
    context = multiprocessing.get_context("spawn")
    whole, begin = Tally("ops"), time.monotonic()
    seed, minutes = given[0], given[3]
    stop_at = given[4] if len(given) > 4 else 5

    def start(k: int, skip: int) -> list:
        mine, theirs = context.Pipe(duplex=False)
        left = None if minutes is None else minutes - (time.monotonic() - begin) / 60
        child = context.Process(target=_part, args=(theirs, (*given[:3], left, *given[4:]), named, (k, processes), skip), daemon=True)
        child.start()
        theirs.close()
        return [k, child, mine, None, time.monotonic()]

    running = [start(k, 0) for k in range(processes)]
    looked = time.monotonic()
    while running:
        # Time in which this process did not run itself, stopped or without a core, is not theirs.
        away, looked = time.monotonic() - looked, time.monotonic()
        if away > 5:
            for one in running:
                one[4] += away
        for one in list(running):
            k, child, pipe, at, since = one
            lost = ""
            try:
                while pipe.poll(0.05):
                    received = pipe.recv()
                    if isinstance(received, int):
                        one[3], one[4] = received, time.monotonic()
                    else:
                        whole.add(received)
                        for _, text in received.failures:
                            print(text, flush=True)
            except EOFError:
                child.join()
                lost = f"the process ended with {child.exitcode}" if child.exitcode else ""
            else:
                if at is None or time.monotonic() - since < PATIENCE + named.get("shrink_for", 30):
                    continue
                child.kill()
                lost = f"nothing came in {PATIENCE:.0f} s"
            running.remove(one)
            if lost and at is not None:
                this = seed * 1_000_003 + at
                text = f"# seed {this}, found after {time.monotonic() - begin:.1f} s\n{generate(this, named.get('without', frozenset()), small=_small(given[2])).text}\n#   {lost}\n"
                whole.failures.append((this, text))
                print(text, flush=True)
                if minutes is None or time.monotonic() - begin < 60 * minutes:
                    running.append(start(k, at + 1))
        if len(whole.failures) >= stop_at:
            for _, child, *_ in running:
                child.kill()
            break
    return whole


def main(argv: list[str] | None = None) -> int:
    parser = arguments()
    parser.add_argument("--backend", action="append", help="cpu, interp, differences (of derivatives), mesh (arrays on meshes), jax; the first three where none is given")
    parser.add_argument("--profile", action="append", help="strict or default; both where none is given")
    parser.add_argument("--variants", type=int, default=2, help="arguments that each program is called with")
    parser.add_argument("--without", default="", help="kinds of statements that are not drawn, by commas")
    parser.add_argument("--all", action="store_true", help="draw also what is in KNOWN")
    parser.add_argument("--every", action="store_true", help="run each program in every backend and profile, not in one of them")
    parser.add_argument("--shrink", type=float, default=30, help="seconds to make a failing program small")
    options = parser.parse_args(argv)
    without = frozenset(options.without.split(",")) | (frozenset() if options.all else frozenset(KNOWN))
    modes = []
    for b in options.backend or ["cpu", "interp", "differences"]:
        modes += [(b, "f64")] if b in ("jax", "differences") else [(b, p) for p in options.profile or ["strict", "default"]]
    if options.one is not None:
        case = generate(options.one, without, small=_small(modes))
        print(case.text)
        for backend, profile in modes:
            try:
                print(backend, profile, judge(case, backend, profile, options.variants) or "agrees")
            except run.Refused as error:
                print(backend, profile, error)
        return 0
    print(f"seed {options.seed}, on {', '.join(f'{b} ({p})' for b, p in modes)}", flush=True)
    for name, why in KNOWN.items() if not options.all else ():
        print(f"not drawn: {name}, {why}")
    begin = time.monotonic()
    given = (options.seed, options.programs, modes, options.minutes, options.stop_at)
    tally = spread(options.processes, *given, shrink_for=options.shrink, without=without, variants=options.variants, every=options.every)
    took = time.monotonic() - begin
    print(tally.report())
    print(f"{tally.programs / took:.1f} programs a second")
    return 1 if tally.failures or len(tally.broken) > tally.programs // 100 else 0


if __name__ == "__main__":
    sys.exit(main())

"""Autotuning on a GPU without records: time for a first shape and for later ones, what it chooses, and the records it keeps.

    PYTHONPATH=build/gpu python3 -m conformance.gpu.autotune_check
    PYTHONPATH=build/gpu python3 -m conformance.gpu.autotune_check --only 'attention|records'

Every part runs in its own process with its own folder of records, and the driver's code cache is off. The limits are 10 s for
the first shape and 3 s for later ones.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Time limits in seconds.
FIRST, LATER = 10.0, 3.0


def median(values):
    return sorted(values)[len(values) // 2]


def milliseconds(*calls, rounds=15):
    """The median time of single launches of each. They alternate, and the L2 cache is flushed before each."""
    import torch

    flush = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    times = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(rounds):
        for i, call in enumerate(calls):
            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
            flush.zero_()
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times[i].append(begin.elapsed_time(end))
    return [median(t) for t in times]


def rows_of(kernel):
    """The latest report, and its rows with compile times."""
    report = kernel.tuning_report()
    kept = json.loads(report.json)["rows"]
    kept = {row["config"]: row for row in (kept.values() if isinstance(kept, dict) else kept)}
    return report, kept


def show(name, kernel, seconds, limit, tuned, default):
    report, kept = rows_of(kernel)
    states = {}
    for row in report.rows:
        states[row.state] = states.get(row.state, 0) + 1
    compiled = [row["compile_s"] for row in kept.values() if row.get("compile_s")]
    best, plain = milliseconds(tuned, default)
    mark = "ok" if seconds <= limit else "TOO SLOW"
    print(f"{name}: {seconds:.2f} s of {limit:g} ({mark}); {states}; compiling {[round(c, 2) for c in compiled]}")
    print(f"  chosen {report.chosen}: {best:.4f} ms; the choice by shape {plain:.4f} ms, {plain / best:.3f} times as long", flush=True)
    return report


def tune_matmul():
    import torch

    import tessera as ts
    from tessera.kernels import tuned

    reports = []
    shapes = [(4096, 4096, 4096), (8192, 4096, 2048), (1024, 8192, 4096), (1000, 3000, 2000)]
    for i, (m, n, k) in enumerate(shapes):
        a, b = (torch.randn(*s, device="cuda", dtype=torch.bfloat16) for s in ((m, k), (k, n)))
        torch.cuda.synchronize()
        begin = time.perf_counter()
        got = ts.op.matmul(a, b, tile="tune")
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        error = ((got.double() - a.double() @ b.double()).norm() / got.double().norm()).item()
        assert error < 4e-3, error
        reports.append(show(
            f"matmul bf16 {m}x{n}x{k}", tuned.product, seconds, LATER if i else FIRST,
            lambda: ts.op.matmul(a, b, tile="tune"), lambda: ts.op.matmul(a, b),
        ))  # fmt: skip
    print(reports[0].split("\n\n")[-1])


def tune_attention():
    import torch

    import tessera as ts
    from tessera.kernels import tuned

    # Another head dim or a mask is other code; lengths and heads are not.
    full = [(4, 16, 4096, 128, False), (16, 16, 1024, 128, False), (1, 16, 16384, 128, False), (2, 16, 2000, 128, False)]
    causal_ones = [(4, 32, 4096, 64, True), (16, 32, 1024, 64, True)]
    for i, (b, h, s, d, causal) in enumerate(full + causal_ones):
        q, k, v = (torch.randn(b, h, s, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        torch.cuda.synchronize()
        begin = time.perf_counter()
        got = ts.op.flash_attention(q, k, v, causal, tile="tune")
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        exact = (x[:1, :1].double() for x in (q, k, v))
        right = torch.nn.functional.scaled_dot_product_attention(*exact, is_causal=causal)
        error = ((got[:1, :1].double() - right).norm() / right.norm()).item()
        assert error < 6e-3, error
        first = i in (0, len(full))
        report = show(
            f"attention bf16 {b}x{h}x{s}x{d}{' causal' if causal else ''}", tuned.attention, seconds, FIRST if first else LATER,
            lambda: ts.op.flash_attention(q, k, v, causal, tile="tune"), lambda: ts.op.flash_attention(q, k, v, causal),
        )  # fmt: skip
        if first:
            print(report.split("\n\n")[-1])


def tune_examples():
    """The kernels of the examples, with their own search spaces."""
    import torch

    from examples import attention, gemm

    for i, n in enumerate((4096, 2048)):
        a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        c = torch.zeros(n, n, device="cuda")
        begin = time.perf_counter()
        gemm.gemm.tune(a, b, c)
        show(f"examples/gemm {n}", gemm.gemm, time.perf_counter() - begin, LATER if i else FIRST, lambda: gemm.gemm(a, b, c), lambda: torch.matmul(a, b))
    for i, s in enumerate((4096, 2048)):
        q, k, v, o = (torch.randn(64, s, 128, device="cuda", dtype=torch.bfloat16) for _ in range(4))
        begin = time.perf_counter()
        attention.attention.tune(q, k, v, o, is_causal=True)
        call = lambda: attention.attention(q, k, v, o, is_causal=True)  # noqa: E731
        show(f"examples/attention {s}", attention.attention, time.perf_counter() - begin, LATER if i else FIRST, call, call)


def failing():
    """Candidates that are illegal, fail when they run, or need too many resources: each is a row with a reason."""
    import torch

    import tessera as ts

    @ts.kernel.autotune(configs=[dict(B=4096, num_warps=4), dict(B=64, num_warps=64), dict(B=96, num_warps=4), dict(B=64, num_warps=4)])
    def clear(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
        B = ts.tile.context().B
        i = ts.tile.program_id(0) * B
        assert x[0] < 1.0 * B or B < 4096, "too large"
        y[i:i + B] = ts.tile.zeros((B,), ts.f32)

    x, y = (torch.full((1 << 20,), 1e6, device="cuda") for _ in range(2))
    report = clear.tune(x, y, budget_ms=2000)
    for row in report.rows:
        print(f"  {row.config}: {row.state} {row.reason}")
    states = [row.state for row in report.rows]
    assert "measured" in states and ("failed" in states or "pruned" in states), states
    assert all(row.samples or row.reason for row in report.rows)
    assert (y == 1e6).all(), "what candidates write goes into copies"
    clear(x, y)
    assert (y == 0).all()
    print("failing candidates are rows with reasons: ok")


def records():
    """Records are shared by processes, exported, cleared, imported and merged."""
    import tessera as ts

    folder = Path(os.environ["TESSERA_CACHE_DIR"])
    code = """
import sys, torch, tessera as ts
from tessera.kernels import tuned
n, wanted = int(sys.argv[1]), sys.argv[2]
a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
ts.op.matmul(a, a, tile="tune")
assert tuned.product.tuning_report().source == wanted, (tuned.product.tuning_report().source, wanted)
print(n, wanted, tuned.product.tuning_report().chosen)
"""

    def other(n, wanted):
        return subprocess.Popen([sys.executable, "-c", code, str(n), wanted])

    # Two processes concurrently, with two shapes.
    assert [p.wait() for p in [other(512, "measured"), other(768, "measured")]] == [0, 0]
    assert len(ts.tuning.records()) == 2
    one, two, both = folder / "one.json", folder / "two.json", folder / "both.json"
    assert ts.tuning.export(one) == 2
    assert [p.wait() for p in [other(512, "stored"), other(768, "stored")]] == [0, 0]
    assert ts.tuning.clear() == 2 and not ts.tuning.records()
    assert other(640, "measured").wait() == 0
    assert ts.tuning.export(two) == 1
    assert ts.tuning.merge(both, one, two) == 3
    assert ts.tuning.clear() == 1 and ts.tuning.load(both) == 3
    assert [p.wait() for p in [other(n, "stored") for n in (512, 640, 768)]] == [0, 0, 0]
    print("records shared, exported, imported and merged: ok")


PARTS = {"matmul": tune_matmul, "attention": tune_attention, "examples": tune_examples, "failing": failing, "records": records}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        if options.part != "records":
            import torch

            print(torch.cuda.get_device_name(), flush=True)
            torch.zeros(1, device="cuda")
        PARTS[options.part]()
        return 0
    failed = 0
    for name in PARTS:
        if not re.search(options.only, name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            env = {**os.environ, "TESSERA_CACHE_DIR": folder, "CUDA_CACHE_DISABLE": "1"}
            done = subprocess.run([sys.executable, "-m", "conformance.gpu.autotune_check", "--part", name], env=env)
            failed += done.returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())

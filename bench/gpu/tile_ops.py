"""Ops on parts of tiles: scans and reductions by own combiners, sort and histogram. See docs/perf/tile_ops.md.

    PYTHONPATH=build/gpu python3 -m bench.gpu.tile_ops --rounds 30 --out $OUT/tile_ops.jsonl
    PYTHONPATH=build/gpu python3 -m bench.gpu.tile_ops --only sort

Ours and the peer alternate in one process, single launches, with the L2 cache flushed before each. The output is the median of the
ratios of rates over the rounds, with its 95% confidence interval. The peer is a copy that reads and writes half of the bytes each,
and for sort the fastest of CUB's block-wide sorts (`cub_block_sort.cu`, compiled with nvcc when the program starts). Results are
compared with PyTorch's before anything is timed.
"""

import argparse
import ctypes
import functools
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import tessera as ts
from gpurun.commit import commit
from gpurun.device import Cuda
from gpurun.stats import median, ratio

#: Clock cycles that the device sleeps before each launch: longer than the host needs to enqueue it.
LEAD = 300_000
HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "examples" / "kernels"))

from selective_scan import selective_scan  # noqa: E402
from staged_matmul import staged_matmul  # noqa: E402


@ts.func
def welford(n, mean, m2, k, other, n2):
    count = n + k
    delta = other - mean
    return count, mean + delta * (k / count), m2 + n2 + delta * delta * (n * k / count)


@ts.kernel
def row_moments(x: ts.Tensor["M", 1024, ts.f32], y: ts.Out["M", 2, ts.f32]):
    row = ts.tile.program_id(0)
    t = x[row, :]
    _, mean, m2 = ts.tile.reduce((ts.tile.ones((1024,)), t, ts.tile.zeros((1024,))), welford)
    y[row, 0] = mean
    y[row, 1] = m2
    return y


@ts.kernel
def sort_rows(x: ts.Tensor["M", 1024, ts.f32], y: ts.Out["M", 1024, ts.f32]):
    row = ts.tile.program_id(0)
    y[row, :] = ts.tile.sort(x[row, :])
    return y


@ts.kernel
def sort_ints(x: ts.Tensor["M", 1024, ts.i32], y: ts.Out["M", 1024, ts.i32]):
    row = ts.tile.program_id(0)
    y[row, :] = ts.tile.sort(x[row, :])
    return y


@ts.kernel
def sort_places(x: ts.Tensor["M", 1024, ts.f32], y: ts.Out["M", 1024, ts.i32]):
    row = ts.tile.program_id(0)
    y[row, :] = ts.tile.argsort(x[row, :])
    return y


@ts.kernel
def count_bins(x: ts.Tensor["G", 131072, ts.i32], counts: ts.Out["G", 256, ts.i32], BN: int = 4096):
    g = ts.tile.program_id(0)
    total = ts.tile.zeros((256,), ts.i32)
    for i in ts.tile.range(0, 131072, BN):
        total += ts.tile.histogram(ts.tile.bounds_mask(x[g, i:i + BN], cols=131072 - i, value=-1), 256)
    counts[g, :] = total
    return counts


def copy(size):
    """A copy that reads and writes `size` bytes together."""
    pairs = [[torch.randint(0, 255, (size // 2,), dtype=torch.uint8, device="cuda") for _ in range(2)] for _ in range(2)]
    return lambda index: pairs[index % 2][1].copy_(pairs[index % 2][0])


def cub(keys):
    """CUB's block sorts by name; empty where there is no compiler."""
    library = Path(tempfile.mkdtemp()) / "cub_block_sort.so"
    command = ["nvcc", "-O3", "-arch=sm_90", "-std=c++17", "-Xcompiler", "-fPIC", "-shared", "-o", str(library)]
    try:
        subprocess.run([*command, str(HERE / "cub_block_sort.cu")], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print("no CUB:", getattr(error, "stderr", error))
        return {}
    loaded = ctypes.CDLL(str(library))

    def entry(name):
        function = getattr(loaded, name)
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]

        def run(x, y):
            stream = torch.cuda.current_stream().cuda_stream
            if code := function(x.data_ptr(), y.data_ptr(), x.shape[0], stream):
                raise RuntimeError(f"{name}: CUDA error {code}")

        return run

    names = [f"{kind}_{key}_{threads}" for kind in ("radix", "merge") for key in keys for threads in (64, 128, 256)]
    return {name: entry(name) for name in names}


class Bench:
    def __init__(self, rounds):
        self.device, self.rounds, self.rows = Cuda(), rounds, []
        self.timer = self.device.timer(lead=LEAD)

    def paired(self, name, ours, peer, label, size, keys=None, **about):
        for index in range(3):
            ours(index), peer(index)
        mine, theirs = self.timer.samples([ours, peer], self.rounds)
        found = ratio(mine, theirs)
        row = {"name": name, "peer": label, **found, "ours_us": 1e6 * median(mine), "peer_us": 1e6 * median(theirs),
               "gb_s": 1e-9 * size / median(mine), **about}  # fmt: skip
        if keys:
            row |= {"gkeys_s": 1e-9 * keys / median(mine), "peer_gkeys_s": 1e-9 * keys / median(theirs)}
        self.rows.append(row)
        rate = f", {row['gkeys_s']:4.0f} G keys/s" if keys else ""
        print(f"{name:34} {found['ratio']:.3f} [{found['low']:.3f}, {found['high']:.3f}] of {label:16} "
              f"ours {row['ours_us']:9.1f} us, peer {row['peer_us']:9.1f} us, {row['gb_s']:7.0f} GB/s{rate}", flush=True)  # fmt: skip


def scans(bench):
    for t, d, bt, bd in ((2048, 32768, 32, 128), (2048, 32768, 32, 64), (2048, 32768, 16, 128), (4096, 16384, 64, 64)):
        a = torch.rand(t, d, device="cuda") * 0.5 + 0.5
        bx, c = (torch.randn(t, d, device="cuda") for _ in range(2))
        y = torch.full_like(a, torch.nan)
        call = lambda index: selective_scan(a, bx, c, y, BT=bt, BD=bd)  # noqa: B023
        call(0)
        check_scan(a, bx, c, y)
        size = 4 * a.numel() * 4
        bench.paired(f"selective_scan {t}x{d} {bt}x{bd}", call, copy(size), "copy", size)


def check_scan(a, bx, c, y):
    columns = torch.arange(0, a.shape[1], max(1, a.shape[1] // 97), device="cuda")
    h = torch.zeros(len(columns), dtype=torch.float64, device="cuda")
    for t in range(a.shape[0]):
        h = a[t, columns].double() * h + bx[t, columns]
        expected = c[t, columns] * h
        assert ((y[t, columns] - expected).abs() <= 1e-4 * (1 + expected.abs())).all(), t
    assert not y.isnan().any()


def reductions(bench):
    x = torch.randn(131072, 1024, device="cuda")
    y = torch.full((x.shape[0], 2), torch.nan, device="cuda")
    row_moments(x, y)
    var, mean = torch.var_mean(x.double(), 1, correction=0)
    assert ((y[:, 0] - mean).abs() < 1e-5).all() and ((y[:, 1] / 1024 - var).abs() < 1e-4).all()
    size = 4 * (x.numel() + y.numel())
    bench.paired("welford rows of 1024", lambda index: row_moments(x, y), copy(size), "copy", size)


def sorts(bench):
    rows = 65536
    peers = cub(("float", "int"))
    draws = {"normal": torch.randn(rows, 1024, device="cuda"),
             "ties": torch.randint(-4, 4, (rows, 1024), device="cuda").float()}  # fmt: skip
    draws["ints"] = torch.randint(-(2**31), 2**31 - 1, (rows, 1024), dtype=torch.int32, device="cuda")
    for name, x in draws.items():
        kind, kernel = ("int", sort_ints) if x.dtype == torch.int32 else ("float", sort_rows)
        y, right = torch.zeros_like(x), torch.sort(x, dim=1).values
        kernel(x, y)
        assert (y == right).all(), name
        best, fastest = None, None
        for label, run in peers.items():
            if f"_{kind}_" not in label:
                continue
            other = torch.zeros_like(x)
            run(x, other)
            assert (other == right).all(), label
            seconds = median(bench.timer.samples([lambda index: run(x, other)], 10)[0])  # noqa: B023
            if fastest is None or seconds < fastest:
                best, fastest = (label, run), seconds
        size = 8 * x.numel()
        ours = lambda index: kernel(x, y)  # noqa: B023
        if best:
            other = torch.zeros_like(x)
            bench.paired(f"sort 1024 {name}", ours, lambda index: best[1](x, other), best[0], size, keys=x.numel())  # noqa: B023
        bench.paired(f"sort 1024 {name}", ours, copy(size), "copy", size, keys=x.numel())
    x = draws["normal"]
    y = torch.zeros(x.shape, dtype=torch.int32, device="cuda")
    sort_places(x, y)
    assert (y == torch.sort(x, dim=1, stable=True).indices).all()
    bench.paired("argsort 1024 normal", lambda index: sort_places(x, y), copy(8 * x.numel()), "copy", 8 * x.numel(), keys=x.numel())


def histograms(bench):
    groups, each = 1056, 131072
    draws = {"uniform": lambda s: torch.randint(0, 256, s, dtype=torch.int32, device="cuda"),
             "normal": lambda s: (torch.randn(s, device="cuda") * 12 + 128).clamp(0, 255).to(torch.int32),
             "one bin": lambda s: torch.full(s, 77, dtype=torch.int32, device="cuda")}  # fmt: skip
    for name, draw in draws.items():
        x = draw((groups, each))
        right = torch.stack([torch.bincount(row, minlength=256) for row in x]).int()
        counts = torch.full((groups, 256), -1, dtype=torch.int32, device="cuda")
        for bn in (4096, 8192, 16384):
            counts.fill_(-1)
            count_bins(x, counts, BN=bn)
            assert (counts == right).all(), (name, bn)
            size = 4 * x.numel()
            bench.paired(f"histogram 256 {name} BN={bn}", lambda index: count_bins(x, counts, BN=bn), copy(size), "copy", size)  # noqa: B023


@functools.lru_cache(maxsize=None)
def counter(bins, length, dtype):
    @ts.kernel
    def kernel(x: ts.Tensor["G", length, dtype], counts: ts.Out["G", bins, ts.i32], BN: int = 4096):
        g = ts.tile.program_id(0)
        total = ts.tile.zeros((bins,), ts.i32)
        for i in ts.tile.range(0, length, BN):
            part = ts.tile.bounds_mask(ts.tile.cast(x[g, i : i + BN], ts.i32), cols=length - i, value=-1)
            total += ts.tile.histogram(part, bins)
        counts[g, :] = total
        return counts

    return kernel


@functools.lru_cache(maxsize=None)
def sorter(length, dtype=ts.f32):
    @ts.kernel
    def kernel(x: ts.Tensor["M", length, dtype], y: ts.Out["M", length, dtype]):
        row = ts.tile.program_id(0)
        y[row, :] = ts.tile.sort(x[row, :])
        return y

    return kernel


@functools.lru_cache(maxsize=None)
def placer(length, dtype):
    @ts.kernel
    def kernel(x: ts.Tensor["M", length, dtype], y: ts.Out["M", length, ts.i32]):
        row = ts.tile.program_id(0)
        y[row, :] = ts.tile.argsort(x[row, :])
        return y

    return kernel


def others(bench):
    """Sizes that no choice of the compiler was made on: the tile of the example, few columns, other bins, lengths and dtypes."""
    for t, d, bt, bd in ((2048, 32768, 32, 16), (2048, 8192, 32, 64), (2048, 2048, 32, 16), (2000, 20000, 32, 96)):
        a = torch.rand(t, d, device="cuda") * 0.5 + 0.5
        bx, c = (torch.randn(t, d, device="cuda") for _ in range(2))
        y = torch.full_like(a, torch.nan)
        selective_scan(a, bx, c, y, BT=bt, BD=bd)
        check_scan(a, bx, c, y)
        call = lambda index: selective_scan(a, bx, c, y, BT=bt, BD=bd)  # noqa: B023
        bench.paired(f"other scan {t}x{d} {bt}x{bd}", call, copy(16 * a.numel()), "copy", 16 * a.numel())
    for bins, length, bn, dtype in ((64, 131072, 4096, ts.i32), (1000, 131072, 4096, ts.i32), (2048, 131072, 8192, ts.i32),
                                    (256, 100_000, 3000, ts.i32), (256, 131072, 1024, ts.i32), (256, 131072, 8192, ts.u8)):  # fmt: skip
        kind = torch.uint8 if dtype == ts.u8 else torch.int32
        x = torch.randint(0, bins, (1056, length), device="cuda").to(kind)
        counts = torch.full((len(x), bins), -1, dtype=torch.int32, device="cuda")
        kernel = counter(bins, length, dtype)
        kernel(x, counts, BN=bn)
        assert (counts == torch.stack([torch.bincount(row, minlength=bins) for row in x])).all(), (bins, length)
        size = x.numel() * x.element_size()
        call = lambda index: kernel(x, counts, BN=bn)  # noqa: B023
        bench.paired(f"other histogram {bins} {kind} {length} BN={bn}", call, copy(size), "copy", size)
    for length in (256, 1000, 4096):
        x = torch.randn(2**26 // length, length, device="cuda")
        y, zeros = torch.zeros_like(x), torch.where(torch.rand_like(x) < 0.01, -0.0, x)
        for name, data in (("normal", x), ("1% of -0.0", zeros)):
            sorter(length)(data, y)
            assert (y == torch.sort(data, dim=1).values).all(), length
            call = lambda index: sorter(length)(data, y)  # noqa: B023
            bench.paired(f"other sort {length} {name}", call, copy(8 * x.numel()), "copy", 8 * x.numel(), keys=x.numel())
    # Keys of other widths, and their places.
    for dtype, kind, lengths in ((ts.bf16, torch.bfloat16, (1024,)), (ts.f32, torch.float32, (256, 4096)), (ts.i32, torch.int32, (1024,)),
                                 (ts.f64, torch.float64, (1024,)), (ts.i64, torch.int64, (1024,))):  # fmt: skip
        for length in lengths:
            shape = (2**25 // length, length)
            x = torch.randn(shape, device="cuda").to(kind) if kind.is_floating_point else torch.randint(-(2**31), 2**31 - 1, shape, dtype=kind, device="cuda")
            right = torch.sort(x, dim=1, stable=True)
            for name, kernel, y, expected in (("sort", sorter(length, dtype), torch.zeros_like(x), right.values),
                                              ("argsort", placer(length, dtype), torch.zeros_like(x, dtype=torch.int32), right.indices)):  # fmt: skip
                kernel(x, y)
                assert (y == expected).all(), (name, dtype, length)
                size = x.numel() * (x.element_size() + y.element_size())
                call = lambda index: kernel(x, y)  # noqa: B023
                bench.paired(f"other {name} {length} {kind}", call, copy(size), "copy", size, keys=x.numel())


@ts.kernel
def matmul(A: ts.Tensor["M", "K", ts.f16], B: ts.Tensor["K", "N", ts.f16], C: ts.Out["M", "N", ts.f32],
           BM: int = 128, BN: int = 128, BK: int = 64):  # fmt: skip
    m = ts.tile.program_id(0) * BM
    n = ts.tile.program_id(1) * BN
    acc = ts.tile.zeros((BM, BN))
    for k in range(0, K, BK):
        acc = ts.tile.mma(A[m:m + BM, k:k + BK], B[k:k + BK, n:n + BN], acc)
    C[m:m + BM, n:n + BN] = acc
    return C


def stages(bench):
    """A pipeline by hand beside the compiler's own."""
    tile = dict(BM=128, BN=128, BK=64)
    for m, k, n in ((4096, 4096, 4096), (8192, 1024, 4096), (2000, 3000, 1496)):
        a, b = torch.randn(m, k, device="cuda").half(), torch.randn(k, n, device="cuda").half()
        c, d = torch.zeros(2, m, n, device="cuda").unbind()
        staged_matmul(a, b, c, **tile), matmul(a, b, d, **tile)
        assert (c == d).all() and ((c - a.float() @ b.float()).abs() < 0.5).all(), (m, k, n)
        size = 2 * (m * k + k * n) + 4 * m * n
        bench.paired(f"stages by hand {m}x{k}x{n}", lambda index: staged_matmul(a, b, c, **tile),  # noqa: B023
                     lambda index: matmul(a, b, d, **tile), "the loop", size)  # noqa: B023


WORKS = {"stages": stages, "scan": scans, "reduce": reductions, "sort": sorts, "histogram": histograms, "other": others}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    bench = Bench(options.rounds)
    print(bench.device.describe(), commit(), flush=True)
    for name, work in WORKS.items():
        if re.search(options.only, name):
            try:
                work(bench)
            except (AssertionError, RuntimeError, ts.TesseraError) as error:
                print(f"{name} FAILED: {type(error).__name__}: {error}", flush=True)
                bench.rows.append({"name": name, "failed": str(error)})
            torch.cuda.empty_cache()
    if options.out:
        options.out.write_text("".join(json.dumps(row) + "\n" for row in bench.rows))


if __name__ == "__main__":
    main()

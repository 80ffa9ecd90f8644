"""GEMM benchmark on an NVIDIA GPU: checks our results, then times them in pairs with cuBLAS.

    scripts/gpu-extension.sh                                                              here: builds build/gpu
    PYTHONPATH=build/gpu python3 -m bench.gpu.gemm --rounds 200 --out $OUT/gemm.json      there
    PYTHONPATH=build/gpu python3 -m bench.gpu.gemm --only 'bf16 4096' --config BM=128,BN=256,BK=64,num_stages=4
    PYTHONPATH=build/gpu python3 -m bench.gpu.gemm --only 'bf16 4096' --off epilogue --off mma_in_flight,interleaved_mmas

With `--ledger FILE` each row that passes also becomes a row of the ledger (`python -m ledger merge FILE` takes them in).

All variants of a row run in one process, in random order, on the same normally distributed data. Before each launch 256 MiB are
written, which evicts the L2 cache. A ratio is the library's time over ours: the median over the rounds, with its 95% confidence
interval. The library has two variants, PyTorch's default and cuBLASLt, and the faster one counts. A kernel is timed only if its
results on small integers are exact.
"""

import argparse
import contextlib
import json
import math
import os
import re
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import tessera as ts
from gpurun.commit import commit
from gpurun.compare import Mismatch
from gpurun.device import best
from gpurun.error_bounds import ROUNDING, loss
from gpurun.items import first_line
from gpurun.stats import median, micro, ratio
from ledger import kernels, op_rows, op_workloads

#: Clock cycles that the device sleeps before each launch: longer than the host needs to enqueue it.
LEAD = 150_000
#: Rows of a random result that are compared with float64.
JUDGED = 64
#: Elements of the result that one step of the check holds in float64.
CHECKED = 2**26


@dataclass(frozen=True)
class Row:
    """A matmul, and its speedup over the library: the least that is accepted, and the goal."""

    dtype: str
    M: int
    N: int
    K: int
    must: float
    aim: float
    #: The contiguous axis of each matrix: "row" or "column".
    a: str = "row"
    b: str = "row"
    #: "fast" for fp8 accumulation without promotion.
    mode: str = ""
    #: With bias and gelu; the library's matmul has neither.
    epilogue: bool = False

    @property
    def name(self):
        more = " ".join(filter(None, (self.mode, "bias+gelu" if self.epilogue else "")))
        layout = "".join("N" if side == "row" else "T" for side in (self.a, self.b))
        return f"{self.dtype} {self.M}x{self.N}x{self.K} {layout}{' ' + more if more else ''}"

    @property
    def work(self):
        """The same for the ledger."""
        more = {"a": self.a, "b": self.b, "mode": self.mode, "epilogue": self.epilogue}
        return op_workloads.matmul(self.M, self.N, self.K, self.dtype, **more)

    @property
    def flops(self):
        return 2 * self.M * self.N * self.K

    @property
    def out(self):
        return {"fp8_e4m3": "bf16", "fp8_e5m2": "bf16", "tf32": "f32", "int8": "int32"}.get(self.dtype, self.dtype)

    @property
    def precision(self):
        return "tf32" if self.dtype == "tf32" else self.mode

    @property
    def stored(self):
        return "f32" if self.dtype == "tf32" else self.dtype


def both(dtype, M, N, K, must, aim):
    return [Row(dtype, M, N, K, must, aim, b=b) for b in ("row", "column")]


TABLE = [
    *(row for shape in ((4096,) * 3, (8192,) * 3, (16384,) * 3, (4096, 14336, 4096), (8192, 8192, 1024))
      for row in both("bf16", *shape, 1.0, 1.04)),
    *both("bf16", 2048, 2048, 2048, 0.97, 1.05),
    *both("bf16", 1024, 1024, 1024, 0.85, 1.05),
    *both("bf16", 4095, 4095, 4095, 3.0, 4.5),
    *both("bf16", 4097, 4099, 4101, 3.0, 4.5),
    *both("bf16", 1000, 1000, 1000, 1.1, 1.3),
    *both("bf16", 16, 4096, 14336, 1.0, 1.4),
    *both("bf16", 64, 8192, 8192, 1.0, 1.4),
    Row("fp8_e4m3", 8192, 8192, 8192, 0.97, 1.1, b="column"),
    Row("fp8_e4m3", 8192, 8192, 8192, 0.97, 1.1, b="column", mode="fast"),
    *both("tf32", 4096, 4096, 4096, 0.95, 1.0),
    *both("f32", 4096, 4096, 4096, 0.95, 1.0),
    *both("int8", 4096, 4096, 4096, 0.95, 1.0),
    Row("bf16", 8192, 8192, 4096, 1 / 1.05, 1.0, epilogue=True),
]  # fmt: skip
#: Small rows for a dry run on the host.
TRIED = [
    Row("bf16", 64, 48, 96, 1.0, 1.0, b="column"), Row("f32", 33, 17, 5, 1.0, 1.0, a="column"),
    Row("fp8_e4m3", 32, 32, 64, 1.0, 1.0, b="column"), Row("fp8_e4m3", 32, 32, 64, 1.0, 1.0, b="column", mode="fast"),
    Row("bf16", 40, 24, 16, 1.0, 1.0, epilogue=True),
]  # fmt: skip


#: Fields of a plan that are not tunables of the ledger's kernels.
PLANNED = ("split", "cluster_m", "cluster_n", "warp_specialization", "persistent")


@dataclass(frozen=True)
class Config:
    """The pinned part of a schedule; the compiler chooses the rest."""

    values: dict = field(default_factory=dict)
    #: Compiler passes that are switched off, separated by commas.
    off: str = ""
    #: Whether the autotuner measures tile sizes.
    tuned: bool = False

    @classmethod
    def of(cls, text):
        values = {}
        for part in text.split(","):
            name, _, value = part.partition("=")
            if name not in (*kernels.TUNABLES, *PLANNED) or not (value.isdigit() or name == "warp_specialization"):
                known = ", ".join((*kernels.TUNABLES, *PLANNED))
                raise argparse.ArgumentTypeError(f"expected NAME=VALUE, with a name of {known}, got {part!r}")
            values[name] = int(value) if value.isdigit() else value
        return cls(values)

    @property
    def name(self):
        words = [f"{name}={value}" for name, value in self.values.items()]
        words += [f"without {self.off}"] * bool(self.off) + ["measuring"] * self.tuned
        return ",".join(words) or "default"

    @classmethod
    def without(cls, text):
        return cls(off=text)

    @contextlib.contextmanager
    def set(self):
        """Sets the environment in which kernels compile without the passes."""
        if not self.off:
            yield
            return
        before = os.environ.get("TESSERA_OFF")
        os.environ["TESSERA_OFF"] = self.off
        try:
            yield
        finally:
            if before is None:
                del os.environ["TESSERA_OFF"]
            else:
                os.environ["TESSERA_OFF"] = before

    def tile(self, chosen):
        """The `tile` argument of `ts.op.matmul`."""
        if self.tuned:
            return "tune"
        if not self.values:
            return None
        sides = tuple(self.values.get(name, side) for name, side in zip(("BM", "BN", "BK"), chosen))
        return {"tile": sides, **{n: v for n, v in self.values.items() if n in ("num_warps", "num_stages", *PLANNED)}}


class Bench:
    def __init__(self, device, options, about):
        self.device, self.options = device, options
        self.keeper = op_rows.Keeper(device, options.seed, about)
        self.rng = np.random.default_rng(options.seed)
        self.timer = device.timer(rng=self.rng, write=True, lead=LEAD) if device.is_cuda else device.timer(rng=self.rng)

    # Arrays

    def matrix(self, make, rows, columns, layout):
        return make((rows, columns)) if layout == "row" else make((columns, rows)).T

    def arrays(self, row, make):
        given = {
            "a": self.matrix(lambda shape: make(shape, row.stored), row.M, row.K, row.a),
            "b": self.matrix(lambda shape: make(shape, row.stored), row.K, row.N, row.b),
        }
        if row.epilogue:
            given["bias"] = make((row.N,), row.stored)
        return given

    def normal(self, shape, dtype):
        if dtype.startswith("int"):
            return self.whole(shape, dtype, 127)
        return self.device.normal(shape, dtype, self.rng)

    def whole(self, shape, dtype, most=None):
        """Integers so small that every sum is exact. Fast fp8 accumulation keeps 13 bits."""
        most = most or (1 if dtype.startswith("fp8") else 2)
        if not self.device.is_cuda:
            from tessera.arrays.create import numpy_dtype

            return self.rng.integers(-most, most + 1, shape).astype(np.float32).astype(numpy_dtype(dtype))
        torch = self.device.torch
        generator = torch.Generator(self.device.device).manual_seed(int(self.rng.integers(2**62)))
        drawn = torch.randint(-most, most + 1, shape, device=self.device.device, generator=generator)
        return drawn.float().to(self.device.dtype(dtype))

    # Ours

    def ours(self, row, config, arrays):
        a, b = arrays["a"], arrays["b"]
        more = {"bias": arrays["bias"], "activation": "gelu"} if row.epilogue else {}
        more |= {"out_dtype": row.out} if row.out != row.stored else {}
        more |= {"precision": row.precision} if row.precision else {}
        tile = config.tile(self.planned(row, a, b).tile)

        def run(index=0):
            with config.set():
                return ts.op.matmul(a, b, tile=tile, **more)

        return run

    def planned(self, row, a, b):
        from tessera.kernels import matmul

        return matmul.explain(a, b, precision=row.precision or None)

    # The library

    def peers(self, row, arrays):
        """The library's variants, by name, and others that are timed but do not count."""
        a, b = arrays["a"], arrays["b"]
        if not self.device.is_cuda:
            wide = [x.astype(np.float32) for x in (a, b)]
            return {"numpy": lambda index=0: wide[0] @ wide[1]}, {}
        torch = self.device.torch
        if row.dtype.startswith("fp8"):
            one = torch.ones((), device=self.device.device)
            more = {"scale_a": one, "scale_b": one, "out_dtype": self.device.dtype(row.out), "use_fast_accum": row.mode == "fast"}
            return {"cublaslt": lambda index=0: torch._scaled_mm(a, b, **more)}, {}
        if row.dtype == "int8":
            return {"cublaslt": lambda index=0: torch._int_mm(a, b)}, {}
        c = self.device.empty((row.M, row.N), row.out)

        def matmul(library):
            def run(index=0):
                torch.backends.cuda.preferred_blas_library(library)
                return torch.mm(a, b, out=c)

            return run

        found = {"cublas": matmul("default"), "cublaslt": matmul("cublaslt")}
        if not row.epilogue:
            return found, {}
        return found, {"fused": lambda index=0: torch._addmm_activation(arrays["bias"], a, b, use_gelu=True)}

    @contextlib.contextmanager
    def settings(self, row):
        """PyTorch's f32 matmuls are IEEE unless the row is tf32."""
        if not self.device.is_cuda:
            yield
            return
        torch = self.device.torch
        before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cuda.preferred_blas_library()
        torch.backends.cuda.matmul.allow_tf32 = row.dtype == "tf32"
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before[0]
            torch.backends.cuda.preferred_blas_library("default")

    # Correctness

    def check(self, row, config):
        arrays = self.arrays(row, self.whole)
        found = self.ours(row, config, arrays)()
        self.device.synchronize()
        wide = lambda x: self.device.wide(x.float() if self.device.is_cuda else x)  # noqa: E731
        b = wide(arrays["b"])
        step = max(1, CHECKED // max(row.N, row.K))
        for start in range(0, row.M, step):
            right = wide(arrays["a"][start : start + step]) @ b
            part = found[start : start + step]
            if row.epilogue:
                wrong = self.far(self.gelu(right + wide(arrays["bias"])), wide(part), row.out)
            else:
                wrong = wide(self.rounded(right, row.out)) != wide(part)
            if bool(wrong.any()):
                at = [int(i) for i in np.argwhere(self.device.to_host(wrong))[0]]
                got, expected = float(wide(part)[tuple(at)]), float(right[tuple(at)])
                raise Mismatch(f"{int(wrong.sum())} elements are wrong, the first at {(start + at[0], at[1])}: {got}, right is {expected}")

    def judge(self, row, arrays, found):
        """On random numbers, checks that the first rows are within the error bound of their accumulation class."""
        wide = lambda x: self.device.wide(x.float() if self.device.is_cuda else x)  # noqa: E731
        a, b = wide(arrays["a"][:JUDGED]), wide(arrays["b"])
        right, size = a @ b, abs(a) @ abs(b)
        half, least = ROUNDING.get(row.out, (0.0, 0.0))
        allowed = loss(row.dtype, row.K, row.mode == "fast") * size
        allowed = allowed + 1.01 * half * (abs(right) + allowed) + least
        wrong = abs(right - wide(found[:JUDGED])) > allowed
        if bool(wrong.any()):
            raise Mismatch(f"{int(wrong.sum())} random elements of {JUDGED} rows are beyond the error bound of their sums")

    def rounded(self, x, dtype):
        if self.device.is_cuda:
            return x.to(self.device.dtype(dtype))
        from tessera.arrays.create import numpy_dtype

        return x.astype(numpy_dtype(dtype))

    def gelu(self, x):
        if self.device.is_cuda:
            return self.device.torch.nn.functional.gelu(x)
        return np.vectorize(lambda v: 0.5 * v * (1.0 + math.erf(v / math.sqrt(2.0))))(x)

    def far(self, right, found, dtype):
        """Where the error exceeds rounding plus the error of an approximate erf."""
        half, _ = ROUNDING[dtype]
        return abs(right - found) > 1.01 * half * abs(right) + 1e-5

    # Times

    def row(self, row):
        configs = [Config(), *self.options.config, *self.options.off, *[Config(tuned=True)] * self.options.tune]
        with self.settings(row):
            refused = {}
            for config in configs:
                try:
                    self.check(row, config)
                except (Mismatch, ts.TesseraError) as error:
                    if config == Config():
                        raise
                    refused[config.name] = first_line(error)
            arrays = self.arrays(row, self.normal)
            configs = [config for config in configs if config.name not in refused]
            ours = {config.name: self.ours(row, config, arrays) for config in configs}
            if not row.epilogue:
                for run in ours.values():
                    self.judge(row, arrays, run())
            library, others = self.peers(row, arrays)
            runs = ours | {f"{name} (library)": run for name, run in (library | others).items()}
            for run in runs.values():
                for _ in range(3):
                    run()
            self.device.synchronize()
            samples = dict(zip(runs, self.timer.samples(list(runs.values()), self.options.rounds, self.options.seconds)))
        fastest = min(library, key=lambda name: median(samples[f"{name} (library)"]))
        theirs = samples[f"{fastest} (library)"]
        tera = lambda seconds: row.flops / median(seconds) * 1e-12  # noqa: E731
        not_kept = ""
        if self.options.ledger:
            mine = samples["default"]
            times = {**ratio(mine, theirs), "clock": "events", "ours_us": micro(mine), "peer_us": micro(theirs)}
            not_kept = self.keeper.try_to_keep(self.options.ledger, row.work, {fastest: times})
        return {
            "status": "pass", "peer": fastest, "peer_speed": tera(theirs), "rounds": len(theirs),
            "ours": {name: {**ratio(samples[name], theirs), "speed": tera(samples[name])} for name in ours},
            # Speedup of the default over the kernel without these passes.
            "gains": {config.name: ratio(samples["default"], samples[config.name]) for config in configs if config.off},
            "refused": refused, "samples_us": {name: micro(each) for name, each in samples.items()},
            "explained": self.explained(row, arrays), "not_kept": not_kept,
        }  # fmt: skip

    def explained(self, row, arrays):
        """The plan, and resources and configuration of the kernels that ran last."""
        from tessera.kernels import gemm

        ran = {}
        for kernel in (gemm.product, gemm.products, gemm.parts):
            fields = kernel.explain().fields
            if "resources" in fields:
                ran[kernel.name] = {"resources": fields["resources"], "config": str(fields["config"]), "hash": fields["target_hash"]}
        return {"plan": str(self.planned(row, arrays["a"], arrays["b"])), "kernels": ran}


def line(row, found):
    """A line of the table."""
    if found["status"] != "pass":
        return f"{row.name:<34} {found['status']}: {found['why'][:120]}"
    mine = found["ours"]["default"]
    tuned = {name: one for name, one in found["ours"].items() if name != "default" and name not in found["gains"]}
    mark = " " if mine["ratio"] >= row.must else "<"
    out = (
        f"{row.name:<34} {mine['ratio']:>6.3f} [{mine['low']:.3f}, {mine['high']:.3f}] {mark} {row.must:>5.2f} {row.aim:>5.2f} "
        f"{mine['speed']:>8.1f} {found['peer_speed']:>8.1f} {found['peer']:<9} {found['rounds']:>4}"
    )
    if tuned:
        name, one = max(tuned.items(), key=lambda item: item[1]["ratio"])
        out += f"  {one['ratio']:.3f} with {name}"
    for name, one in found["gains"].items():
        out += f"\n    {name:<30} {one['ratio']:>6.3f} [{one['low']:.3f}, {one['high']:.3f}] speedup of the passes"
    out += f"\n    no row for the ledger: {found['not_kept'][:300]}" if found["not_kept"] else ""
    return out + "".join(f"\n    {name}: {why[:120]}" for name, why in found["refused"].items())


HEAD = f"{'work':<34} {'ratio':>6} {'95% interval':<16}   {'must':>5} {'aim':>5} {'TFLOP/s':>8} {'theirs':>8} {'library':<9} {'n':>4}  tuned"


def parse(args=None):
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.gemm", description=__doc__.splitlines()[0])
    option = parser.add_argument
    option("--only", default="", metavar="REGEX", help="only rows whose name matches")
    option("--rounds", type=int, default=100, metavar="N", help="samples of each run of a row (100)")
    option("--seconds", type=float, default=math.inf, metavar="N", help="time limit for the samples of a row")
    option("--config", type=Config.of, action="append", default=[], metavar="BM=128,BN=256,…",
           help="also time with these tunables pinned; may be given more than once")  # fmt: skip
    option("--off", type=Config.without, action="append", default=[], metavar="PASS,…",
           help="also time without these compiler passes; may be given more than once")  # fmt: skip
    option("--tune", action="store_true", help="also time with autotuned tiles (tile=\"tune\")")
    option("--seed", type=int, default=1, metavar="N", help="seed of all random numbers (1)")
    option("--out", type=Path, metavar="FILE", help="write all results here, as JSON")
    option("--ledger", type=Path, metavar="FILE", help="also add rows of the ledger to this file")
    option("--commit", default="", help="the commit that the ledger records (default: from git)")
    option("--list", action="store_true", help="list the names of the rows")
    option("--dry-run", action="store_true", help="run small rows on the host with NumPy, to try this program")
    return parser.parse_args(args)


def main(args=None):
    options = parse(args)
    rows = [row for row in (TRIED if options.dry_run else TABLE) if re.search(options.only, row.name)]
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    device = best(options.dry_run)
    about = {**device.describe(), "commit": options.commit or commit()}
    bench = Bench(device, options, about)
    print(f"{about.get('gpu') or 'the host: a trial'}, driver {about.get('driver')}, {about['commit']}\n{HEAD}", flush=True)
    results, bad = [], 0
    for row in rows:
        try:
            found = bench.row(row)
        except Exception as error:
            bad += 1
            status = "wrong" if isinstance(error, Mismatch) else "error"
            found = {"status": status, "why": f"{type(error).__name__}: {first_line(error)}", "trace": traceback.format_exc()}
        results.append({"name": row.name, "row": row.__dict__, **found})
        print(line(row, found), flush=True)
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps({"about": about, "rows": results}), encoding="utf-8")
        if found["status"] == "error" and not device.alive():
            print("the GPU is lost to this process", flush=True)
            break
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

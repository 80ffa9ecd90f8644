"""Functions of ``ts.jit`` on the GPU, compared with their definition, op by op, on the host; then arrays of other libraries,
CUDA graphs, and errors. ``python -m conformance.gpu.graph_check``."""

from __future__ import annotations

import sys
import time
import traceback

import numpy as np

import tessera as ts
from tessera import nn, xp

rng = np.random.default_rng(0)


def f(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def mlp(params, x):
    h = nn.gelu(x @ params["a"] + params["b"])
    return h @ params["c"]


def mlp_loss(params, x):
    return (mlp(params, x) ** 2).mean()


def spun(x):
    return ts.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 1.5), (xp.asarray(0), x))[1]


PARAMS = {"a": f(96, 160), "b": f(160), "c": f(160, 64)}
CASES = {
    "elementwise": (lambda x, y: xp.exp(x) * xp.tanh(y) + x, (f(300, 70), f(300, 70))),
    "broadcast": (lambda x, y: x * y + 1.0, (f(8, 64, 48), f(48))),
    "transpose": (lambda x: xp.permute_dims(x, (1, 0)) * 2.0, (f(200, 300),)),
    "softmax": (lambda x: nn.softmax(x), (f(64, 1000),)),
    "long rows": (lambda x: nn.softmax(x), (f(4, 9000),)),
    "sum": (lambda x: xp.sum(x), (f(300, 1001),)),
    "columns": (lambda x: xp.sum(x, axis=0), (f(3001, 70),)),
    "matmul": (lambda a, b: a @ b, (f(130, 96), f(96, 200))),
    "batched": (lambda a, b: a @ b, (f(3, 33, 64), f(3, 64, 40))),
    "half": (lambda a, b: a.astype("bf16") @ b.astype("bf16"), (f(256, 128), f(128, 256))),
    "deep": (lambda a, b: a.astype("bf16").T @ b.astype("bf16"), (f(4096, 128), f(4096, 128))),
    "mlp": (mlp, (PARAMS, f(64, 96))),
    "gradient": (lambda p, x: ts.grad(mlp_loss)(p, x), (PARAMS, f(64, 96))),
    "sort": (lambda x: (xp.sort(x, axis=-1), xp.argsort(x, axis=0)), (f(7, 90),)),
    "cumsum": (lambda x: xp.cumulative_sum(x, axis=1), (f(5, 300),)),
    "gather": (lambda x, i: xp.take(x, i, axis=0), (f(50, 33), rng.integers(0, 50, 20))),
    "scatter": (lambda x, i, u: x.at[i].add(u), (f(50, 33), rng.integers(0, 50, 20), f(20, 33))),
    "random": (lambda k: (ts.random.uniform(k, (100,)), ts.random.normal(k, (33, 5))), (np.asarray(7),)),
    "while": (spun, (f(10),)),
    "cond": (lambda p, x: ts.cond(p, lambda v: v + 1, lambda v: v - 1, x), (np.asarray(True), f(9))),
}


def close(got, wanted, name):
    for g, w in zip(ts.tree.leaves(got), ts.tree.leaves(wanted), strict=True):
        g = g.numpy() if isinstance(g, ts.Array) else g.cpu().float().numpy() if hasattr(g, "cpu") else np.asarray(g)
        w = np.asarray(w)
        assert g.shape == w.shape, (name, g.shape, w.shape)
        low = w.dtype.itemsize == 2
        g, w = g.astype(np.float64), w.astype(np.float64)
        bound = (2e-2 if low else 3e-5) * (np.abs(w).max(initial=0.0) + 1e-3)
        worst = np.abs(g - w).max(initial=0.0)
        assert worst <= bound or name == "half" and worst <= 0.1, f"{name}: off by {worst}, bound {bound}"


def main() -> int:
    bad = 0

    def attempt(name, work):
        nonlocal bad
        start = time.perf_counter()
        try:
            work()
            print(f"ok   {name} ({time.perf_counter() - start:.2f} s)", flush=True)
        except Exception:
            bad += 1
            print(f"FAIL {name}\n{traceback.format_exc(limit=-3)[-1500:]}", flush=True)

    def one(name):
        fn, args = CASES[name]
        with ts.runtime.oracle():
            wanted = ts.jit(fn)(*args)
        there = ts.tree.map(lambda v: ts.array(v, device="cuda:0"), args)
        jitted = ts.jit(fn)
        for _ in range(2):
            close(jitted(*there), wanted, name)

    for name in CASES:
        attempt(name, lambda name=name: one(name))

    def of_torch():
        import torch

        x = torch.randn(64, 96, device="cuda")
        p = {k: torch.tensor(v, device="cuda") for k, v in PARAMS.items()}
        fn = ts.jit(mlp)
        with torch.cuda.stream(torch.cuda.Stream()):
            y = fn(p, x)
            assert isinstance(y, torch.Tensor) and y.is_cuda
            want = torch.nn.functional.gelu(x @ p["a"] + p["b"]) @ p["c"]
            torch.cuda.synchronize()
        assert (y - want).abs().max() < 0.2, (y - want).abs().max()
        strided = torch.randn(96, 64, device="cuda").T
        assert (ts.jit(lambda v: v * 2.0)(strided) - strided * 2).abs().max() == 0

    def of_cupy():
        import cupy

        x = cupy.asarray(f(100, 9))
        y = ts.jit(lambda v: v * 2.0 + 1.0)(x)
        assert isinstance(y, cupy.ndarray) and bool(cupy.abs(y - (x * 2 + 1)).max() < 1e-6)

    def of_jax():
        import jax
        import jax.numpy as jnp

        x = jnp.asarray(f(100, 9))
        y = ts.jit(lambda v: v * 2.0 + 1.0)(x)
        assert isinstance(y, jax.Array) and float(jnp.abs(y - (x * 2 + 1)).max()) < 1e-6

    def recorded():
        import torch

        fn = ts.jit(lambda p, x: ts.grad(mlp_loss)(p, x), capture_graph=True)
        plain = ts.jit(lambda p, x: ts.grad(mlp_loss)(p, x))
        keep = []
        for number in range(12):
            p = {k: torch.tensor(v, device="cuda") * (1 + number) for k, v in PARAMS.items()}
            x = torch.randn(64, 96, device="cuda")
            keep.append((p, x))
            for _ in range(2):
                close(fn(p, x), ts.tree.map(lambda t: t.cpu().numpy(), plain(p, x)), "recorded")
        assert fn.compiled(p, x).graphs >= 5, fn.compiled(p, x).graphs

    def undecided():
        fn = ts.jit(CASES["while"][0], capture_graph=True)
        x = ts.array(f(10), device="cuda:0")
        fn(x)
        try:
            fn(x)
        except ts.TesseraError as e:
            assert "E_CAPTURE" in str(e) and "while" in str(e), e
        else:
            raise AssertionError("a while loop was recorded")

    def on_streams(capture, drop):
        """Runs on four streams in turn, behind slow work on each, with arrays that are elsewhere each time."""
        import torch

        streams = [torch.cuda.Stream() for _ in range(4)]
        p = {k: torch.tensor(v, device="cuda") for k, v in PARAMS.items()}
        torch.cuda.synchronize()
        fn, results = ts.jit(mlp, capture_graph=capture), []
        for number in range(48):
            with torch.cuda.stream(streams[number % 4]):
                slow = torch.randn(2048, 2048, device="cuda")
                for _ in range(4):
                    slow = slow @ slow
                    slow = slow / slow.norm()
                # It holds the values only behind the products.
                x = (slow[:64, :96] * 0).nan_to_num(0.0) + number / 8
                results.append((number, fn(p, x)))
            if drop and number % 12 == 11:
                # The function goes while its runs are in flight, and others get its memory.
                del fn
                fn = ts.jit(mlp, capture_graph=capture)
                junk = [ts.full((512, 512), 7.0, device="cuda:0") for _ in range(4)]
                del junk
        torch.cuda.synchronize()
        for number, y in results:
            x = torch.full((64, 96), number / 8, device="cuda")
            want = torch.nn.functional.gelu(x @ p["a"] + p["b"]) @ p["c"]
            assert (y - want).abs().max() <= 2e-2 * want.abs().max(), (number, (y - want).abs().max(), want.abs().max())

    def in_threads():
        """Threads that compile, record and run functions of their own beside each other."""
        import threading

        failed = []

        def run(number):
            try:
                fn = ts.jit(lambda x: xp.sum(xp.exp(x * (1.0 + number)), axis=0), capture_graph=number % 2 == 0)
                with ts.runtime.stream():
                    for size in (64, 96, 64, 64):
                        host = f(size, 33)
                        got = fn(ts.array(host, device="cuda:0")).numpy()
                        close(got, np.exp(host.astype(np.float64) * (1.0 + number)).sum(0), f"thread {number}")
            except Exception:
                failed.append(traceback.format_exc(limit=-3))

        threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed[0]

    rest = {
        "torch": of_torch, "cupy": of_cupy, "jax": of_jax, "graphs": recorded, "undecided": undecided, "threads": in_threads,
        "streams": lambda: on_streams(False, False), "streams, recorded": lambda: on_streams(True, False),
        "streams, dropped": lambda: on_streams(False, True), "streams, recorded and dropped": lambda: on_streams(True, True),
    }  # fmt: skip
    for name, work in rest.items():
        attempt(name, work)
    print(f"{bad} failed")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())

"""What our kernels are timed against: a copy of the same number of bytes, PyTorch eager, `torch.compile`, and JAX.

Each function takes a workload and its sets of arrays, and returns a function of the round's index.
"""

import importlib.util
import os


def available(device):
    if not device.is_cuda:
        return ("copy",)
    return ("copy", "eager", "compile", *(("jax",) if importlib.util.find_spec("jax") else ()))


def copy(device, work, sets):
    """A copy that reads and writes half of the workload's bytes each."""
    size = work.bytes // 2
    if not device.is_cuda:
        import numpy as np

        pairs = [(np.ones(size, np.uint8), np.zeros(size, np.uint8)) for _ in sets[:2]]
        return lambda index: np.copyto(pairs[index % len(pairs)][1], pairs[index % len(pairs)][0])
    torch = device.torch
    make = lambda: torch.randint(0, 255, (size,), dtype=torch.uint8, device=device.device)  # noqa: E731
    pairs = [(make(), make()) for _ in range(max(2, min(len(sets), 4)))]
    return lambda index: pairs[index % len(pairs)][1].copy_(pairs[index % len(pairs)][0])


def _functions(torch):
    import torch.nn.functional as F

    from ledger.workloads import LAYERNORM_EPS, RMSNORM_EPS

    return {
        "softmax": (lambda x: torch.softmax(x, -1), "x"),
        "layernorm": (lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, LAYERNORM_EPS), "x scale shift"),
        "rmsnorm": (lambda x, w: F.rms_norm(x, x.shape[-1:], w, RMSNORM_EPS), "x scale"),
        "gelu": (lambda x, w: F.gelu(x + w, approximate="tanh") * x, "x w"),
        "saxpy": (lambda x, w: torch.add(w, x, alpha=1.5), "x w"),
        "sum": (lambda x: x.sum(dtype=torch.float32), "x"),
        "sum_rows": (lambda x: x.sum(-1, dtype=torch.float32), "x"),
        "transpose": (lambda x: x.T.contiguous(), "x"),
    }


def eager(device, work, sets):
    torch = device.torch
    if work.kind == "gemm":
        return lambda index: torch.matmul(*(sets[index % len(sets)][n] for n in "AB"), out=sets[index % len(sets)]["C"])
    function, names = _functions(torch)[work.kind]
    return _over(function, names, sets)


def compiled(device, work, sets):
    torch = device.torch
    torch._dynamo.reset()  # or each call would search the code of other shapes
    function, names = _functions(torch)[work.kind]
    return _over(torch.compile(function, dynamic=False), names, sets)


def _over(function, names, sets):
    args = [tuple(arrays[name] for name in names.split()) for arrays in sets]
    return lambda index: function(*args[index % len(args)])


# PyTorch's events do not see JAX's streams. So JAX, and ours compared with it, are timed with the host's clock.


def _jax_functions(jax):
    from ledger.workloads import LAYERNORM_EPS, RMSNORM_EPS

    np = jax.numpy

    def softmax(x):
        return jax.nn.softmax(x.astype(np.float32), -1).astype(x.dtype)

    def layernorm(x, w, b):
        t = x.astype(np.float32)
        t = t - t.mean(-1, keepdims=True)
        t = t * jax.lax.rsqrt((t * t).mean(-1, keepdims=True) + LAYERNORM_EPS)
        return (t * w.astype(np.float32) + b.astype(np.float32)).astype(x.dtype)

    def rmsnorm(x, w):
        t = x.astype(np.float32)
        return (t * jax.lax.rsqrt((t * t).mean(-1, keepdims=True) + RMSNORM_EPS) * w.astype(np.float32)).astype(x.dtype)

    return {"softmax": (softmax, "x"), "layernorm": (layernorm, "x scale shift"), "rmsnorm": (rmsnorm, "x scale")}


def jax_batch(device, work, sets):
    """`run(count)`: makes that many calls and waits for the last."""
    # Set before the import: by default JAX takes three quarters of the memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.15")
    import jax

    function, names = _jax_functions(jax)[work.kind]
    jitted = jax.jit(function)
    device.synchronize()
    args = [tuple(jax.dlpack.from_dlpack(arrays[name]) for name in names.split()) for arrays in sets]

    def run(count):
        for index in range(count):
            last = jitted(*args[index % len(args)])
        last.block_until_ready()

    return run

"""A short tour: three kernels, a comparison with NumPy, the IR of a kernel, a model that is trained, and the error for a
mistake.

    make demo
"""

import sys
import time

import numpy as np

import against_numpy
import tessera as ts
from attention import attention
from attention import reference as attention_reference
from gemm import gemm
from gemm import reference as gemm_reference
from saxpy import reference as saxpy_reference
from saxpy import saxpy

BOLD, PLAIN = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")


def heading(text):
    print(f"\n{BOLD}{text}{PLAIN}")


def timed(kernel, *args, **options):
    """Runs a kernel twice: the first call compiles. Returns the result and the time of the second call."""
    kernel(*args, **options)
    start = time.perf_counter()
    result = kernel(*args, **options)
    return result, time.perf_counter() - start


def run_saxpy(rng):
    x, y = rng.standard_normal((2, 1_000_003), dtype=np.float32)
    # Two calls update y twice.
    expected = saxpy_reference(x, saxpy_reference(x, y, 1.5).astype(np.float32), 1.5)
    result, seconds = timed(saxpy, x, y, 1.5)
    return f"n={x.size}", result, expected, seconds


def run_gemm(rng):
    m, n, k = 1000, 700, 900
    A, B = ts.array(rng.standard_normal((m, k)), "bf16"), ts.array(rng.standard_normal((k, n)), "bf16")
    C = ts.zeros((m, n), "f32")  # each of the two calls adds A @ B
    result, seconds = timed(gemm, A, B, C)
    return f"{m}x{n}x{k}", result, 2 * gemm_reference(A, B, np.zeros((m, n))), seconds


def run_attention(rng):
    heads, length, width = 4, 1000, 64
    Q, K, V = (ts.array(rng.standard_normal((heads, length, width)), "bf16") for _ in range(3))
    result, seconds = timed(attention, Q, K, V, is_causal=True)
    return f"{heads} heads, S={length}, D={width}", result, attention_reference(Q, K, V, True), seconds


def show_runs():
    heading("Three kernels at sizes that are not multiples of their tiles")
    columns = "{:<10} {:<24} {:<14} {:<8} {:>10} {:>10}"
    print(columns.format("kernel", "size", "dtypes", "ran on", "error", "time"))
    rng = np.random.default_rng(0)
    dtypes = {saxpy: "f32", gemm: "bf16 -> f32", attention: "bf16"}
    for kernel, run in ((saxpy, run_saxpy), (gemm, run_gemm), (attention, run_attention)):
        size, result, expected, seconds = run(rng)
        error = np.abs(result.astype(np.float64) - expected).max() / np.abs(expected).max()
        where = kernel.explain().backend
        print(columns.format(kernel.name, size, dtypes[kernel], where, f"{error:.1e}", f"{seconds * 1e3:.0f} ms"))
    print("ran on: from .explain(), recorded by the launch. error: the largest, relative to the largest value,")
    print("against NumPy in float64. time: of a second call; the first one compiles.")


def show_comparison():
    heading("Compared with NumPy, in f32, in this process")
    against_numpy.show()


def excerpt(text, wanted, lines):
    """The lines of an IR text from the first that holds ``wanted`` on, shortened to the width of a terminal."""
    rows = text.splitlines()
    start = next((i for i, row in enumerate(rows) if wanted in row), 0)
    shown = [row if len(row) <= 112 else row[:109] + "..." for row in rows[start : start + lines]]
    return "\n".join(f"    {row}" for row in shown)


def show_levels():
    levels = (
        ("graph", "what to compute", "graph.kernel_call", 2),
        ("schedule", "the plan: what is launched, and where", "sched.launch", 1),
        ("tile", "the kernel as it was written; the body of its loop", "tile.copy_async", 13),
        ("target", "what the CPU gets: LLVM IR in vectors as wide as the processor's; one of its loads", "= load <", 4),
    )
    heading("The gemm at each level of IR (excerpts of gemm.inspect_ir(level))")
    for level, what, wanted, lines in levels:
        print(f"  {level}: {what}")
        print(excerpt(gemm.inspect_ir(level), wanted, lines))


def show_training():
    heading("A model, differentiated, compiled into one program and trained: is a point inside an annulus?")
    nn = ts.nn
    model = nn.Sequential(nn.Linear(2, 64), nn.gelu, nn.Linear(64, 64), nn.gelu, nn.Linear(64, 2))
    optimiser = ts.optim.AdamW(lr=1e-2)

    @ts.jit
    def step(params, state, x, labels):
        loss, grads = ts.value_and_grad(lambda p: nn.cross_entropy(model(p, x), labels))(params)
        params, state = optimiser.update(params, grads, state)
        return params, state, loss

    @ts.jit
    def accuracy(params, x, labels):
        return (model(params, x).argmax(-1) == labels).astype("f32").mean()

    def points(count, seed):
        x = np.random.default_rng(seed).uniform(-1, 1, (count, 2)).astype(np.float32)
        radius = np.hypot(*x.T)
        return x, ((radius > 0.4) & (radius < 0.8)).astype(np.int32)

    params = ts.jit(model.init)(ts.random.key(0))
    state = optimiser.init(params)
    unseen, start = points(2000, 10**6), time.perf_counter()
    for i in range(300):
        params, state, loss = step(params, state, *points(256, i))
        if i in (0, 30, 100, 299):
            print(f"  step {i + 1:3d}  loss {float(loss):.3f}  {float(accuracy(params, *unseen)):.1%} of unseen points are right")
    print(f"  {time.perf_counter() - start:.1f} s with compiling; examples/train_gpt.py trains a language model")


def show_mistake():
    heading("A mistake: the maximum of a slice that may leave the array")
    try:

        @ts.kernel
        def row_max(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
            row = ts.tile.program_id(0)
            t = x[row, 0:64]
            y[row] = ts.tile.max(t)

    except ts.TesseraError as error:
        text = str(error).replace(__file__, "demo.py")
        print("\n".join(f"  {line}" for line in text.splitlines()))
        print(f"  ({type(error).__name__}, raised when the kernel was defined; see docs/errors/{error.code}.md)")


def show_next():
    heading("What to try next")
    for command, what in (
        ("python examples/softmax_rows.py", "row kernels: softmax, layer norm, RMS norm"),
        ("python examples/train_gpt.py", "a GPT over characters, trained in under three minutes"),
        ("docs/language.md", "the language, rule by rule, with examples that run"),
        ("TESSERA_DEBUG_IR=tile,target", "set it to print the IR of what is compiled"),
        ("make test", "everything that is checked"),
        ("make bench-cpu", "times compared with MKL, NumPy and XLA, on one core"),
    ):
        print(f"  {command:<34} {what}")
    print("  Scripts run with the Python in .venv: .venv/bin/python examples/softmax_rows.py")


if __name__ == "__main__":
    backends = [name for name, state in ts.runtime.backends().items() if state == "available"]
    print(f"Tessera {ts.__version__}, backends: {', '.join(backends)}")
    show_runs()
    show_comparison()
    show_levels()
    show_training()
    show_mistake()
    show_next()

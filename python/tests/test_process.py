"""Processes: forks, and faults of the compiler itself."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import tessera as ts
from kernels import attention, saxpy


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_forked_while_another_thread_compiles_can_use_the_kernel():
    stop = threading.Event()

    def compile_again():
        while not stop.is_set():
            attention.cache_clear()
            attention.jit(D=64)

    thread = threading.Thread(target=compile_again, daemon=True)
    thread.start()
    try:
        for _ in range(20):
            time.sleep(0.003)
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    attention.jit(D=64)
                    y = np.zeros(3, np.float32)
                    saxpy(np.ones(3, np.float32), y, 2.0)
                    status = 0 if (y == 2).all() else 2
                finally:
                    os._exit(status)
            assert ended(child) == 0
    finally:
        stop.set()
        thread.join()


def ended(child, seconds=20):
    """The exit status of a child, which is ended if it hangs."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "it hangs"


def test_a_child_keeps_what_was_compiled():
    y = np.zeros(3, np.float32)
    saxpy(np.ones(3, np.float32), y, 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        saxpy(np.ones(3, np.float32), y, 2.0)
        os._exit(0 if saxpy.explain().cache_hit else 3)
    assert ended(child) == 0


def test_a_fault_of_the_compiler_is_an_internal_error(monkeypatch):
    saxpy.cache_clear()
    y = np.zeros(3, np.float32)
    monkeypatch.setenv("TESSERA_DEBUG_PANIC", "1")
    with pytest.raises(ts.InternalError) as e:
        saxpy(np.ones(3, np.float32), y, 2.0)
    assert e.value.code == "E_UNKNOWN" and "report it" in str(e.value) and "requests it" in str(e.value)
    monkeypatch.delenv("TESSERA_DEBUG_PANIC")
    # The kernel is as usable as before.
    assert (saxpy(np.ones(3, np.float32), y, 2.0) == 2).all()


def test_importing_in_a_thread_that_forks_is_fine():
    code = "import os, tessera; pid = os.fork() or os._exit(0); print(os.waitpid(pid, 0)[1])"
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert out.stdout == "0\n", out.stderr


def test_children_forked_while_threads_compile_compile_too():
    """LLVM keeps lists for the whole process; a child that was forked while another thread changed one died by a segmentation fault."""
    script = """
import os, random, signal, threading, warnings
import numpy as np, tessera as ts
from tessera import xp

warnings.simplefilter("ignore")
end = []
def new(seed):
    c, x = seed + 0.5, np.arange(float(seed % 1000 + 3))
    form = (lambda x: xp.exp(x * -c), lambda x: xp.cumsum(x) * c, lambda x: ts.fori_loop(0, 3, lambda j, v: v * 0.5 + c, x))[seed % 3]
    assert np.isfinite(np.asarray(ts.jit(form)(x))).all()
def busy(seed):
    while not end:
        new(seed)
        seed += 7
threads = [threading.Thread(target=busy, args=(k,)) for k in range(4)]
[t.start() for t in threads]
died = []
for k in range(20):
    pid = os.fork()
    if not pid:
        signal.alarm(60)
        [new(100_000 + 3 * k + j) for j in range(3)]
        os._exit(0)
    if (status := os.waitpid(pid, 0)[1]):
        died.append(status)
end.append(1)
[t.join() for t in threads]
print(died)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "TESSERA_CACHE": "0"})
    assert done.stdout.split() == ["[]"], done.stderr

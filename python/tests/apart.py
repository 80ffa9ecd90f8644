"""Programs that run in their own process, since they change its state."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).parents[2]


def run(text: str, timeout: float = 300, **environment: str) -> subprocess.CompletedProcess:
    """Runs Python text with `ts` and `np`, and `made(text, name)` for functions that are written while it runs."""
    whole = PREFIX + textwrap.dedent(text)
    env = {**os.environ, "TESSERA_CACHE": "0", **environment}
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "script.py")
        script.write_text(whole)
        return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=timeout, env=env, cwd=ROOT)


def printed(text: str, timeout: float = 300, **environment: str) -> list[str]:
    """The lines that it prints; it must end well."""
    done = run(text, timeout, **environment)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout.splitlines()


PREFIX = '''
import linecache
import signal
import numpy as np
import tessera as ts

# A process that is started in the background may have been set to ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

def made(text, name):
    """A function of a text that has lines, as a cell of a notebook has."""
    file = f"<made-{len(linecache.cache)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = {"ts": ts, "np": np}
    exec(compile(text, file, "exec"), names)
    linecache.cache.pop(file)
    return names[name]

def heavy(n, by):
    """A kernel of many statements."""
    body = "".join(f"    a = a * b + {by + i}.0\\n" for i in range(n))
    return made(f"""@ts.kernel
def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    s = ts.tile.program_id(0) * 256
    a = x[s:s + 256]
    b = a
{body}    y[s:s + 256] = a
    return y
""", "k")
'''

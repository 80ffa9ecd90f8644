"""The cache of compiled kernels, and `tessera cache`."""

import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import tessera as ts
from kernels import saxpy
from tessera import _core
from tessera.tools.cache import _age, size_text
from tessera.tools.cli import main


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty directory of its own."""
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def run(capsys):
    def run(*arguments):
        return main(["cache", *arguments]), *capsys.readouterr()

    return run


def files(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file())


def in_another_process(code, **environment):
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    assert out.returncode == 0, out.stderr
    return out.stdout


def test_an_empty_cache_is_listed_and_cleared_and_not_made(cache, run):
    assert run("ls") == (0, f"0 entries, 0 B of at most 1.0 GiB, in {cache}\n", "")
    assert run("clear") == (0, f"removed 0 entries, 0 B, from {cache}\n", "")
    assert not cache.exists()


def test_entries_are_listed_last_used_first_and_cleared(cache, run):
    _core.cache_put("old", "saxpy for cpu", bytes(3000))
    (old,) = files(cache)
    os.utime(old, (0, 0))
    _core.cache_put("new", "gemm for cpu\nM=64", bytes(10))
    status, out, err = run("ls")
    head, first, second, total = out.splitlines()
    assert (status, err) == (0, "") and head.split() == ["age", "size", "kernel"]
    assert first.endswith("B  gemm for cpu M=64") and first.split()[1] == "s"
    assert second.split()[1:] == ["days", "3.1", "KiB", "saxpy", "for", "cpu"]
    assert total.startswith("2 entries, 3.") and total.endswith(str(cache))

    found = json.loads(run("ls", "--json")[1])
    assert set(found) == {"directory", "limit", "bytes", "entries"}
    assert found["bytes"] == sum(p.stat().st_size for p in files(cache))
    assert [set(e) for e in found["entries"]] == [{"key", "about", "bytes", "age_s"}] * 2

    status, out, _ = run("clear")
    assert status == 0 and out.startswith("removed 2 entries, 3.") and not files(cache)
    assert run("ls")[1].startswith("0 entries")
    assert _core.cache_get("new") is None


def test_another_process_finds_what_was_kept(cache):
    _core.cache_put("k", "of the parent", b"parent")
    code = """
from tessera import _core
print(_core.cache_get("k"))
_core.cache_put("c", "of the child", b"child")
"""
    assert in_another_process(code) == "b'parent'\n"
    assert _core.cache_get("c") == b"child"


def test_a_forked_child_uses_the_cache(cache):
    _core.cache_put("k", "of the parent", b"parent")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        found = _core.cache_get("k")
        _core.cache_put("c", "of the child", b"child")
        os._exit(0 if found == b"parent" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert _core.cache_get("c") == b"child"


def test_a_damaged_entry_is_ignored_and_reported_with_the_next_kernel(cache, run):
    in_another_process("from tessera import _core; _core.cache_put('k', 'a kernel', b'code')")
    (file,) = files(cache)
    file.write_bytes(file.read_bytes()[:-1])
    status, out, err = run("ls")
    assert status == 1 and out.startswith("0 entries") and err.startswith("W_CACHE_IO") and str(file) in err
    assert _core.cache_get("k") is None and not files(cache)
    saxpy.cache_clear()
    with pytest.warns(ts.TesseraWarning, match=r"W_CACHE_IO: .* was not used: it is cut short\n.*compiled anew"):
        saxpy(np.ones(3, np.float32), np.zeros(3, np.float32), 2.0)
    assert "W_CACHE_IO" in str(saxpy.explain())


def test_a_directory_that_cannot_be_written_is_reported_once(tmp_path, monkeypatch, run):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    for name in ("a", "b"):
        _core.cache_put(name, name, b"code")
        assert _core.cache_get(name) == b"code"
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(2):
            saxpy.cache_clear()
            saxpy(np.ones(3, np.float32), np.zeros(3, np.float32), 2.0)
    (warning,) = [str(w.message) for w in found]
    assert warning.startswith("W_CACHE_IO: the cache ") and "TESSERA_CACHE_DIR" in warning
    for what in ("ls", "clear"):
        status, _, err = run(what)
        assert status == 1 and "W_CACHE_IO" in err and "could not be read" in err


def test_the_cache_can_be_turned_off(cache, monkeypatch):
    _core.cache_put("k", "a kernel", b"code")
    monkeypatch.setenv("TESSERA_CACHE", "0")
    assert _core.cache_get("k") is None
    _core.cache_put("l", "a kernel", b"code")
    assert len(files(cache)) == 1
    monkeypatch.setenv("TESSERA_CACHE", "1")
    assert _core.cache_get("k") == b"code" and _core.cache_get("l") is None


def test_the_limit_is_kept(cache, monkeypatch, run):
    monkeypatch.setenv("TESSERA_CACHE_MB", "1")
    for n in range(8):
        _core.cache_put(str(n), f"kernel {n}", bytes(200_000))
    assert sum(p.stat().st_size for p in files(cache)) <= 1 << 20
    assert "of at most 1.0 MiB" in run("ls")[1]
    monkeypatch.setenv("TESSERA_CACHE_MB", "much")
    status, _, err = run("ls")
    assert status == 1 and "expected a number of MiB in TESSERA_CACHE_MB, got \"much\"" in err


def test_importing_and_interpreting_make_no_directory(cache):
    doctor = "import tessera, tessera.tools.doctor as d, sys; d.doctor(sys.stdout)"
    in_another_process(doctor, TESSERA_BACKEND="interp")
    assert not cache.exists()


def test_a_kernel_that_another_process_compiled_is_found(cache, run):
    code = """
import sys
import numpy as np
from kernels import saxpy
saxpy(np.ones(3, np.float32), np.zeros(3, np.float32), 2.0)
print(saxpy.jit().resources["from_disk_cache"])
"""
    path = os.pathsep.join([os.path.dirname(__file__), os.path.dirname(os.path.dirname(ts.__file__))])
    printed = [in_another_process(code, PYTHONPATH=path) for _ in range(2)]
    assert printed == ["false\n", "true\n"]
    assert " saxpy" in run("ls")[1]


def test_sizes_and_ages_are_short():
    assert [size_text(n) for n in (0, 1023, 1024, 150 << 10, 5 << 20, 3 << 30, 5000 << 30)] == [
        "0 B", "1023 B", "1.0 KiB", "150 KiB", "5.0 MiB", "3.0 GiB", "5000 GiB"]
    assert [_age(s) for s in (0.4, 99, 100, 5999, 6000, 47.5 * 3600, 72 * 3600)] == [
        "0 s", "99 s", "1 min", "99 min", "1 h", "47 h", "3 days"]

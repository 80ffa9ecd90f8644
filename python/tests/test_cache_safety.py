"""Cache entries and folders that others could have written: never executed, reported once, and nothing blocks."""

import hashlib
import os
import random
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

import tessera as ts
from kernels import saxpy
from tessera import _core
from tessera.tools.cli import main

SECONDS = float(os.environ.get("TESSERA_FUZZ_SECONDS", 3))
SEED = int(os.environ.get("TESSERA_FUZZ_SEED", time.time() // 86400))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty directory of its own, and a configuration beside it."""
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "cache"


def files(folder):
    return sorted(p for p in folder.rglob("*") if not p.is_dir())


def another(code, **environment):
    """What another process prints: one that has nothing in memory."""
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    assert out.returncode == 0, out.stderr
    return out.stdout


def put(*names):
    lines = "".join(f"_core.cache_put({n!r}, {n!r}, b'code of {n}')\n" for n in names)
    another("from tessera import _core\n" + lines)


def called():
    """The warnings of two calls that compile."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(2):
            saxpy.cache_clear()
            y = np.zeros(3, np.float32)
            saxpy(np.ones(3, np.float32), y, 2.0)
            assert (y == 2).all()
    return [str(w.message) for w in found]


def test_the_key_is_the_users_alone_and_not_in_the_cache(cache, tmp_path):
    put("a")
    key = tmp_path / "config" / "tessera" / "cache-key"
    assert key.stat().st_mode & 0o777 == 0o600 and key.stat().st_size == 32
    assert key.parent.stat().st_mode & 0o777 == 0o700
    (entry,) = files(cache)
    assert entry.stat().st_mode & 0o777 == 0o600 and key.read_bytes() not in entry.read_bytes()


def test_an_umask_that_lets_others_write_makes_no_entry_that_is_refused(cache):
    another("import os; os.umask(0); from tessera import _core; _core.cache_put('a', 'a', b'code')")
    assert _core.cache_get("a") == b"code"


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_directory_that_others_can_write_is_not_used_and_reported_once(cache, mode, capsys):
    put("a")
    cache.chmod(mode)
    assert _core.cache_get("a") is None
    (warning,) = called()
    assert warning.startswith(f"W_CACHE_UNTRUSTED: the cache {cache} is not used: ")
    assert f"can be written by others (mode {mode:o})" in warning and f"chmod go-w {cache}" in warning
    assert len(files(cache)) == 1
    _core.cache_put("b", "b", b"code")  # memory serves
    assert _core.cache_get("b") == b"code" and len(files(cache)) == 1


def test_a_whole_function_tells_too(cache):
    put("a")
    cache.chmod(0o777)
    with pytest.warns(ts.TesseraWarning, match="W_CACHE_UNTRUSTED"):
        ts.jit(lambda x: x * 3.0 + 1.0)(np.ones(5, np.float32))


@pytest.mark.parametrize("what", ["ls", "clear"])
def test_the_command_line_refuses_it_and_says_why(cache, capsys, what):
    put("a")
    cache.chmod(0o777)
    assert main(["cache", what]) == 1
    assert "W_CACHE_UNTRUSTED" in capsys.readouterr().err and len(files(cache)) == 1


def test_a_fifo_a_link_and_a_socket_are_not_waited_for(cache):
    for make in (os.mkfifo, lambda p: p.symlink_to(cache / "elsewhere"), lambda p: p.symlink_to("/dev/zero")):
        put("a")
        (entry,) = files(cache)
        (cache / "elsewhere").write_bytes(entry.read_bytes())
        entry.unlink()
        make(entry)
        assert another("from tessera import _core; print(_core.cache_get('a'))") == "None\n"
        for path in files(cache):
            path.unlink()


def test_an_entry_under_the_name_of_another_is_not_used(cache):
    put("a", "b")
    one, two = files(cache)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert another("from tessera import _core; print(_core.cache_get('a'), _core.cache_get('b'))") == "None None\n"


def test_another_users_entries_are_not_used(cache, tmp_path):
    put("a")
    assert another("from tessera import _core; print(_core.cache_get('a'))") == "b'code of a'\n"
    there = str(tmp_path / "of another")
    assert another("from tessera import _core; print(_core.cache_get('a'))", XDG_CONFIG_HOME=there) == "None\n"


def test_without_a_home_there_is_no_cache_on_disk(cache):
    code = """
import warnings
import numpy as np
from kernels import saxpy
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    saxpy(np.ones(3, np.float32), np.zeros(3, np.float32), 2.0)
print(*[str(w.message).splitlines()[0] for w in found])
"""
    path = os.pathsep.join([os.path.dirname(__file__), os.path.dirname(os.path.dirname(ts.__file__))])
    warning = another(code, XDG_CONFIG_HOME="", HOME="not/absolute", PYTHONPATH=path)
    assert warning.startswith("W_CACHE_UNTRUSTED: ") and "no home directory" in warning and not cache.exists()


def test_a_key_that_others_can_read_is_refused_with_what_to_do(cache, tmp_path):
    put("a")
    (tmp_path / "config" / "tessera" / "cache-key").chmod(0o644)
    (warning,) = called()
    assert "can be read by others (mode 644)" in warning and "remove" in warning


def test_a_shared_cache_is_roots_and_is_only_read(cache, monkeypatch):
    put("a")
    monkeypatch.setenv("TESSERA_CACHE_SHARED", "readonly")
    # It is in the folder for temporary files, which is writable for all.
    (warning,) = called()
    assert warning.startswith("W_CACHE_UNTRUSTED") and "TESSERA_CACHE_SHARED" in warning
    monkeypatch.setenv("TESSERA_CACHE_SHARED", "yes")
    with pytest.raises(ts.LaunchError, match='expected readonly in TESSERA_CACHE_SHARED, got "yes"'):
        _core.cache_get("a")


def test_a_record_that_others_wrote_or_could_have_written_is_not_used(cache, monkeypatch):
    @ts.kernel.autotune(space=dict(B=[64, 256]))
    def double(x: ts.Tensor["n", ts.f32]):
        B = ts.tile.context().B
        i = ts.tile.program_id(0) * B
        x[i : i + B] = x[i : i + B] * 2.0

    x = np.ones(1000, np.float32)
    double.tune(x, budget_ms=100)
    (record,) = (cache / "tuning").glob("*.json")
    assert record.stat().st_mode & 0o777 == 0o600
    good = record.read_text()
    record.write_text(good.replace("B=64", "B=46"))
    double.cache_clear()
    with pytest.warns(ts.TesseraWarning, match="not written with the user's key"):
        double(x)
    assert double.tuning_report() == "nothing was tuned yet"
    record.write_text(good)
    cache.chmod(0o777)
    monkeypatch.setenv("TESSERA_CACHE_MB", "77")  # a directory is judged once, when it is first used
    double.cache_clear()
    with pytest.warns(ts.TesseraWarning, match="W_CACHE_UNTRUSTED"):
        double(x)
    assert double.tuning_report() == "nothing was tuned yet"


def damaged(random, good, others):
    """An entry as a forger would make it, or a disk."""
    kind = random.randrange(5)
    bad = bytearray(good)
    if kind == 0:
        for _ in range(random.randint(1, 8)):
            bad[random.randrange(len(bad))] ^= 1 << random.randrange(8)
    elif kind == 1:
        del bad[random.randrange(len(bad)) :]
    elif kind == 2:
        bad += random.randbytes(random.randint(1, 100))
    elif kind == 3:
        bad = bytearray(random.choice(others))
    else:
        at = random.randrange(len(bad))
        bad[at : at + 8] = random.choice([b"\xff" * 8, bytes(8), (1 << 62).to_bytes(8, "little")])
    return bytes(bad)


def test_random_damage_is_never_believed(cache):
    """Bits that change, files that are cut, and entries that change places."""
    print(f"entries of the cache: SEED={SEED}")
    rng = random.Random(SEED)
    for name in "abcdef":
        _core.cache_put(name, f"kernel {name}", hashlib.sha256(name.encode()).digest() * 3)
    entries = {p: p.read_bytes() for p in files(cache)}
    by_name = {name: hashlib.sha256(name.encode()).digest() * 3 for name in "abcdef"}
    end = time.monotonic() + min(SECONDS, 600)
    rounds = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while time.monotonic() < end:
            path = rng.choice(list(entries))
            bad = damaged(rng, entries[path], list(entries.values()))
            for p, good in entries.items():
                p.write_bytes(good)
                p.chmod(0o600)
            path.write_bytes(bad)
            # Another limit is another store, with nothing in memory.
            os.environ["TESSERA_CACHE_MB"] = str(1000 + rounds % 2)
            _core.cache_entries()
            for name, right in by_name.items():
                assert _core.cache_get(name) in (right, None), (SEED, rounds)
            intact = sum(_core.cache_get(name) is not None for name in by_name)
            assert intact == 6 if bad == entries[path] else intact == 5, (SEED, rounds)
            rounds += 1
    os.environ.pop("TESSERA_CACHE_MB", None)
    assert rounds > 20

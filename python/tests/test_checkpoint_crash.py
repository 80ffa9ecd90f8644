"""A file that `ts.save` writes is the old or the new one, whole, whatever ends the program, the disk or the machine."""

import errno
import itertools
import os
import resource
import stat
import subprocess
import sys
import threading

import numpy as np
import power_cut
import pytest
from checkpoint_trees import same

import tessera as ts
from tessera.checkpoint import durable

OLD = {"w": np.full(5, 1, np.float32), "n": 1}
NEW = {"w": np.full(5, 2, np.float32), "b": np.arange(3), "n": 2}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


def bytes_of(path, tree):
    ts.save(path, tree)
    data = path.read_bytes()
    path.unlink()
    return data


def recorded(monkeypatch, path, files):
    monkeypatch.setattr(durable, "FILES", files)
    ts.save(path, NEW)
    monkeypatch.undo()
    return files.log


def cuts(log, path, before):
    """What is left after a cut behind each operation: the number of operations, and a file."""
    for count in range(len(log) + 1):
        yield from ((count, left) for left in power_cut.after_cut(log[:count], str(path), before))


def test_a_power_cut_leaves_the_old_file_or_the_new_one(path, tmp_path, monkeypatch):
    old, new = bytes_of(path, OLD), bytes_of(path, NEW)
    log = recorded(monkeypatch, path, power_cut.Recorded())
    assert [kind for kind, *_ in log] == ["create", "write", "write", "write", "fsync", "rename", "fsync_dir"]
    found = {}
    for count, left in cuts(log, path, old):
        assert left is not None, f"no file after {count} operations"
        found.setdefault(count, set()).add(left)
    for count, all_left in found.items():
        for left in all_left:
            path.write_bytes(left)
            back = ts.load(path)
            assert same(back, OLD) is None or same(back, NEW) is None, f"after {count} operations"
    # Before the rename only the old one, and once `ts.save` has returned only the new one.
    assert found[len(log) - 2] == {old} and found[len(log)] == {new} and found[len(log) - 1] == {old, new}
    assert {left for _, left in cuts(log, path, None)} == {None, new}


class NoSync(power_cut.Recorded):
    def fsync(self, handle):
        pass


class NoFolderSync(power_cut.Recorded):
    def fsync_dir(self, folder):
        pass


class InPlace(power_cut.Recorded):
    """Removes the old file before the new one has its name."""

    def rename(self, old, new):
        self.unlink(new)
        super().rename(old, new)


def test_the_power_cuts_find_what_is_missing(path, monkeypatch):
    old, new = bytes_of(path, OLD), bytes_of(path, NEW)
    left = {left for _, left in cuts(recorded(monkeypatch, path, NoSync()), path, old)}
    assert any(data not in (old, new) for data in left)
    log = recorded(monkeypatch, path, NoFolderSync())
    assert old in set(power_cut.after_cut(log, str(path), old))
    assert None in {left for _, left in cuts(recorded(monkeypatch, path, InPlace()), path, old)}


class Failing(durable.Files):
    """Fails in one operation, as a full or broken disk does."""

    def __init__(self, at):
        self.left = at

    def _count(self):
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(self, handle, data):
        # Half of it is written when the disk turns out to be full.
        super().write(handle, data[: len(data) // 2])
        self._count()
        super().write(handle, data[len(data) // 2 :])


for _name in ("create", "chmod", "fsync", "close", "rename"):

    def _failing(self, *args, name=_name):
        self._count()
        return getattr(durable.Files, name)(self, *args)

    setattr(Failing, _name, _failing)


def test_a_failure_of_any_operation_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    ts.save(path, OLD)
    for at in itertools.count(1):
        files = Failing(at)
        monkeypatch.setattr(durable, "FILES", files)
        try:
            ts.save(path, NEW)
        except ts.CheckpointError as error:
            assert error.code == "E_CHECKPOINT" and "No space left" in error.message and "as it was" in error.help
            assert isinstance(error.__cause__, OSError)
        else:
            break
        monkeypatch.undo()
        assert same(ts.load(path), OLD) is None and os.listdir(path.parent) == [path.name]
    assert at == 9 and same(ts.load(path), NEW) is None and os.listdir(path.parent) == [path.name]


def test_a_failed_sync_of_the_folder_is_reported_and_leaves_the_new_file(path, monkeypatch):
    class Broken(durable.Files):
        def fsync_dir(self, folder):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(durable, "FILES", Broken())
    with pytest.raises(ts.CheckpointError, match="Input/output error"):
        ts.save(path, NEW)
    assert same(ts.load(path), NEW) is None and os.listdir(path.parent) == [path.name]


def test_an_interrupt_leaves_nothing_beside_the_file(path, monkeypatch):
    class Interrupted(durable.Files):
        def fsync(self, handle):
            raise KeyboardInterrupt

    ts.save(path, OLD)
    monkeypatch.setattr(durable, "FILES", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        ts.save(path, NEW)
    assert same(ts.load(path), OLD) is None and os.listdir(path.parent) == [path.name]


def test_temporaries_are_new_files_of_the_owner_beside_the_target(path, monkeypatch):
    others = {name: path.with_name(name) for name in ("run.tmp", "run.safetensors.tmp", ".run.tmp")}
    for other in others.values():
        other.write_text("the user's own")
    seen = []

    class Watched(durable.Files):
        def create(self, fresh):
            handle = super().create(fresh)
            seen.append((os.path.dirname(fresh), stat.S_IMODE(os.fstat(handle).st_mode)))
            with pytest.raises(FileExistsError):
                super().create(fresh)
            return handle

    monkeypatch.setattr(durable, "FILES", Watched())
    before = os.umask(0o027)
    try:
        ts.save(path, NEW)
    finally:
        os.umask(before)
    assert seen == [(str(path.parent), 0o600)] and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert all(other.read_text() == "the user's own" for other in others.values())
    assert sorted(os.listdir(path.parent)) == sorted([*others, path.name])


def test_a_link_is_replaced_and_what_it_leads_to_is_not_written(path):
    victim = path.with_name("victim")
    victim.write_text("kept")
    path.symlink_to(victim)
    ts.save(path, NEW)
    assert victim.read_text() == "kept" and not path.is_symlink() and same(ts.load(path), NEW) is None


def test_relative_paths_and_long_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ts.save("x.safetensors", NEW)
    long = "é" * 120 + ".safetensors"
    ts.save(long, NEW)
    assert same(ts.load(b"x.safetensors"), NEW) is None and same(ts.load(long), NEW) is None
    with pytest.raises(ts.CheckpointError, match="File name too long"):
        ts.save("x" * 300, NEW)
    # Bytes that are no text.
    ts.save(b"\xff.safetensors", NEW)
    assert same(ts.load(b"\xff.safetensors"), NEW) is None
    with pytest.raises(FileNotFoundError, match="where there is none"):
        ts.load(b"\xfe.safetensors")


def test_threads_save_one_file_together(path):
    failed = []

    def work(value):
        for _ in range(20):
            try:
                ts.save(path, {"w": np.full(500, value)})
                w = ts.load(path)["w"]
                assert (w == w[0]).all() and w.shape == (500,)
            except BaseException as error:  # noqa: BLE001
                failed.append(error)

    threads = [threading.Thread(target=work, args=(v,)) for v in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed and os.listdir(path.parent) == [path.name]


def run(script, *args, **kwargs):
    done = subprocess.run([sys.executable, "-c", script, *map(str, args)], capture_output=True, text=True, timeout=120, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout


#: Processes that save one file are killed at any time; others share it. Forks, so that the package is imported once.
KILLED = """
import os, random, signal, sys, time
import numpy as np, tessera as ts
path, r = sys.argv[1], random.Random(int(sys.argv[2]))
def tree(value):
    return {"w": np.full(200_000, value, np.float32), "n": value}
def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return pid
def whole():
    back = ts.load(path)
    assert (back["w"] == back["n"]).all() and back["w"].shape == (200_000,), back
    return back["n"]
def forever():
    for value in range(1, 1_000_000):
        ts.save(path, tree(value))
ts.save(path, tree(0))
seen = set()
for _ in range(30):
    pid = child(forever)
    time.sleep(r.uniform(0.0, 0.03))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    seen.add(whole())
left = [n for n in os.listdir(os.path.dirname(path)) if n != os.path.basename(path)]
assert all(n.startswith(".run.safetensors-") and n.endswith(".tmp") for n in left), left
print(len(seen), len(left))
"""


def test_killed_processes_leave_the_old_file_or_the_new_one(path):
    different, left = map(int, run(KILLED, path, 3).split())
    # Some died in the middle of a save, and some behind one.
    assert different > 1 and left > 0


SHARED = """
import os, sys
import numpy as np, tessera as ts
path = sys.argv[1]
pids = []
for rank in range(4):
    pid = os.fork()
    if pid == 0:
        try:
            for k in range(60):
                ts.save(path, {"w": np.full(1000, rank), "n": k})
                back = ts.load(path)
                assert (back["w"] == back["w"][0]).all() and len(back["w"]) == 1000
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    pids.append(pid)
print(sum(os.waitpid(pid, 0)[1] != 0 for pid in pids), os.listdir(os.path.dirname(path)))
"""


def test_processes_share_a_file(path):
    assert run(SHARED, path).strip() == "0 ['run.safetensors']"


FULL = """
import sys, numpy as np, tessera as ts
try:
    ts.save(sys.argv[1], {"w": np.ones(200_000)})
except ts.CheckpointError as error:
    print(error.message.rpartition(": ")[2], "as it was" in error.help)
"""


def test_a_limit_on_files_leaves_the_old_one(path):
    ts.save(path, OLD)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # noqa: E731
    assert run(FULL, path, preexec_fn=limit).strip() == "File too large True"
    assert same(ts.load(path), OLD) is None and os.listdir(path.parent) == [path.name]


def test_a_full_disk_leaves_the_old_one(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("may not mount a file system")
    try:
        path = disk / "run.safetensors"
        ts.save(path, OLD)
        with pytest.raises(ts.CheckpointError, match="No space left on device") as caught:
            ts.save(path, {"w": np.ones(200_000)})
        assert caught.value.code == "E_CHECKPOINT" and same(ts.load(path), OLD) is None and os.listdir(disk) == [path.name]
        ts.save(path, NEW)
        assert same(ts.load(path), NEW) is None
    finally:
        subprocess.run(["umount", disk], check=True)

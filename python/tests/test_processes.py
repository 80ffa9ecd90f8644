"""Programs in several processes: the bits of one, and what every process gets when one goes wrong."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

CASE = Path(__file__).with_name("processes_case.py")
#: Longer than any of these takes, so that a fault is an error and no hang.
LIMIT = 90


def launched(count, script, *arguments, timeout=20, **variables):
    """The status and all that was printed, and how long it took."""
    command = [sys.executable, "-m", "tessera", "run", "-n", str(count), "--timeout", str(timeout), str(script), *map(str, arguments)]
    begin = time.monotonic()
    made = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=LIMIT)
    return made.returncode, made.stdout + made.stderr, time.monotonic() - begin


#: Of the day, or as it is given; printed, so that a failure can be repeated.
SEED = os.environ.get("TESSERA_FUZZ_SEED", str(int(time.time()) // 86400))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process computes."""
    path = tmp_path_factory.mktemp("alone") / "values.npz"
    subprocess.run([sys.executable, CASE, path, SEED], check=True, timeout=LIMIT)
    return np.load(path)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_processes_compute_the_bits_of_one(count, alone, tmp_path):
    print(f"TESSERA_FUZZ_SEED={SEED}")
    status, text, _ = launched(count, CASE, tmp_path / "values.npz", SEED)
    assert status == 0, text
    found = np.load(tmp_path / "values.npz")
    assert set(found) == set(alone)
    for name in alone:
        assert found[name].shape == alone[name].shape and found[name].tobytes() == alone[name].tobytes(), name


BLOCKS = """
import numpy as np
import tessera as ts
from tessera import collective, dist
from tessera.trace.execute import Blocks

seen = []
made = Blocks.__init__
Blocks.__init__ = lambda self, shape, dtype, splits, of_rank, known: (seen.append([b is not None for b in of_rank]), made(self, shape, dtype, splits, of_rank, known))[1]
mesh = dist.mesh(4, ("dp",), (4,))
x = dist.shard(np.ones((8, 8), "f4"), dist.spec("dp"), mesh)
own = [rank in mesh.local_ranks for rank in range(4)]
assert [b is not None for b in x._blocks] == own
ts.jit(lambda x: x @ x.T)(x)
dist.shard_map(lambda x: collective.all_reduce(x, "dp"), mesh, in_specs=dist.spec("dp"), out_specs=dist.spec("dp"))(x)
assert seen == [own, own], seen
try:
    x.parts("dp")
except ts.TesseraError as error:
    assert error.code == "E_UNSUPPORTED"
else:
    raise AssertionError
"""


def test_a_process_computes_the_blocks_of_its_ranks_alone(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(BLOCKS)
    status, text, _ = launched(2, script)
    assert status == 0, text


STEPS = """
import sys, time
import numpy as np
from tessera import collective, dist

mesh = dist.mesh(dist.world_size(), ("dp",), (dist.world_size(),))
x = dist.from_local(lambda rank: np.ones(100, "f4"), dist.spec(sum=("dp",)), mesh)
try:
    for round in range(4):
        total = collective.all_reduce(x, "dp")
    print("total", total.full()[0])
except dist.CommError as error:
    print(error.code, error.rank, error.message)
    print(error, file=sys.stderr)
    # Later ones are the same error, and no hang.
    try:
        x.full()
    except dist.CommError as again:
        assert again.code == error.code
    time.sleep(0.5)
    sys.exit(3)
"""


def faulty(tmp_path, fault, **options):
    script = tmp_path / "script.py"
    script.write_text(STEPS)
    status, text, seconds = launched(3, script, TESSERA_FAULT=fault, **options)
    lines = {int(line[1]): line[4:] for line in text.splitlines() if line[4:].startswith(("E_", "total"))}
    return status, lines, seconds, text


@pytest.mark.parametrize("at", [0, 2])
def test_a_killed_process_is_lost_to_all(tmp_path, at):
    status, lines, seconds, text = faulty(tmp_path, f"rank=2,at={at},do=kill")
    assert status == 128 + 9, text
    assert set(lines) == {0, 1} and all(line.startswith("E_RANK_LOST 2 ") for line in lines.values()), text
    assert seconds < 10


def test_a_process_without_a_connection_is_lost_to_all(tmp_path):
    status, lines, seconds, text = faulty(tmp_path, "rank=1,at=1,do=drop")
    assert status == 3 and set(lines) == {0, 1, 2}, text
    assert all(line.startswith("E_RANK_LOST 1 expected process 1 to ") for line in lines.values()), text
    assert seconds < 10


def test_a_process_that_hangs_is_named(tmp_path):
    status, lines, seconds, text = faulty(tmp_path, "rank=0,at=1,do=hang", timeout=2)
    # It hangs until the launcher ends it; the others have ended by themselves.
    assert status == 3 and seconds < 12
    assert all(lines[rank].startswith("E_TIMEOUT_COMM 0 expected process 0 in ") for rank in (1, 2)), text
    assert "process 0 runs its program; of its collectives, the last that is known: in all_to_all" in text


def test_a_slow_process_is_waited_for(tmp_path):
    status, lines, _, text = faulty(tmp_path, "rank=1,at=1,do=slow,seconds=1")
    assert status == 0 and lines == dict.fromkeys(range(3), "total 3.0"), text


def test_a_damaged_message_is_found(tmp_path):
    status, lines, _, text = faulty(tmp_path, "rank=1,at=1,do=corrupt")
    assert set(lines) == {0, 1, 2}, text
    assert all(line.startswith("E_DESYNC ") and "checksum of rank 1's" in line for line in lines.values()), text


def test_a_fault_that_is_none_is_refused(tmp_path):
    status, _, _, text = faulty(tmp_path, "rank=1,do=nothing")
    assert status == 1 and "E_COMM_INIT" in text and "do` is kill, hang" in text


DIFFER = """
import numpy as np
from tessera import collective, dist

mesh = dist.mesh(2, ("dp",), (2,))
x = dist.from_local(lambda rank: np.ones(4, "f4"), dist.spec(sum=("dp",)), mesh)
n = 4 if dist.rank() == 0 else 5
y = dist.from_local(lambda rank: np.ones(n, "f4"), dist.spec("dp"), mesh)
y.full()
"""


def test_processes_that_differ_are_an_error_of_all(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(DIFFER)
    status, text, _ = launched(2, script)
    assert status == 1 and text.count("[E_DESYNC]") >= 2, text


def test_an_exception_ends_all(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(STEPS.replace("for round in range(4):", "for round in range(4):\n        if round == 1 and dist.rank() == 1: raise KeyError('a fault of the user')"))
    status, text, seconds = launched(2, script)
    assert status == 1 and "a fault of the user" in text, text
    assert "E_RANK_LOST 1 expected process 1 in all_to_all, got the end of its program" in text and seconds < 10, text

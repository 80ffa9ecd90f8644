"""``tessera run``: processes, what they print, and how they end."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

#: Longer than any of these takes, so that a fault is an error and no hang.
LIMIT = 60


def started(tmp_path, text, *options, count=2, arguments=()):
    script = tmp_path / "script.py"
    script.write_text(text)
    command = [sys.executable, "-m", "tessera", "run", "-n", str(count), *options, str(script), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process):
    """The status, the lines of both streams sorted, and the segments of shared memory that are left."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    left = [f for f in os.listdir("/dev/shm") if f.startswith(f"tessera-{process.pid}-")]
    assert not left
    return process.returncode, sorted(out.splitlines()), err


HELLO = """
import sys
from tessera import dist
print("process", dist.rank(), "of", dist.world_size(), sys.argv[1:])
print("an error", file=sys.stderr)
dist.shutdown()
"""


def test_processes_know_their_number_and_print_it(tmp_path):
    status, out, err = ended(started(tmp_path, HELLO, arguments=["--flag", "x"]))
    assert status == 0, err
    assert out == ["[0] process 0 of 2 ['--flag', 'x']", "[1] process 1 of 2 ['--flag', 'x']"]
    assert sorted(err.splitlines()) == ["[0] an error", "[1] an error"]


def test_one_process_and_none(tmp_path):
    status, out, _ = ended(started(tmp_path, HELLO, count=1))
    assert (status, out) == (0, ["[0] process 0 of 1 []"])
    plain = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=LIMIT)
    assert plain.stdout == "process 0 of 1 []\n"


def test_the_first_failure_ends_all(tmp_path):
    text = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(7)\ntime.sleep(600)"
    begin = time.monotonic()
    status, _, _ = ended(started(tmp_path, text, count=3))
    assert status == 7 and time.monotonic() - begin < 10
    assert ended(started(tmp_path, "import os\nif os.environ['RANK'] == '0': os.abort()"))[0] == 128 + signal.SIGABRT


def test_signals_are_handed_on(tmp_path):
    text = "import os, time\ntry:\n  print('ready', flush=True)\n  time.sleep(600)\nexcept KeyboardInterrupt: print('interrupted')"
    process = started(tmp_path, text)
    lines = {process.stdout.readline() for _ in range(2)}
    assert lines == {"[0] ready\n", "[1] ready\n"}
    process.send_signal(signal.SIGINT)
    status, out, _ = ended(process)
    assert (status, out) == (128 + signal.SIGINT, ["[0] interrupted", "[1] interrupted"])
    process = started(tmp_path, text)
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 128 + signal.SIGTERM


WAITS = """
import os, time
import numpy as np
from tessera import dist
mesh = dist.mesh(2, ("dp",), (2,))
x = dist.shard(np.arange(4.0), dist.spec("dp"), mesh)
x.full()
print("ready", flush=True)
try:
    if dist.rank():
        time.sleep(600)
    x.full()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_signal_ends_what_waits_for_others(tmp_path):
    process = started(tmp_path, WAITS)
    assert {process.stdout.readline() for _ in range(2)} == {"[0] ready\n", "[1] ready\n"}
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    status, out, err = ended(process)
    assert (status, out) == (128 + signal.SIGINT, ["[0] interrupted", "[1] interrupted"]), err


@pytest.mark.parametrize(("arguments", "text"), [(["-n", "0", "x.py"], "cannot read x.py"), (["-n", "0", __file__], "expected 1 to 128 processes"),
                                                 (["-n", "1", "--timeout", "0", __file__], "expected a positive --timeout")])  # fmt: skip
def test_wrong_arguments_are_refused(arguments, text):
    made = subprocess.run([sys.executable, "-m", "tessera", "run", *arguments], capture_output=True, text=True, timeout=LIMIT)
    assert made.returncode == 2 and text in made.stderr


OTHERS = """
import time
import numpy as np
from tessera import dist
mesh = dist.mesh(2, ("dp",), (2,))
x = dist.shard(np.arange(4.0), dist.spec("dp"), mesh)
print(x.full().tolist(), flush=True)
# Process 0, which listens, ends first: nobody needs it any more.
if dist.rank():
    time.sleep(1)
    print(x.local(1).tolist())
"""


def test_other_launchers_set_the_same_variables(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = tmp_path / "script.py"
    script.write_text(OTHERS)
    made = []
    for rank in (1, 0):
        known = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        made.append(subprocess.Popen([sys.executable, script], env=known, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    try:
        found = [p.communicate(timeout=LIMIT) for p in made]
    finally:
        for p in made:
            p.kill()
    assert [p.returncode for p in made] == [0, 0], found
    assert [out for out, _ in found] == ["[0.0, 1.0, 2.0, 3.0]\n[2.0, 3.0]\n", "[0.0, 1.0, 2.0, 3.0]\n"]
    assert not [f for f in os.listdir("/dev/shm") if f.startswith(tuple(f"tessera-{p.pid}-" for p in made))]


def test_variables_that_do_not_fit_are_errors():
    def with_variables(**names):
        code = "from tessera import dist\ntry: dist.init(timeout=0.5)\nexcept dist.CommError as e: print(e.code, e.message)"
        known = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        made = subprocess.run([sys.executable, "-c", code], env={**known, **names}, capture_output=True, text=True, timeout=LIMIT)
        assert made.returncode == 0, made.stderr
        return made.stdout

    assert "none of WORLD_SIZE, MASTER_ADDR" in with_variables(RANK="0", MASTER_PORT="1234")
    fitting = dict(RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="9")
    assert with_variables(**fitting).startswith("E_COMM_INIT expected a coordinator at 127.0.0.1:9 within")
    assert "a token" in with_variables(**{**fitting, "MASTER_ADDR": "10.1.2.3"})
    assert "E_COMM_INIT expected RANK from 0 to 1" in with_variables(**{**fitting, "RANK": "2"})
    # One of them alone is another program's, and the program may be run by itself.
    assert with_variables(RANK="0") == "" == with_variables(**fitting, TESSERA_DIST="off")

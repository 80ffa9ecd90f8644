"""The tool of `make soak` for a few seconds: everything runs, and what it counts is flat."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import soak


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")
def test_a_short_run_is_flat(tmp_path):
    here = Path(__file__).parent
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent)])}
    done = subprocess.run(
        [sys.executable, "-m", "soak", "--minutes", "0.06", "--samples", "6", "--seed", "1"], capture_output=True, text=True, timeout=300, env=env
    )
    assert done.returncode in (0, 1) and not done.stderr, done.stderr[-3000:]
    for measure in ("fds", "threads", "files"):
        assert f"{measure}: flat" in done.stdout, done.stdout


def test_a_rise_is_distinguished_from_noise():
    assert soak.rise([5, 5, 5, 5]) == 0 and soak.rise([0, 1, 2, 3, 4, 5, 6, 7]) == 8
    assert soak.rise([5, 9, 5, 5, 5, 9, 5, 5]) == 0

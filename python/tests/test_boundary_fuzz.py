"""Damaged IR, source, tuning records and words, for a short time: `boundary_fuzz.py` has the cases."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import boundary_fuzz
import pytest

#: In all: each boundary gets a part.
SECONDS = float(os.environ.get("TESSERA_FUZZ_SECONDS", 8)) / len(boundary_fuzz.BOUNDARIES)
SEED = int(os.environ.get("TESSERA_FUZZ_SEED", time.time() // 86400))


@pytest.mark.parametrize("name", boundary_fuzz.BOUNDARIES)
def test_damaged_input_is_taken_or_refused(name):
    """In another process: one that ends or hangs is a failure of the case it was at."""
    here = Path(__file__).parent
    command = [sys.executable, "-m", "boundary_fuzz", name, "--seed", str(SEED), "--seconds", str(SECONDS)]
    path = os.pathsep.join([str(here), str(here.parent)])
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    try:
        out, at = started.communicate(timeout=SECONDS + 240 + boundary_fuzz.HANGS)
    except subprocess.TimeoutExpired:
        started.kill()
        out, at = started.communicate()
        pytest.fail(f"{name}, SEED={SEED}: hangs at {at.splitlines()[-1:]}")
    print(f"{name}: SEED={SEED} {out.splitlines()[-1:]}")
    assert started.returncode == 0, f"{name}, SEED={SEED}: status {started.returncode} at {at[-2000:]}\n{out[-4000:]}"
    counts = json.loads(out.splitlines()[-1])
    assert counts.get("refused"), counts

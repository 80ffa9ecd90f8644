"""The commit that a run is of."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Folders whose changes make a run one of another source than the commit.
SOURCES = ("crates", "python", "gpurun", "ledger", "conformance", "bench")


def commit():
    """What git says, where it is; sources that differ from it are reported."""

    def git(*args):
        try:
            done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True)
        except OSError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    found = git("rev-parse", "--short=12", "HEAD")
    if not found:
        return os.environ.get("TESSERA_COMMIT", "unknown")
    return f"{found} with changes" if git("status", "--porcelain", *SOURCES) else found

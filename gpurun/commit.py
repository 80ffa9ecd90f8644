"""The commit that a run measures."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Folders whose uncommitted changes are reported.
SOURCES = ("crates", "python", "gpurun", "ledger", "conformance", "bench")


def commit():
    """The commit from git, with a note if sources differ from it; without git, `TESSERA_COMMIT`."""

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

"""The package imports, and its version is the compiler's."""

import re
from pathlib import Path

import tessera

ROOT = Path(__file__).resolve().parents[2]


def test_version_is_the_workspace_version():
    manifest = (ROOT / "Cargo.toml").read_text()
    assert re.search(r'^version = "(.*)"$', manifest, re.M).group(1) == tessera.__version__

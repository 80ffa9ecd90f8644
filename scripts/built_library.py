"""Reads cargo's messages, prints the extension module that it made, and says in the file ``TESSERA_COUNT`` how far it is.

    cargo build --package tessera-python --message-format json-render-diagnostics | python scripts/built_library.py
"""

import json
import os
import subprocess
import sys
from pathlib import Path

PACKAGE = "tessera-python"
#: What a dependency weighs, in bytes of our own sources.
DEPENDENCY = 20_000


def packages():
    """What the extension module is made of, `name version` for each crate, with about the share of the time that it takes."""
    command = f"cargo tree --offline --package {PACKAGE} --edges normal,build --prefix none --format".split()
    listed = subprocess.run([*command, "{p}"], check=True, capture_output=True, text=True).stdout.splitlines()
    found = {}
    # A crate that is named again has no folder there.
    for line in filter(None, listed):
        found.setdefault(" ".join(line.split()[:2]).replace(" v", " "), weight(line))
    return found


def weight(line):
    if "(" not in line or "(proc-macro)" in line or "(*)" in line:
        return DEPENDENCY
    folder = line[line.rindex("(") + 1 : -1]
    return sum(source.stat().st_size for source in Path(folder, "src").rglob("*.rs"))


def main():
    count = os.environ.get("TESSERA_COUNT")
    left = packages() if count else {}
    total, weight = len(left), sum(left.values())
    for line in sys.stdin:
        message = json.loads(line)
        if message["reason"] != "compiler-artifact":
            continue
        if message["target"]["name"] == PACKAGE.replace("-", "_"):
            print(message["filenames"][0])
        name = message["package_id"].rpartition("#")[2].replace("@", " ")
        if "custom-build" not in message["target"]["kind"] and left.pop(name, None) is not None:
            permille = 1000 - 1000 * sum(left.values()) // weight
            Path(count + ".new").write_text(f"{total - len(left)} {total} {permille} crates\n")
            os.replace(count + ".new", count)


if __name__ == "__main__":
    main()

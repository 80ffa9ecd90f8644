#!/usr/bin/env bash
# Builds the extension module and puts it beside the Python sources.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Cargo itself says which file it made, whatever the target directory.
built=$(cargo build --package tessera-python "${CARGO_FLAGS[@]}" --message-format json-render-diagnostics |
    "$VENV_PYTHON" scripts/built_library.py)
installed=python/tessera/_core.abi3.so

cmp -s "$built" "$installed" && exit
# A rename, so that a Python which has the old file loaded keeps it.
cp "$built" "$installed.new"
mv -f "$installed.new" "$installed"

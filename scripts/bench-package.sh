#!/usr/bin/env bash
# Builds the extension module as wheels have it, and puts the package with it into build/bench-package: what benchmarks measure.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

built=$(cargo build --release --package tessera-python "${CARGO_FLAGS[@]}" --message-format json-render-diagnostics |
    "$VENV_PYTHON" scripts/built_library.py)

package=build/bench-package/tessera
rm -rf build/bench-package
mkdir -p "$package"
cp -r python/tessera/. "$package/"
cp "$built" "$package/_core.abi3.so"

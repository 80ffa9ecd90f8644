#!/usr/bin/env bash
# Builds the extension module without the CPU backend, and so without LLVM, into build/gpu/tessera: a copy of the Python
# package with a small library. For machines with a GPU, where nothing else of this checkout is installed:
# PYTHONPATH=build/gpu python3 -m conformance.gpu.smoke

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly LARGEST_MB=24

# One unit for all code: the launch path crosses crates.
export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1
built=$(cargo build --release --package tessera-python --no-default-features --features cuda "${CARGO_FLAGS[@]}" \
    --message-format json-render-diagnostics | "$VENV_PYTHON" scripts/built_library.py)

package=build/gpu/tessera
rm -rf build/gpu
mkdir -p "$package"
cp -r python/tessera/. "$package/"
rm -f "$package"/*.so
find "$package" -name __pycache__ -prune -exec rm -rf {} +
cp "$built" "$package/_core.abi3.so"
strip --strip-unneeded "$package/_core.abi3.so"

bytes=$(stat -c %s "$package/_core.abi3.so")
((bytes < LARGEST_MB * 1000000)) || die "the library has $bytes bytes, and must have less than $LARGEST_MB MB to travel."
printf '%s: %d.%d MB\n' "$package/_core.abi3.so" $((bytes / 1000000)) $((bytes % 1000000 / 100000))

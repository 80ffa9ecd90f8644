#!/usr/bin/env bash
# Whole functions on one core, compared with XLA: set-up, the peers, a release build of the extension, then bench/models_cpu.py.
# usage: bench-models.sh [OPTIONS OF python -m bench.models_cpu]

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/progress.sh
source scripts/setup.sh

STEPS=$((SETUP_STEPS + 2))
set_up build
quietly "Packages to compare with" bench/packages.sh
openly "Release build" cargo build --release --package tessera-python "${CARGO_FLAGS[@]}"

# The package with the optimised extension, beside the one that tests use.
package=$ROOT/build/bench-package
mkdir -p "$package"
rm -rf "$package/tessera"
cp -r python/tessera "$package/tessera"
cp "${CARGO_TARGET_DIR:-target}/release/libtessera_python.so" "$package/tessera/_core.abi3.so"
PYTHONPATH=$package exec build/bench-venv/bin/python -m bench.models_cpu "$@"

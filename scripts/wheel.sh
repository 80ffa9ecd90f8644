#!/usr/bin/env bash
# `make wheel`: a release wheel in dist/, imported once in an environment that has nothing else.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/progress.sh
source scripts/setup.sh

STEPS=$((SETUP_STEPS + 3))
set_up build
quietly "Wheel builder" scripts/wheel-builder.sh
rm -rf dist
# The paths that panic messages quote start at the sources, not at this machine's folders.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
export CARGO_ENCODED_RUSTFLAGS=--remap-path-prefix=$ROOT=tessera$'\x1f'--remap-path-prefix=$cargo_home/registry/src=crates
# The extension contains LLVM, so users of the wheel need not install it.
PATH=$VENV/bin:$PATH openly "Wheel" "$VENV_PYTHON" -m maturin build --release --no-default-features \
    --features static-llvm,cuda --auditwheel repair --out dist "${CARGO_FLAGS[@]}"
quietly "Import in a fresh environment" scripts/check-wheel.sh
ls -l dist

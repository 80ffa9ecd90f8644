#!/usr/bin/env bash
# `make wheel`: a release wheel in dist/, installed and run in a fresh environment of every Python that is here.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/progress.sh
source scripts/setup.sh

PLAN=("${SETUP[@]}" "Wheel builder" "Wheel" "Fresh environments")
set_up build
quietly "Wheel builder" scripts/wheel-builder.sh
rm -rf dist
# The paths that panic messages quote start at the sources, not at this machine's folders.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
export CARGO_ENCODED_RUSTFLAGS=--remap-path-prefix=$ROOT=tessera$'\x1f'--remap-path-prefix=$cargo_home/registry/src=crates
# The extension contains LLVM, so users of the wheel need not install it.
PATH=$VENV/bin:$PATH openly "Wheel" "$VENV_PYTHON" -m maturin build --release --no-default-features \
    --features static-llvm,cuda --auditwheel repair --out dist "${CARGO_FLAGS[@]}"
quietly "Fresh environments" scripts/check-wheel.sh
tail -n 1 "$LOGS/check-wheel.log"
ls -l dist

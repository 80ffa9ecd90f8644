#!/usr/bin/env bash
# `make test`: set-up, then every check; the first that fails ends the run.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/progress.sh
source scripts/setup.sh

STEPS=$((TEST_SETUP_STEPS + 5))
start=$(now_us)
set_up tests
openly "Formatting" cargo fmt --all --check
openly "Clippy" cargo clippy --workspace --all-targets "${CARGO_FLAGS[@]}" -- -D warnings
openly "Rust tests" cargo test --workspace "${CARGO_FLAGS[@]}"
openly "Extension module" scripts/build-extension.sh
openly "Python tests" "$VENV_PYTHON" -m pytest

printf -v summary '%s, ' "${SUMMARY[@]}"
printf 'All tests passed in %s: %s\n' "$(since "$start")" "${summary%, }"

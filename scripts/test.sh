#!/usr/bin/env bash
# `make test`: set-up, then every check; the first that fails ends the run.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/progress.sh
source scripts/setup.sh

PLAN=("${TEST_SETUP[@]}" "Formatting" "Clippy" "Build" "Rust tests" "Python tests")
set_up tests
openly "Formatting" cargo fmt --all --check
# Not `--all-targets`: its `--benches` would check each library once more, as a test, also where `test = false`.
openly "Clippy" cargo clippy --workspace --lib --bins --tests --examples "${CARGO_FLAGS[@]}" -- -D warnings
quietly "Build" scripts/build-extension.sh
openly "Rust tests" cargo test --workspace "${CARGO_FLAGS[@]}"
openly "Python tests" scripts/python-tests.sh

printf -v summary '%s, ' "${SUMMARY[@]}"
printf 'All tests passed in %s: %s\n' "$(since "$START")" "${summary%, }"

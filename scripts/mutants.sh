#!/usr/bin/env bash
# `make mutants`: puts faults into modules one at a time and checks that the tests notice. docs/testing.md explains it and has the scores.
# MODULES (groups of Python modules) and CRATES: names, or "none"; all where nothing is said. COUNT faults of each, drawn from SEED.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

count=${COUNT:-200}
seed=${SEED:-1}
[[ $count =~ ^[0-9]+$ && $seed =~ ^[0-9]+$ ]] || die "expected whole numbers: make mutants COUNT=200 SEED=1"
scripts/build-extension.sh
export PYTHONPATH=$ROOT/python:$ROOT/python/tests
failed=0
cd python/tests
if [[ ${MODULES:-} != none ]]; then
    # shellcheck disable=SC2086  # several names
    "$VENV_PYTHON" -m mutants ${MODULES:-} --count "$count" --seed "$seed" || failed=1
fi
if [[ ${CRATES:-} != none ]]; then
    # shellcheck disable=SC2086
    "$VENV_PYTHON" -m mutants.switch ${CRATES:-} --count "$count" --seed "$seed" || failed=1
fi
exit $failed

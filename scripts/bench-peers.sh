#!/usr/bin/env bash
# `make bench-cpu`, `make bench-models` and `make bench-dist`: set-up, the peers, a release build, then the comparison.
# usage: bench-peers.sh bench.cpu|bench.models_cpu|bench.dist_cpu [OPTIONS OF THAT MODULE]

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/progress.sh
source scripts/setup.sh

PLAN=("${SETUP[@]}" "Packages to compare with" "Release build")
set_up build
quietly "Packages to compare with" bench/packages.sh
quietly "Release build" scripts/bench-package.sh

PYTHONPATH=$ROOT/build/bench-package exec build/bench-venv/bin/python -m "$@"

#!/usr/bin/env bash
# Whole functions on one core, compared with XLA: set-up, the peers, a release build of the extension, then bench/models_cpu.py.
# usage: bench-models.sh [OPTIONS OF python -m bench.models_cpu]

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/progress.sh
source scripts/setup.sh

PLAN=("${SETUP[@]}" "Packages to compare with" "Release build")
set_up build
quietly "Packages to compare with" bench/packages.sh
quietly "Release build" scripts/bench-package.sh

PYTHONPATH=$ROOT/build/bench-package exec build/bench-venv/bin/python -m bench.models_cpu "$@"

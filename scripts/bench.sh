#!/usr/bin/env bash
# `make bench`: set-up, a release build, then the benchmarks.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/progress.sh
source scripts/setup.sh

PLAN=("${SETUP[@]}" "Release build")
set_up build
quietly "Release build" scripts/bench-package.sh

PYTHONPATH=$ROOT/build/bench-package exec "$VENV_PYTHON" bench/run.py

#!/usr/bin/env bash
# `make bench-cpu`: set-up, build, the peers, then the comparison.
# usage: bench-cpu.sh [OPTIONS OF python -m bench.cpu]

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/progress.sh
source scripts/setup.sh

STEPS=$((SETUP_STEPS + 2))
set_up build
quietly "Packages to compare with" bench/packages.sh
openly "Build" scripts/build-extension.sh

PYTHONPATH=$ROOT/python exec build/bench-venv/bin/python -m bench.cpu "$@"

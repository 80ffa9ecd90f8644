#!/usr/bin/env bash
# The Python tests, in as many processes as there are cores, the longest files first (python/tests/durations.txt).
# usage: python-tests.sh [OPTIONS OF pytest]

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Modules are compiled once for all processes that tests start, also where the environment has Python keep no bytecode.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$ROOT/build/bytecode
# A process takes up to 1.5 GB.
processes=$(getconf _NPROCESSORS_ONLN)
((processes <= 8)) || processes=8
several=()
((processes > 1)) && several=(--numprocesses "$processes" --dist loadfile --no-loadscope-reorder)
exec "$VENV_PYTHON" -m pytest "${several[@]}" "$@"

#!/usr/bin/env bash
# `make soak MINUTES=n SEED=s`: random kernels, jits, saves, loads, threads, forks and interrupts for n minutes, with a series of what the
# process holds and a verdict. Other arguments go to python/tests/soak.py.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

minutes=${1:-10}
seed=${2:-$(($(date +%s) / 86400))}
shift $(($# < 2 ? $# : 2))
[[ $minutes =~ ^[0-9.]+$ && $seed =~ ^[0-9]+$ ]] || die "expected numbers: make soak MINUTES=10 SEED=20000"
scripts/build-extension.sh
held=$(mktemp -d)
trap 'rm -rf "$held"' EXIT
export TESSERA_CACHE_DIR=$held/cache XDG_CONFIG_HOME=$held/config PYTHONPATH=$ROOT/python:$ROOT/python/tests
"$VENV_PYTHON" -m soak --minutes "$minutes" --seed "$seed" "$@"

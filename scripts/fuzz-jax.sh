#!/usr/bin/env bash
# Holds the interpreter of Graph IR, and the derivatives of programs, against a live JAX: random programs in f64.
# usage: fuzz-jax.sh [MINUTES] [SEED]      (10 minutes and the day where none are given)
# The pinned JAX of requirements-jax.txt is installed into build/jax-venv for it.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

minutes=${1:-10}
seed=${2:-$(($(date +%s) / 86400))}
[[ $minutes =~ ^[0-9.]+$ && $seed =~ ^[0-9]+$ ]] || die "expected numbers: fuzz-jax.sh 10 20000"
scripts/jax-packages.sh || (($? == ALREADY_DONE)) || exit 1
scripts/build-extension.sh
cd python/tests
PYTHONPATH=$ROOT/python:$ROOT/python/tests JAX_PLATFORMS=cpu "$ROOT/build/jax-venv/bin/python" -m plans.fuzz \
    --backend jax --minutes "$minutes" --seed "$seed" --processes "$(nproc)"

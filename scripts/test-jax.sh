#!/usr/bin/env bash
# `make test-jax`: the tests that need JAX, in an environment that has it. It is 120 MB to fetch, so `make test` leaves them out.
# What they check of the kept numbers `make test` checks against the numbers themselves.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/jax-packages.sh || (($? == ALREADY_DONE)) || exit 1
scripts/build-extension.sh
PYTHONPATH=$ROOT/python JAX_PLATFORMS=cpu build/jax-venv/bin/python -m pytest -m jax

#!/usr/bin/env bash
# Computes again, with JAX, the numbers that tests compare ours with: python/tests/jax_values.npz, jax_kinks.json, jax_gpt.npz,
# jax_collectives.json and jax_plans.npz.
# The pinned JAX of requirements-jax.txt is installed into build/jax-venv for it.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/jax-packages.sh || (($? == ALREADY_DONE)) || exit 1
for script in jax_values jax_kinks jax_gpt jax_collectives; do
    PYTHONPATH=$ROOT/python JAX_PLATFORMS=cpu build/jax-venv/bin/python "python/tests/$script.py"
done
PYTHONPATH=$ROOT/python:$ROOT/python/tests JAX_PLATFORMS=cpu build/jax-venv/bin/python -m plans.kept

#!/usr/bin/env bash
# Installs the pinned JAX and what the tests need into an environment of their own, build/jax-venv.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pinned jax-venv requirements-jax.txt ": check the network, the proxy and pip's settings." requirements-dev.txt

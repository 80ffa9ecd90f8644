#!/usr/bin/env bash
# Installs the pinned JAX and what the tests need into an environment of their own, build/jax-venv.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

environment=$ROOT/build/jax-venv
stamp=$environment/.tessera-packages
python=$(scripts/find-python.sh)
wanted="$("$python" -c 'import sys; print(sys.base_prefix, sys.version)') $(cat requirements-jax.txt requirements-dev.txt | sha256sum) $ROOT"

# The stamp is written last, so an interrupted run has none.
[[ -f $stamp && $(<"$stamp") == "$wanted" ]] && exit "$ALREADY_DONE"

rm -rf "$environment"
"$python" -m venv "$environment" || die "$python could not make a virtual environment in build/jax-venv."
"$environment/bin/python" -m pip install --disable-pip-version-check --no-input --retries 2 \
    --timeout "${PIP_DEFAULT_TIMEOUT:-30}" --requirement requirements-jax.txt ||
    die "the packages of requirements-jax.txt could not be installed: if the lines above speak of a connection or" \
        "of no matching distribution, pip cannot reach its index: check the network, the proxy and pip's settings."
printf '%s' "$wanted" >"$stamp"

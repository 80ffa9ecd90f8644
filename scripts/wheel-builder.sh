#!/usr/bin/env bash
# Installs the maturin that pyproject.toml asks for.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pin=$(grep -o 'maturin==[0-9.]*' pyproject.toml)
[[ $("$VENV_PYTHON" -m maturin --version) == "maturin ${pin#maturin==}" ]] && exit "$ALREADY_DONE"
"$VENV_PYTHON" -m pip install --disable-pip-version-check --no-input "$pin" ||
    die "$pin could not be installed: check the network, the proxy and pip's settings, and run it again."

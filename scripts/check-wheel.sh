#!/usr/bin/env bash
# Installs the wheel in dist/ into a fresh environment, imports it there and runs a kernel.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$VENV_PYTHON" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --disable-pip-version-check --no-input dist/tessera-*.whl
# From elsewhere than the checkout, so that only the wheel can be what is imported.
cd "$scratch"
venv/bin/python -c 'import tessera; print(tessera.__version__, tessera.__file__)'
venv/bin/tessera doctor

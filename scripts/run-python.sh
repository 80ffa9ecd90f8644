#!/usr/bin/env bash
# Runs a Python program of the repository in .venv.
# usage: run-python.sh FILE [ARGS...]

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ -f $1 ]] || die "$1 is not in this checkout, so there is nothing to run."
exec "$VENV_PYTHON" "$@"

#!/usr/bin/env bash
# Makes .venv, or makes it again if it is incomplete, broken or of another Python.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

python=$(scripts/find-python.sh)
stamp=$VENV/.tessera-environment
wanted=$("$python" -c 'import sys; print(sys.base_prefix, sys.version)')

# The stamp is written last, so an interrupted run has none.
if [[ -f $stamp && $(<"$stamp") == "$wanted" ]] && "$VENV_PYTHON" -c 'import pip'; then
    exit "$ALREADY_DONE"
fi

rm -rf "$VENV"
"$python" -m venv "$VENV" || die "$python could not make a virtual environment in .venv; the lines above say why."
printf '%s' "$wanted" >"$stamp"

#!/usr/bin/env bash
# Prints the Python interpreter to make .venv with: TESSERA_PYTHON, else the first on the path that
# is new enough. Inside a virtual environment it is the interpreter that one was made from.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly PROBE='
import sys
if sys.version_info < (3, 10):
    sys.exit(1)
inside = sys.prefix != sys.base_prefix
print(getattr(sys, "_base_executable", sys.executable) if inside else sys.executable)
'

candidates() {
    if [[ -n ${TESSERA_PYTHON:-} ]]; then
        printf '%s\n' "$TESSERA_PYTHON"
    else
        type -aP python3 python3.14 python3.13 python3.12 python3.11 python3.10 || true
    fi
}

while IFS= read -r candidate; do
    "$candidate" -c "$PROBE" 2>/dev/null </dev/null && exit
done < <(candidates)

[[ -n ${TESSERA_PYTHON:-} ]] &&
    die "TESSERA_PYTHON is '$TESSERA_PYTHON', which is not a Python 3.10 or newer that runs."
die "no Python 3.10 or newer was found: install one (Debian, Ubuntu: apt-get install python3)" \
    "or name one with TESSERA_PYTHON, and run it again."

#!/usr/bin/env bash
# Installs the pinned peers into an environment of their own, build/bench-venv.

source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

environment=$ROOT/build/bench-venv
stamp=$environment/.tessera-packages
python=$(scripts/find-python.sh)
wanted="$("$python" -c 'import sys; print(sys.base_prefix, sys.version)') $(sha256sum <bench/requirements.txt) $ROOT"

# The stamp is written last, so an interrupted run has none.
[[ -f $stamp && $(<"$stamp") == "$wanted" ]] && exit "$ALREADY_DONE"

rm -rf "$environment"
"$python" -m venv "$environment" || die "$python could not make a virtual environment in build/bench-venv."
"$environment/bin/python" -m pip install --disable-pip-version-check --no-input --retries 2 \
    --timeout "${PIP_DEFAULT_TIMEOUT:-30}" --requirement bench/requirements.txt ||
    die "the packages of bench/requirements.txt could not be installed: if the lines above speak of a connection or" \
        "of no matching distribution, pip cannot reach its index, or this machine is none that MKL is made for" \
        "(x86-64 Linux)."
printf '%s' "$wanted" >"$stamp"

# What every script shares: where things are, how progress looks, how a script gives up.
# Sourced, not run.
# shellcheck shell=bash
# shellcheck disable=SC2034  # The sourcing scripts use the variables.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
VENV_PYTHON=$VENV/bin/python
LOGS=$ROOT/build/setup
cd "$ROOT"
mkdir -p "$LOGS"

# A shell opened before Rust was installed does not have it on its path.
cargo_bin=${CARGO_HOME:-${HOME:-}/.cargo}/bin
[[ -d $cargo_bin ]] && PATH=$PATH:$cargo_bin
# Another project's modules must not reach our environment.
unset PYTHONPATH PYTHONHOME

# Continuous integration must build what the lock file says; elsewhere cargo may update it.
CARGO_FLAGS=()
[[ -n ${CI:-} ]] && CARGO_FLAGS=(--locked)

# A step's script exits with this when there was nothing to do.
readonly ALREADY_DONE=90

# die SENTENCE: gives up, saying what is wrong and what to do.
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# pinned NAME REQUIREMENTS WHY [ALSO...]: the packages of a requirements file in their own environment, build/NAME. It is made again
# when the file, one of ALSO or the interpreter changed. WHY ends the sentence that says what may be the matter.
pinned() {
    local environment=$ROOT/build/$1 requirements=$2 why=$3 python wanted
    local stamp=$environment/.tessera-packages
    python=$("$ROOT/scripts/find-python.sh")
    wanted="$("$python" -c 'import sys; print(sys.base_prefix, sys.version)') $(cat "$requirements" "${@:4}" | sha256sum) $ROOT"
    # The stamp is written last, so an interrupted run has none.
    [[ -f $stamp && $(<"$stamp") == "$wanted" ]] && exit "$ALREADY_DONE"
    rm -rf "$environment"
    "$python" -m venv "$environment" || die "$python could not make a virtual environment in build/$1."
    "$environment/bin/python" -m pip install --disable-pip-version-check --no-input --retries 2 \
        --timeout "${PIP_DEFAULT_TIMEOUT:-30}" --requirement "$requirements" ||
        die "the packages of $requirements could not be installed: if the lines above speak of a connection or" \
            "of no matching distribution, pip cannot reach its index$why"
    printf '%s' "$wanted" >"$stamp"
}

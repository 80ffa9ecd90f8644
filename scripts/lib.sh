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

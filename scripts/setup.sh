# Brings a machine from bare to ready, skipping what is done. Sourced by the scripts that need it,
# after lib.sh and progress.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034  # The sourcing scripts use the variable.

readonly SETUP_STEPS=5

# set_up build|tests: tests also take the formatter and the linter.
set_up() {
    # Two runs in one checkout take turns.
    if command -v flock >/dev/null; then
        exec 9>"$LOGS/lock"
        flock -n 9 || { echo "Waiting for another set-up in this checkout …" && flock 9; }
    fi
    quietly "Disk, Rust and Python" scripts/check-machine.sh "$@"
    quietly "System packages" scripts/system-packages.sh
    quietly "Python environment" scripts/python-environment.sh
    quietly "Python packages" scripts/python-packages.sh
    quietly "Rust packages" scripts/rust-packages.sh
    if command -v flock >/dev/null; then exec 9>&-; fi
}

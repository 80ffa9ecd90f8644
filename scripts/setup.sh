# Brings a machine from bare to ready, skipping what is done. Sourced by the scripts that need it,
# after lib.sh and progress.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034  # The sourcing scripts use the variable.

readonly SETUP_STEPS=5
# There are assemblers for Linux alone.
TEST_SETUP_STEPS=$SETUP_STEPS
[[ $(uname -s) == Linux ]] && TEST_SETUP_STEPS=$((SETUP_STEPS + 1))
readonly TEST_SETUP_STEPS

# set_up build|tests: tests also take the formatter, the linter and NVIDIA's assemblers.
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
    if [[ $1 == tests ]] && ((TEST_SETUP_STEPS > SETUP_STEPS)); then
        quietly "NVIDIA's assemblers" scripts/assemblers.sh
        # Tests that need them must not pass without.
        export TESSERA_NEED_TOOLS=1
    fi
    if command -v flock >/dev/null; then exec 9>&-; fi
}

# Brings a machine from bare to ready, skipping what is done. Sourced by the scripts that need it,
# after lib.sh and progress.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034  # The sourcing scripts use the variables.

# The titles of the steps, for the plan of the sourcing script.
readonly SETUP=("Disk, Rust and Python" "System packages" "Python environment" "Python packages" "Rust packages")
TEST_SETUP=("${SETUP[@]}")
# There are assemblers for Linux alone.
[[ $(uname -s) == Linux ]] && TEST_SETUP+=("NVIDIA's assemblers")
readonly TEST_SETUP

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
    if [[ $1 == tests ]] && ((${#TEST_SETUP[@]} > ${#SETUP[@]})); then
        quietly "NVIDIA's assemblers" scripts/assemblers.sh
        # Tests that need them must not pass without.
        export TESSERA_NEED_TOOLS=1
    fi
    if command -v flock >/dev/null; then exec 9>&-; fi
}

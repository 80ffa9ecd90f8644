#!/usr/bin/env bash
# `make fuzz MINUTES=n SEED=s`: all random testing there is, n minutes of it together, from a seed that is printed
# (the day where none is given: days since 1970). What fails names its seed; the run goes on, and fails at its end.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

minutes=${1:-10}
export TESSERA_FUZZ_SEED=${2:-$(($(date +%s) / 86400))}
[[ $minutes =~ ^[0-9]+$ && $TESSERA_FUZZ_SEED =~ ^[0-9]+$ ]] || die "expected whole numbers: make fuzz MINUTES=10 SEED=20000"
printf 'Random testing for %s minutes, SEED=%s\n' "$minutes" "$TESSERA_FUZZ_SEED"

failed=()
# share PERCENT NAME COMMAND...: runs a part for its share of the time.
share() {
    local seconds=$((minutes * 60 * $1 / 100)) name=$2
    shift 2
    ((seconds > 0)) || seconds=1
    printf '\n== %s: %s s\n' "$name" "$seconds"
    TESSERA_FUZZ_SECONDS=$seconds "$@" || failed+=("$name")
}
rust() { cargo test "${CARGO_FLAGS[@]}" -q -p "$@" -- --nocapture; }

scripts/build-extension.sh
cargo test "${CARGO_FLAGS[@]}" -q --no-run -p tessera-filetest -p tessera-cpu -p tessera-ptx -p tessera-driver -p tessera-autodiff

# Programs of the language against Python itself: `python/tests/oracle`.
share 21 "source programs" "$VENV_PYTHON" -m pytest -q -s python/tests/test_oracle.py -k random_programs
# Random kernels before and after the passes, on the CPU and as PTX; damaged Python; damaged IR.
share 15 "kernels through the passes" rust tessera-filetest --test suite fuzz_kernels::
share 5 "damaged IR" rust tessera-filetest --test suite fuzz::damaged
# Group kernels over shared buffers, as PTX.
share 4 "buffers as PTX" rust tessera-filetest --test suite fuzz_buffers::
share 8 "lanes on the CPU" rust tessera-cpu --test suite random_kernels
share 8 "lanes as PTX" rust tessera-ptx --test suite lane::random::random_kernels
# Functions on arrays with control flow, planned and lowered, against the interpreter of Graph IR: `python/tests/plans`.
share 13 "plans" "$VENV_PYTHON" -m pytest -q -s python/tests/test_plans.py -k random_programs
share 7 "programs on meshes" "$VENV_PYTHON" -m pytest -q -s python/tests/test_sharded_programs.py -k random_programs
share 4 "functions on arrays" rust tessera-driver --test suite graph::random::random_functions
share 3 "derivatives" rust tessera-autodiff --test suite programs_at_random
# Descriptions of arrays as broken libraries give them, and damaged or exchanged entries of the cache.
share 1 "descriptions of arrays" "$VENV_PYTHON" -m pytest -q -s python/tests/test_boundaries.py -k random_descriptions
share 1 "entries of the cache" "$VENV_PYTHON" -m pytest -q -s python/tests/test_cache_safety.py -k random_damage
# Damaged text and files where they enter from Python: IR, schedules, plans, source, tuning records, names.
share 4 "damaged input" "$VENV_PYTHON" -m pytest -q -s python/tests/test_boundary_fuzz.py
share 1 "checkpoints" "$VENV_PYTHON" -m pytest -q -s python/tests/test_checkpoint_hostile.py -k mutated_files
# Arrays on meshes: pairs of placements, and index launches against their sequential execution.
share 2 "index launches" "$VENV_PYTHON" -m pytest -q -s python/tests/test_dist_launch.py -k random_programs
share 3 "attention" "$VENV_PYTHON" -m pytest -q -s python/tests/test_attention_grid.py -k more_combinations

if ((${#failed[@]})); then
    printf '\n%s\n' "Failed with SEED=$TESSERA_FUZZ_SEED: ${failed[*]}" >&2
    exit 1
fi
printf '\nNothing was found with SEED=%s.\n' "$TESSERA_FUZZ_SEED"

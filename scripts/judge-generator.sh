#!/usr/bin/env bash
# Judges the generators of random programs: puts one old fault back at a time, builds, and says how long the programs of
# python/tests/oracle (kernels) or python/tests/plans (functions on arrays) take to find it, five minutes at most.
# usage: judge-generator.sh [PATCH...]      (the patches of faults/ in both where none is given)
#
# A patch begins with `fault:`, what is wrong in one line, and may name the backend that shows it: `backend: cpu`.
# It is applied to a worktree of HEAD in build/judge, which shares this checkout's target directory and environment.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly MINUTES=5
work=$ROOT/build/judge
shopt -s nullglob
patches=("$@")
((${#patches[@]})) || patches=("$ROOT"/python/tests/{oracle,plans}/faults/*.patch)
((${#patches[@]})) || die "there is no patch to judge with: python/tests/oracle/faults holds none."

# The worktree stays, so that the next run builds only what has changed.
if ! [[ -e $work/.git ]] || ! git -C "$work" checkout --quiet --force --detach "$(git rev-parse HEAD)"; then
    git worktree remove --force "$work" 2>/dev/null || rm -rf "$work"
    git worktree add --quiet --force --detach "$work" HEAD
fi
trap 'git -C "$work" checkout --quiet --force -- .' EXIT
ln -sfn "$VENV" "$work/.venv"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$ROOT/target}

# A build with a fault has its own cache, which no other build uses.
export TESSERA_CACHE_DIR=$work/build/cache

fuzz() {
    (cd "$work/python/tests" && PYTHONPATH=$work/python:$work/python/tests "$VENV_PYTHON" -m "$@")
}
# judge PACKAGE MINUTES BACKEND: the first program that differs.
judge() {
    case $1 in
        oracle) fuzz oracle.fuzz --features "$features" --minutes "$2" --stop-at 1 --minimise 20 --backend "$3" ;;
        plans) fuzz plans.fuzz --minutes "$2" --stop-at 1 --shrink 20 --backend "$3" ;;
    esac
}

# Without a fault nothing may be found. Programs use only features that HEAD has.
"$work/scripts/build-extension.sh" >"$LOGS/judge.log" 2>&1 || die "the build of HEAD failed: see $LOGS/judge.log"
features=$LOGS/judge-features.txt
fuzz oracle.fuzz --probe "$features"
for package in oracle plans; do
    [[ " ${patches[*]} " == */$package/faults/* ]] || continue
    for backend in interp cpu; do
        judge "$package" 1 "$backend" >"$LOGS/judge-none-$package-$backend.txt" ||
            die "HEAD itself differs from $package on $backend: see $LOGS/judge-none-$package-$backend.txt"
    done
done

field() { sed -n "s/^$1: *//p" "$2" | head -1; }
missed=0
rows=()
for patch in "${patches[@]}"; do
    patch=$(realpath "$patch")
    fault=$(field fault "$patch")
    backend=$(field backend "$patch")
    name=$(basename "$patch" .patch)
    # A patch that cannot be judged does not stop the others.
    if ! git -C "$work" apply "$patch"; then
        took="does not apply to HEAD"
    elif ! "$work/scripts/build-extension.sh" >"$LOGS/judge-build-$name.log" 2>&1; then
        took="does not build: see $LOGS/judge-build-$name.log"
    else
        took=
    fi
    if [[ -n $took ]]; then
        missed=1
        rows+=("| $fault | ${backend:-interp} | $took |")
        printf '%s: %s\n' "$fault" "$took"
        git -C "$work" checkout --quiet --force -- .
        continue
    fi
    rm -rf "$TESSERA_CACHE_DIR"
    [[ $patch == */plans/faults/* ]] && package=plans || package=oracle
    output=$(judge "$package" "$MINUTES" "${backend:-interp}") || true
    printf '%s\n' "$output" >"$LOGS/judge-$name.txt"
    took=$(sed -n 's/^# seed .*found after \([0-9.]*\) s$/\1/p' <<<"$output" | head -1)
    if [[ -z $took ]]; then
        took="not in $MINUTES minutes"
        missed=1
    else
        took="$took s"
    fi
    rows+=("| $fault | ${backend:-interp} | $took |")
    printf '%s: %s\n' "$fault" "$took"
    git -C "$work" checkout --quiet --force -- .
done
printf '\n| fault | backend | found after |\n|---|---|---|\n'
printf '%s\n' "${rows[@]}"
exit "$missed"

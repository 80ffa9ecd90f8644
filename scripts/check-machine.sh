#!/usr/bin/env bash
# What must be there before anything can be installed: disk, Rust, Python.
# usage: check-machine.sh build|tests

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# free_mb DIRECTORY: free space where the directory is or will be.
free_mb() {
    local dir=$1
    until [[ -d $dir ]]; do dir=$(dirname "$dir"); done
    df -Pm "$dir" | awk 'NR == 2 { print $4 }'
}

check_disk() {
    local need=${TESSERA_MIN_FREE_MB:-3000} dir free
    for dir in "$ROOT" "${CARGO_TARGET_DIR:-$ROOT}"; do
        free=$(free_mb "$dir")
        ((free >= need)) || die "only $free MB are free on the disk of $dir, and a build wants $need MB:" \
            "make room, or set TESSERA_MIN_FREE_MB to a smaller number, and run it again."
    done
}

check_rust() {
    local need have
    need=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    command -v cargo >/dev/null ||
        die "cargo was not found: install stable Rust $need or newer (rustup gives it) and run it again."
    have=$(rustc --version | awk '{ print $2 }') ||
        die "rustc does not run: install a stable toolchain (with rustup: rustup default stable)."
    [[ $(printf '%s\n' "$need" "${have%%-*}" | sort -V | head -n 1) == "$need" ]] ||
        die "Rust $have is too old, $need or newer is needed: run 'rustup update stable' and try again."
}

check_rust_tools() {
    cargo fmt --version && cargo clippy --version && return
    command -v rustup >/dev/null && rustup component add rustfmt clippy && return
    die "the tests need rustfmt and clippy: run 'rustup component add rustfmt clippy'," \
        "or install your distribution's packages for them."
}

check_disk
check_rust
[[ $1 == tests ]] && check_rust_tools
scripts/find-python.sh

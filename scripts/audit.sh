#!/usr/bin/env bash
# `make audit`: cargo-deny on Cargo.lock by the rules of deny.toml (licenses, duplicates, sources, advisories), and pip-audit on the pinned
# Python packages. Advisories come from the network: where it is missing, the parts that need it fail and say so, and the others run.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly NO_NETWORK="if the lines above speak of a connection or of packages that were not found, the database of vulnerabilities cannot be reached: check the network and the proxy"

scripts/audit-tools.sh || (($? == ALREADY_DONE)) || exit 1
deny=$ROOT/build/audit-tools/bin/cargo-deny

failed=()
# part NAME COMMAND...: the run goes on after a failure, and fails at its end.
part() {
    local name=$1
    shift
    printf '\n== %s\n' "$name"
    "$@" || failed+=("$name")
}

part "licenses, duplicates and sources of crates" "$deny" --locked check licenses bans sources
part "advisories of crates" "$deny" --locked check advisories
# Every package is pinned, so none is resolved. Strict: a package that the database does not know is a failure, not a pass.
part "advisories of Python packages" build/audit-venv/bin/pip-audit --strict --progress-spinner off --disable-pip --no-deps \
    --requirement requirements-dev.txt --requirement requirements-jax.txt --requirement requirements-ptx.txt \
    --requirement requirements-audit.txt --requirement bench/requirements.txt

if ((${#failed[@]})); then
    printf -v parts '%s; ' "${failed[@]}"
    die "failed: ${parts%; }. Each finding is above; $NO_NETWORK, and run it again."
fi
printf '\nNothing was found.\n'

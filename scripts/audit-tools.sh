#!/usr/bin/env bash
# Installs what `make audit` runs, pinned, each apart from what the project is built with: cargo-deny into build/audit-tools, pip-audit into
# build/audit-venv. cargo-deny is compiled, once for each version: some minutes.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly CARGO_DENY=0.20.2

tools=$ROOT/build/audit-tools
if [[ $("$tools/bin/cargo-deny" --version 2>&1) != "cargo-deny $CARGO_DENY" ]]; then
    cargo install cargo-deny --version "=$CARGO_DENY" --locked --root "$tools" ||
        die "cargo-deny $CARGO_DENY could not be installed: if the lines above speak of a connection, cargo cannot reach its" \
            "registry: check the network and the proxy, and run it again."
fi

pinned audit-venv requirements-audit.txt ": check the network, the proxy and pip's settings."

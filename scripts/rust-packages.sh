#!/usr/bin/env bash
# Downloads the crates of Cargo.lock, so that the build itself needs no network.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

host=$(rustc -vV | sed -n 's/^host: //p')
fetch() { cargo fetch --target "$host" "${CARGO_FLAGS[@]}" "$@"; }

fetch --offline && exit "$ALREADY_DONE"
fetch || die "the crates of Cargo.lock could not be downloaded: if the lines above speak of a connection or of" \
    "offline mode, cargo cannot reach its registry: check the network and the proxy, and run it again."

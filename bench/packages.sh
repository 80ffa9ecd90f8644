#!/usr/bin/env bash
# Installs the pinned peers into an environment of their own, build/bench-venv.

source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

pinned bench-venv bench/requirements.txt ", or this machine is none that MKL is made for (x86-64 Linux)."

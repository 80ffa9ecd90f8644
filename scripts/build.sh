#!/usr/bin/env bash
# `make build`: set-up, then the extension module.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/progress.sh
source scripts/setup.sh

PLAN=("${SETUP[@]}" "Build")
set_up build
quietly "Build" scripts/build-extension.sh

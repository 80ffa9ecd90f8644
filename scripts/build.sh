#!/usr/bin/env bash
# `make build`: set-up, then the extension module.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/progress.sh
source scripts/setup.sh

STEPS=$((SETUP_STEPS + 1))
set_up build
openly "Build" scripts/build-extension.sh

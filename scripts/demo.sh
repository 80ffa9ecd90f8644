#!/usr/bin/env bash
# `make demo`: set-up, build, then the demonstration.

scripts=$(dirname "${BASH_SOURCE[0]}")
"$scripts/build.sh" && exec "$scripts/run-python.sh" examples/demo.py

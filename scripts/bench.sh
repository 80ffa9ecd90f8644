#!/usr/bin/env bash
# `make bench`: set-up, build, then the benchmarks.

scripts=$(dirname "${BASH_SOURCE[0]}")
"$scripts/build.sh" && exec "$scripts/run-python.sh" bench/run.py

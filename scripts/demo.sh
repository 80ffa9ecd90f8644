#!/usr/bin/env bash
# `make demo`: set-up, build, then the demonstration and the tour of a mesh.

scripts=$(dirname "${BASH_SOURCE[0]}")
"$scripts/build.sh" && "$scripts/run-python.sh" examples/demo.py && exec "$scripts/run-python.sh" examples/mesh_tour.py

#!/usr/bin/env bash
# Runs the array API's own test suite against tessera.xp, with a fixed seed and few examples, and compares the passes with
# python/tests/array_api/passes.txt, which may only grow (TESSERA_BLESS=1 writes it). Nothing may fail but complex numbers, `linalg`
# and `fft`.
# usage: scripts/array-api.sh CHECKOUT   a checkout of array-api-tests with its submodule; the suite is on no package index

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

suite=${1:?"usage: scripts/array-api.sh CHECKOUT (of array-api-tests, with its submodule)"}
[[ -d $suite/array_api_tests && -d $suite/array-api/spec ]] || die "$suite is no checkout of array-api-tests with its submodule."

venv=build/array-api-venv
if [[ ! -x $venv/bin/pytest ]]; then
    "$VENV_PYTHON" -m venv "$venv"
    "$venv/bin/pip" install --quiet pytest==9.2.0 hypothesis==6.170.15 ndindex==1.10.1 numpy==2.4.6 ml_dtypes==0.6.0 \
        pytest-json-report==1.5.0
fi

here=$PWD
found=$(mktemp)
(cd "$suite" && PYTHONPATH="$here/python:$here/python/tests/array_api:$suite" ARRAY_API_TESTS_MODULE=tessera.xp \
    "$here/$venv/bin/python" -m pytest -p without_complex array_api_tests -q --max-examples=3 --disable-deadline \
    --hypothesis-seed=1 -p no:cacheprovider --tb=no -rA) >"$found" || true
grep -E '[0-9]+ passed' "$found" | tail -1
"$VENV_PYTHON" - "$found" <<'P'
import os, re, sys
from pathlib import Path

kept = Path("python/tests/array_api/passes.txt")
text = Path(sys.argv[1]).read_text()
# Complex numbers are not there: their cases pass or fail by chance, as real ones. Extensions come later.
absent = re.compile(r"imag\(|complex|\[(?:elementwise-)?(?:conj|imag|real)\]|linalg|fft")


def named(mark):
    found = (line.removeprefix(mark).split(" - ")[0].strip() for line in text.splitlines() if line.startswith(mark))
    return {name for name in found if not absent.search(name)}


passed, failed = named("PASSED "), named("FAILED ")
before = set(kept.read_text().splitlines()) if kept.exists() else set()
if os.environ.get("TESSERA_BLESS"):
    kept.write_text("".join(f"{name}\n" for name in sorted(passed | before)))
lost = sorted(before - passed)
for name in lost:
    print(f"no longer passes: {name}")
for name in sorted(failed):
    print(f"fails: {name}")
sys.exit(bool(lost or failed) or not passed)
P

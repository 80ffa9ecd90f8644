#!/usr/bin/env bash
# Installs the wheel in dist/ into a fresh environment of every Python from 3.10 to 3.14 that is here, imports it there and runs a kernel.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# interpreter VERSION: one on the path, else one of pyenv's. It must run: pyenv has programs that only say which versions there are.
interpreter() {
    local candidate
    for candidate in $(type -aP "python$1" || true) "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/"$1".*/bin/python; do
        [[ -x $candidate ]] && "$candidate" -c "import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null || continue
        printf '%s' "$candidate"
        return
    done
}

wheel=$(ls "$ROOT"/dist/tessera-*.whl)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# From elsewhere than the checkout, so that only the wheel can be what is imported.
cd "$scratch"
tested=()
for version in 3.10 3.11 3.12 3.13 3.14; do
    python=$(interpreter "$version")
    if [[ -z $python ]]; then
        printf 'Python %s is not on this machine: not tested\n' "$version"
        continue
    fi
    "$python" -m venv "$version"
    "$version/bin/python" -m pip install --disable-pip-version-check --no-input "$wheel"
    "$version/bin/python" -c 'import sys, tessera; print(sys.version.split()[0], tessera.__version__, tessera.__file__)'
    "$version/bin/tessera" doctor
    tested+=("$version")
    rm -rf "$version"
done
((${#tested[@]})) || die "no Python from 3.10 to 3.14 was found to test the wheel with."
printf 'The wheel runs on Python %s\n' "${tested[*]}"

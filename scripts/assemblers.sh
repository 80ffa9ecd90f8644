#!/usr/bin/env bash
# Installs NVIDIA's assemblers into .venv: the tests assemble every kernel. No GPU is needed.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

stamp=$VENV/.tessera-assemblers
wanted="$(sha256sum <requirements-ptx.txt) $ROOT"
nvidia=$("$VENV_PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia
programs=("$nvidia/cu13/bin/ptxas" "$nvidia/cuda_nvcc/bin/ptxas" "$nvidia/cu13/bin/nvdisasm")

runnable() {
    local program
    for program in "${programs[@]}"; do "$program" --version || return; done
}
# What the packages depend on is for compiling C++.
install() {
    "$VENV_PYTHON" -m pip install --disable-pip-version-check --no-input --retries 2 --no-deps \
        --timeout "${PIP_DEFAULT_TIMEOUT:-30}" --requirement requirements-ptx.txt "$@" ||
        die "the packages of requirements-ptx.txt could not be installed: if the lines above speak of a" \
            "connection or of no matching distribution, pip cannot reach its index: check the network, the" \
            "proxy and pip's settings, and run it again."
    # One of them comes without the permission to run it.
    chmod +x "${programs[@]}"
}

[[ -f $stamp && $(<"$stamp") == "$wanted" ]] && runnable && exit "$ALREADY_DONE"

rm -f "$stamp"
install
# pip trusts its records: programs that are there by name but do not run are installed again.
runnable || install --force-reinstall
runnable || die "NVIDIA's assemblers were installed and do not run here; the lines above say why."
printf '%s' "$wanted" >"$stamp"

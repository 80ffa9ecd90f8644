#!/usr/bin/env bash
# Installs the pinned Python packages into .venv, and makes python/tessera importable there.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The command that installing the wheel would put there: [project.scripts] of pyproject.toml.
printf '#!%s\nimport sys\n\nfrom tessera.tools.cli import main\n\nsys.exit(main())\n' "$VENV_PYTHON" >"$VENV/bin/tessera"
chmod +x "$VENV/bin/tessera"

stamp=$VENV/.tessera-packages
# The checkout's place is part of the key: .venv points back to it.
wanted="$(sha256sum <requirements-dev.txt) $ROOT"

importable() { "$VENV_PYTHON" -c 'import ml_dtypes, numpy, pytest, safetensors, xdist'; }
install() {
    "$VENV_PYTHON" -m pip install --disable-pip-version-check --no-input --retries 2 \
        --timeout "${PIP_DEFAULT_TIMEOUT:-30}" --requirement requirements-dev.txt "$@"
}
unreachable() {
    die "the Python packages of requirements-dev.txt could not be installed: if the lines above speak of a" \
        "connection or of no matching distribution, pip cannot reach its index: check the network, the proxy" \
        "and pip's settings, and run it again."
}

[[ -f $stamp && $(<"$stamp") == "$wanted" ]] && importable && exit "$ALREADY_DONE"

rm -f "$stamp"
install || unreachable
# pip trusts its records: packages that are there by name but do not import are installed again.
importable || install --force-reinstall || unreachable
printf '%s\n' "$ROOT/python" >"$("$VENV_PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tessera.pth"
printf '%s' "$wanted" >"$stamp"

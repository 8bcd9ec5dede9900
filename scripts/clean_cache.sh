#!/usr/bin/env bash
# make clean-cache: removes what the other commands keep outside the clone, and nothing that they did not make.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/env.sh
. scripts/env.sh

# drop PATH…: removes each and says how large it was.
drop() {
    local path
    for path in "$@"; do
        [ -e "$path" ] || continue
        echo "removing $path ($(du -sh "$path" | cut -f1))"
        chmod -R u+w "$path"
        rm -rf "$path"
    done
}

# Each folder is known by a file that its maker leaves: a variable that points elsewhere must not cost anybody's files.
if [ -e "$CARGO_TARGET_DIR/CACHEDIR.TAG" ]; then drop "$CARGO_TARGET_DIR"; fi
if [ -e "$FOREBAY_PYTHON/pyvenv.cfg" ]; then drop "$FOREBAY_PYTHON"; fi
if [ -e "$FOREBAY_DATA/complete" ]; then
    drop "$FOREBAY_DATA/A" "$FOREBAY_DATA/B" "$FOREBAY_DATA"/bench.* "$FOREBAY_DATA/complete"
    rmdir --ignore-fail-on-non-empty "$FOREBAY_DATA"
fi

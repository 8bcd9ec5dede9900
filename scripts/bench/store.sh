#!/usr/bin/env bash
# make bench: the store on set A and B (scripts/data/make_dataset.py), beside `cp -r` and sync of the same tree.
# Rounds are interleaved; the table shows medians and the spread. ROUNDS=3 by default.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/env.sh
. scripts/env.sh

scripts/setup.sh bench
cargo build --quiet --workspace
if [ ! -d "$FOREBAY_DATA/B/files" ]; then
    say "making the data sets in $FOREBAY_DATA (half a minute)"
    mkdir -p "$FOREBAY_DATA"
    "$FOREBAY_PYTHON/bin/python" scripts/data/make_dataset.py "$FOREBAY_DATA"
fi
work=$(mktemp -d "$FOREBAY_DATA/bench.XXXXXX")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
exec "$FOREBAY_PYTHON/bin/python" scripts/bench/store.py "$FOREBAY" "$FOREBAY_DATA" "$work" "${ROUNDS:-3}"

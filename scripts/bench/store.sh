#!/usr/bin/env bash
# make bench-store: the store on set A and B (scripts/data/make_dataset.py), beside `cp -r` with sync, borg, restic, casync and,
# where it is installed (`cargo install rustic-rs`), rustic. Rounds are interleaved; ROUNDS=3 by default.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/env.sh
. scripts/env.sh

scripts/setup.sh bench
use_ccache
cargo build --locked --workspace
# The mark is written last, so that the data of an interrupted run is made again.
if [ ! -e "$FOREBAY_DATA/complete" ]; then
    say "making the data sets in $FOREBAY_DATA (half a minute, 3.4 GB)"
    mkdir -p "$FOREBAY_DATA"
    "$FOREBAY_PYTHON/bin/python" scripts/data/make_dataset.py "$FOREBAY_DATA"
    touch "$FOREBAY_DATA/complete"
fi
work=$(mktemp -d "$FOREBAY_DATA/bench.XXXXXX")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
# Not by exec, which would drop the trap and leave gigabytes behind.
"$FOREBAY_PYTHON/bin/python" scripts/bench/store.py "$FOREBAY" "$FOREBAY_DATA" "$work" "${ROUNDS:-3}"

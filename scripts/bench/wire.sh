#!/usr/bin/env bash
# make bench-wire: bytes through nodes on the loopback interface, beside a raw quinn loop in the same rounds.
# ROUNDS=5 and BYTES=1073741824 by default.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/env.sh
. scripts/env.sh

scripts/setup.sh bench
use_ccache
cargo build --locked --workspace
mkdir -p "$FOREBAY_DATA"
work=$(mktemp -d "$FOREBAY_DATA/bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 scripts/bench/wire.py "$FOREBAY" "$(dirname "$FOREBAY")/quinn-loop" "$work" "${ROUNDS:-5}" "${BYTES:-1073741824}"

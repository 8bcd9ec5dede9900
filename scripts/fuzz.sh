#!/usr/bin/env bash
# make fuzz: every fuzz target for SECONDS_EACH seconds (60). The sanitizer runtime needs nightly features of the compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/env.sh
. scripts/env.sh

command -v cargo-fuzz >/dev/null || { say 'installing cargo-fuzz with cargo (about 2 minutes, once)'; cargo install --quiet --locked cargo-fuzz; }
export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$CARGO_TARGET_DIR/fuzz"
for target in fuzz/fuzz_targets/*.rs; do
    name=$(basename "$target" .rs)
    say "fuzzing $name"
    cargo fuzz run "$name" -- -max_total_time="${SECONDS_EACH:-60}" -max_len=65536 -rss_limit_mb=1024
done

#!/usr/bin/env bash
# make fuzz: every fuzz target for SECONDS_EACH seconds (60). The sanitizer runtime needs nightly features of the compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/env.sh
. scripts/env.sh

scripts/setup.sh fuzz
use_ccache
export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$CARGO_TARGET_DIR/fuzz"
for target in fuzz/fuzz_targets/*.rs; do
    name=$(basename "$target" .rs)
    say "fuzzing $name"
    # Start from the golden bytes.
    mkdir -p "fuzz/corpus/$name"
    for hex in cas/format/tests/vectors/"$name".hex cas/format/tests/vectors/"$name"-*.hex; do
        [ -e "$hex" ] && python3 -c 'import sys; sys.stdout.buffer.write(bytes.fromhex(open(sys.argv[1]).read()))' \
            "$hex" >"fuzz/corpus/$name/$(basename "$hex" .hex)"
    done
    cargo fuzz run "$name" -- -max_total_time="${SECONDS_EACH:-60}" -max_len=65536 -rss_limit_mb=1024
done

#!/usr/bin/env bash
# Proves that the pure crates are pure: no runtime, network, store or file access in their dependency trees or sources.
set -euo pipefail
cd "$(dirname "$0")/.."

pure=(forebay-format:cas/format forebay-transfer-proto:transfer/proto forebay-policy:cache-node/policy)
banned='^(tokio|quinn|quinn-proto|rocksdb|librocksdb-sys|object_store|rustix|reqwest|axum|hyper|mio|socket2) '
sources='std::(fs|net|process|thread|env)|std::time::\{?[^;]*(Instant|SystemTime)|SystemTime::now|Instant::now'
failed=0
for entry in "${pure[@]}"; do
    crate=${entry%%:*} folder=${entry#*:}
    if found=$(cargo tree --offline -q -p "$crate" -e normal --prefix none | grep -E "$banned"); then
        printf '%s depends on what it must not know:\n%s\n' "$crate" "$found" >&2
        failed=1
    fi
    if found=$(grep -rnE "$sources" "$folder/src" | grep -vE '^[^:]+:[0-9]+:\s*//'); then
        printf '%s touches what it must not know:\n%s\n' "$crate" "$found" >&2
        failed=1
    fi
done
[ "$failed" = 0 ] && echo "pure: ${pure[*]%%:*}"
exit "$failed"

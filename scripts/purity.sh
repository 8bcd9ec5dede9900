#!/usr/bin/env bash
# Proves that the pure crates are pure: no runtime, network, store, file or clock access in their dependency trees or
# sources. What cannot be looked at counts as impure.
set -euo pipefail
cd "$(dirname "$0")/.."

pure=(forebay-format:cas/format forebay-transfer-proto:transfer/proto forebay-policy:cache-node/policy)
banned='^(tokio|quinn|quinn-proto|rocksdb|librocksdb-sys|object_store|rustix|reqwest|axum|hyper|mio|socket2) '
failed=0

complain() {
    printf '%s\n%s\n' "$1" "$2" >&2
    failed=1
}

check_tree() {
    local crate=$1 tree found
    tree=$(cargo tree --locked -q -p "$crate" -e normal --prefix none) ||
        { complain "$crate has no dependency tree" ''; return; }
    case $tree in "$crate "*) ;; *) complain "$crate has an odd dependency tree:" "$tree" ;; esac
    if found=$(grep -E "$banned" <<<"$tree"); then
        complain "$crate depends on what it must not know:" "$found"
    fi
}

# Looks at code alone, comments left out, and into grouped imports: `use std::{fs, time::{Duration, Instant}};`.
check_sources() {
    local crate=$1 folder=$2 found
    found=$(python3 - "$folder/src" <<'PY'
import pathlib, re, sys

MODULES = {"fs", "net", "process", "thread", "env"}
CLOCKS = re.compile(r"\b(Instant|SystemTime)\b")


def first_names(text, start):
    """The first names of the paths in the group of braces whose inside starts at `start`."""
    names, depth, word_may_start = [], 0, True
    for token in re.finditer(r"[{},]|::|\w+|\s+|.", text[start:]):
        token = token.group()
        if token == "{":
            depth += 1
        elif token == "}":
            if depth == 0:
                break
            depth -= 1
        elif token == "," and depth == 0:
            word_may_start = True
        elif token.isidentifier() and depth == 0 and word_may_start:
            names.append(token)
            word_may_start = False
    return names


files = sorted(pathlib.Path(sys.argv[1]).rglob("*.rs"))
if not files:
    sys.exit(f"no sources in {sys.argv[1]}")
for path in files:
    text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))

    def report(at, what):
        print(f"{path}:{text.count(chr(10), 0, at) + 1}: {what}")

    for match in re.finditer(r"\bstd\s*::\s*(\w+|\{)", text):
        names = first_names(text, match.end()) if match[1] == "{" else [match[1]]
        for name in sorted(MODULES.intersection(names)):
            report(match.start(), f"std::{name}")
    for match in CLOCKS.finditer(text):
        report(match.start(), match[0])
PY
    ) || { complain "$crate cannot be looked at" "$found"; return; }
    [ -z "$found" ] || complain "$crate touches what it must not know:" "$found"
}

for entry in "${pure[@]}"; do
    check_tree "${entry%%:*}"
    check_sources "${entry%%:*}" "${entry#*:}"
done
[ "$failed" = 0 ] || exit 1
echo "pure: ${pure[*]%%:*}"

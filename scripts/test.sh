#!/usr/bin/env bash
# make test: everything a change has to pass, cheap checks first.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/env.sh
. scripts/env.sh

servers=()
scratch=$(mktemp -d)
cleanup() {
    for pid in "${servers[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$scratch"
}
trap cleanup EXIT

times=()
# step NAME COMMAND…: runs it and notes the seconds.
step() {
    local name=$1 start=$SECONDS
    shift
    say "$name"
    "$@"
    times+=("$(printf '%5d s  %s' $((SECONDS - start)) "$name")")
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_for PORT NAME
wait_for() {
    for _ in $(seq 150); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        sleep 0.2
    done
    echo "$2 does not answer on port $1" >&2
    return 1
}

# A real S3 server with conditional writes, and one that accepts the condition and ignores it.
start_servers() {
    local good ignorant
    good=$(free_port)
    "$FOREBAY_PYTHON/bin/moto_server" -H 127.0.0.1 -p "$good" >"$scratch/moto.log" 2>&1 &
    servers+=($!)
    ignorant=$(free_port)
    mkdir -p "$scratch/rclone/forebay-test"
    "$FOREBAY_PYTHON/bin/rclone" serve s3 --config /dev/null --addr "127.0.0.1:$ignorant" \
        --auth-key testing,testing "$scratch/rclone" >"$scratch/rclone.log" 2>&1 &
    servers+=($!)
    wait_for "$good" moto && wait_for "$ignorant" 'rclone serve s3'
    "$FOREBAY_PYTHON/bin/python" - "$good" <<'PY'
import sys, boto3
client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{sys.argv[1]}", region_name="us-east-1",
                      aws_access_key_id="testing", aws_secret_access_key="testing")
client.create_bucket(Bucket="forebay-test")
PY
    export FOREBAY_TEST_S3_ENDPOINT="http://127.0.0.1:$good"
    export FOREBAY_TEST_IGNORANT_S3_ENDPOINT="http://127.0.0.1:$ignorant"
}

# Advisories need a database that is fetched; everything else works without a network.
deny() {
    cargo deny --log-level error check bans licenses sources
    if timeout 60 cargo deny --log-level error check advisories 2>"$scratch/advisories.log"; then
        echo "advisories: none"
    elif grep -qiE 'fetch|clone|resolve|network|database' "$scratch/advisories.log"; then
        echo "skipped: advisories, since their database is out of reach"
    else
        cat "$scratch/advisories.log" >&2
        return 1
    fi
}

docs() { RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps --document-private-items; }

step 'set-up' scripts/setup.sh test
step 'format' cargo fmt --all --check
step 'clippy, with the first build' cargo clippy --quiet --workspace --all-targets -- -D warnings
step 'purity' scripts/purity.sh
step 'licences, bans, sources' deny
step 'build' cargo build --quiet --workspace --all-targets
step 'servers' start_servers
step 'tests' cargo nextest run --workspace --profile ci
step 'documentation tests' cargo test --quiet --workspace --doc
step 'documentation' docs
say 'passed; where the time went:'
printf '%s\n' "${times[@]}"

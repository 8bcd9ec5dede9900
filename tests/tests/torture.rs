//! A store under torture: system calls that fail or kill at the n-th time, for all n, files that cannot grow, kills at random.
//!
//! After each fault: everything acknowledged is there and right, no ref is torn, and the next run works. What was not synced would
//! still be there, for nobody turns the power off: a job that could not sync something of the repository has to fail.
//! strace makes the faults; its n-th call is the n-th of each thread. The short form takes each sync and every seventh point of the others; `make torture-store` takes all and prints
//! what happened.
#![allow(clippy::disallowed_methods, reason = "real processes need real time")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use forebay_tests::{Class, Outcome, Sandbox, Seeded, Tree, rnd, skipped, soak, tree_of, write_rnd};
use rustix::process::Signal;

/// Calls that change what lies on a disk.
const CALLS: [&str; 11] = [
    "write",
    "pwrite64",
    "fsync",
    "fdatasync",
    "rename,renameat,renameat2",
    "linkat",
    "openat",
    "mkdir,mkdirat",
    "ftruncate",
    "unlink,unlinkat",
    "fallocate",
];

/// No series is longer than this.
const MOST_POINTS: usize = 400;

/// A repository with one version of S that was acknowledged, and S changed since: some chunks new, some patched, one file gone.
struct Ready {
    sandbox: Sandbox,
    before: Tree,
    after: Tree,
}

fn ready() -> Ready {
    let sandbox = Sandbox::new();
    sandbox.run(["init", "--chunk-profile", "64k"]).ok();
    write_rnd(sandbox.path("S/noise"), 1, 600_000);
    sandbox.write("S/text", "where the water waits\n".repeat(9_000));
    for number in 0..12 {
        write_rnd(sandbox.path(format!("S/sub/{number}")), 10 + number, 900 * usize::try_from(number).unwrap());
    }
    sandbox.run(["push", "S", "r"]).ok();
    sandbox.run(["push", "S/sub", "dead"]).ok();
    let before = tree_of(sandbox.path("S"));
    let mut noise = rnd(1, 600_000);
    noise.splice(300_000..300_010, rnd(2, 40));
    sandbox.write("S/noise", noise);
    write_rnd(sandbox.path("S/new"), 3, 200_000);
    fs::remove_file(sandbox.path("S/sub/3")).unwrap();
    let after = tree_of(sandbox.path("S"));
    Ready { sandbox, before, after }
}

/// The same in another folder, for one fault.
fn copy(ready: &Ready) -> Sandbox {
    let sandbox = Sandbox::new();
    for name in ["repo", "cache", "S"] {
        let copied =
            process::Command::new("cp").arg("-a").arg(ready.sandbox.path(name)).arg(sandbox.path(name)).status();
        assert!(copied.unwrap().success());
    }
    sandbox
}

/// What is done while the fault strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Job {
    Push,
    Gc,
    /// A fetch by a machine that has no index yet.
    Rebuild,
}

impl Job {
    const ALL: [Self; 3] = [Self::Push, Self::Gc, Self::Rebuild];

    fn args(self) -> &'static [&'static str] {
        match self {
            Self::Push => &["push", "S", "r"],
            Self::Gc => &["gc", "--grace", "0s"],
            Self::Rebuild => &["fetch", "r@1", "D"],
        }
    }

    fn prepare(self, sandbox: &Sandbox) {
        match self {
            Self::Push => {}
            Self::Gc => _ = sandbox.run(["rm", "dead"]).ok(),
            Self::Rebuild => sandbox.forget_cache(),
        }
    }
}

/// Checks everything that must hold after a fault, whatever the job said.
fn check(ready: &Ready, sandbox: &Sandbox, job: Job, acknowledged: bool, what: &str, keeps_cache: bool) {
    if job == Job::Rebuild && acknowledged {
        assert!(tree_of(sandbox.path("D")) == ready.before, "{what}: a fetch that ended well differs");
    }
    if !keeps_cache {
        sandbox.forget_cache();
    }
    let fetched = |place: &str| {
        fs::remove_dir_all(sandbox.path("E")).ok();
        let outcome = sandbox.run(["fetch", place, "E"]);
        assert_eq!(outcome.code(), 0, "{what}: {outcome:?}");
        tree_of(sandbox.path("E"))
    };
    let verified = sandbox.run(["verify"]);
    assert_eq!(verified.code(), 0, "{what}: {verified:?}");
    assert!(fetched("r@1") == ready.before, "{what}: what was acknowledged before is gone");
    let latest = fetched("r");
    match job {
        Job::Push if acknowledged => assert!(latest == ready.after, "{what}: acknowledged, and not there"),
        Job::Push => assert!(latest == ready.before || latest == ready.after, "{what}: a torn ref"),
        Job::Gc | Job::Rebuild => assert!(latest == ready.before, "{what}: the newest version changed"),
    }
    let again = sandbox.run(["push", "S", "r"]);
    assert_eq!(again.code(), 0, "{what}: {again:?}");
    assert!(fetched("r") == ready.after, "{what}: the next push is not what was pushed");
}

/// What a series of faults came to.
#[derive(Default)]
struct Figures {
    faults: usize,
    /// Of these at a sync of the repository, all refused.
    syncs: usize,
    acknowledged: usize,
}

impl Figures {
    #[expect(clippy::print_stderr, reason = "the figures are what `make torture-store` is for")]
    fn show(&self, what: &str) {
        let Self { faults, syncs, acknowledged } = self;
        eprintln!("{what:<52} {faults:>5} faults, {syncs:>3} at syncs, {acknowledged:>5} acknowledged and there");
    }
}

/// Whether strace can be used here.
fn can_trace() -> bool {
    let traced = process::Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    let can = traced.is_ok_and(|output| output.status.success());
    if !can {
        skipped("strace is missing, or is not allowed to trace");
    }
    can
}

/// Where a fault struck.
enum Struck {
    Nowhere,
    /// A sync of something in the repository.
    Sync,
    /// Any other call for a file.
    File,
    /// Nothing that Forebay keeps: a queue that wakes a thread, a pipe, a library that is loaded.
    Other,
}

fn struck(sandbox: &Sandbox, trace: &Path) -> Struck {
    let text = fs::read_to_string(trace).unwrap();
    let injected: Vec<&str> = text.lines().filter(|line| line.contains("(INJECTED)")).collect();
    let ours = fs::canonicalize(sandbox.path("")).unwrap().display().to_string();
    let is_sync = |line: &&str| line.contains("sync(") && line.contains(&format!("{ours}/repo/"));
    let is_other = |line: &&str| {
        let elsewhere = line.contains("\"/") && !line.contains(&format!("\"{ours}/"));
        elsewhere || ["<anon_inode:", "<pipe:", "<socket:", "</proc/"].iter().any(|sign| line.contains(sign))
    };
    if injected.iter().any(is_sync) {
        Struck::Sync
    } else if injected.iter().any(is_other) {
        Struck::Other
    } else if injected.is_empty() && !text.contains("+++ killed by SIGKILL +++") {
        Struck::Nowhere
    } else {
        Struck::File
    }
}

/// One run of a job with a fault at the n-th of these calls.
fn strike(sandbox: &Sandbox, job: Job, calls: &str, fault: &str, n: usize) -> (Outcome, Struck) {
    job.prepare(sandbox);
    let trace = sandbox.path("trace");
    let inject = format!("inject={calls}:{fault}:when={n}");
    let words =
        ["strace", "-f", "-y", "-qq", "-o", trace.to_str().unwrap(), "-e", &format!("trace={calls}"), "-e", &inject];
    let outcome = sandbox.command(job.args()).under(words).start().wait_unchecked();
    let struck = struck(sandbox, &trace);
    (outcome, struck)
}

/// A fault at all points of a series, until none is left to strike at.
fn series(ready: &Ready, job: Job, calls: &str, fault: &str) -> Figures {
    let mut figures = Figures::default();
    let step = if soak() || calls == "fsync" { 1 } else { 7 };
    for n in (1..).step_by(step) {
        assert!(n < MOST_POINTS, "{job:?} has more points at {calls}");
        let sandbox = copy(ready);
        let (outcome, struck) = strike(&sandbox, job, calls, fault, n);
        let what = format!("{job:?}, {calls} number {n}: {fault}");
        match struck {
            Struck::Nowhere => break,
            Struck::Other => continue,
            Struck::Sync => {
                assert_ne!(outcome.code(), 0, "{what}: acknowledged, and not synced: {outcome:?}");
                figures.syncs += 1;
            }
            Struck::File => {}
        }
        if !fault.starts_with("signal=") {
            outcome.check_always();
            // Nothing that was stored is damaged or absent, and nobody asked for the wrong thing.
            for class in [Class::Usage, Class::NotFound] {
                assert_ne!(outcome.code(), class.code(), "{what}: {outcome:?}");
            }
        }
        let acknowledged = outcome.code() == 0;
        figures.faults += 1;
        figures.acknowledged += usize::from(acknowledged);
        check(ready, &sandbox, job, acknowledged, &what, n % 2 == 0);
    }
    figures
}

fn all_series(job: Job, faults: &[&str]) {
    if !can_trace() {
        return;
    }
    let ready = ready();
    for fault in faults {
        let mut sum = Figures::default();
        for calls in CALLS {
            // A failed `write` would hit the queues that wake threads too, which no disk can fail; short writes have a test.
            if calls == "write" && fault.starts_with("error=") {
                continue;
            }
            let figures = series(&ready, job, calls, fault);
            if soak() {
                figures.show(&format!("{job:?}: {calls} {fault}"));
            }
            sum.faults += figures.faults;
            sum.syncs += figures.syncs;
            sum.acknowledged += figures.acknowledged;
        }
        sum.show(&format!("{job:?}: all calls {fault}"));
        assert!(sum.faults >= CALLS.len() / 2, "hardly a fault struck: {}", sum.faults);
        let syncs_fail = fault.starts_with("error=") && job != Job::Rebuild;
        assert!(!syncs_fail || sum.syncs > 0, "{job:?}: no sync of the repository failed");
    }
}

#[test]
fn a_push_meets_a_disk_that_fails() {
    all_series(Job::Push, &["error=EIO", "error=ENOSPC"]);
}

#[test]
fn a_collection_meets_a_disk_that_fails() {
    all_series(Job::Gc, &["error=EIO", "error=ENOSPC"]);
}

#[test]
fn a_rebuild_meets_a_disk_that_fails() {
    all_series(Job::Rebuild, &["error=EIO", "error=ENOSPC"]);
}

#[test]
fn jobs_are_killed_at_each_call() {
    for job in Job::ALL {
        all_series(job, &["signal=KILL"]);
    }
}

/// A file cannot grow past a limit: the write that reaches it is short, the next one fails.
#[test]
fn a_push_meets_short_writes() {
    let ready = ready();
    let mut figures = Figures::default();
    let step = if soak() { 1 } else { 97 };
    for blocks in (0..900).step_by(step) {
        let sandbox = copy(&ready);
        // dash counts blocks of 512 bytes.
        let limit = format!("trap '' XFSZ; ulimit -f {blocks}");
        let outcome = sandbox.command(Job::Push.args()).prelude(&limit).start().wait();
        let acknowledged = outcome.code() == 0;
        figures.faults += 1;
        figures.acknowledged += usize::from(acknowledged);
        check(&ready, &sandbox, Job::Push, acknowledged, &format!("files of at most {blocks} blocks"), blocks % 2 == 0);
    }
    figures.show("Push: files that cannot grow");
    assert!(figures.acknowledged < figures.faults, "no limit was felt");
}

#[test]
fn jobs_are_killed_at_random() {
    let ready = ready();
    let mut random = Seeded::new(20_261_207);
    let rounds = if soak() { 200 } else { 8 };
    for job in Job::ALL {
        let whole = copy(&ready);
        job.prepare(&whole);
        let started = Instant::now();
        whole.run(job.args()).ok();
        let longest = u64::try_from(started.elapsed().as_micros()).unwrap();
        let mut figures = Figures::default();
        for round in 0..rounds {
            let sandbox = copy(&ready);
            job.prepare(&sandbox);
            let mut running = sandbox.command(job.args()).start();
            std::thread::sleep(Duration::from_micros(random.below(longest)));
            running.signal(Signal::KILL);
            let acknowledged = running.wait().code() == 0;
            figures.faults += 1;
            figures.acknowledged += usize::from(acknowledged);
            check(&ready, &sandbox, job, acknowledged, &format!("{job:?}, kill {round}"), round % 2 == 0);
        }
        figures.show(&format!("{job:?}: SIGKILL at random"));
    }
}

//! Writers and collectors of garbage on one store, whose requests take seeded times, and who crash at seeded requests: what
//! was acknowledged is whole in the end, and nothing is left that nobody needs.
#![allow(clippy::disallowed_methods, reason = "tests run real threads and read their environment")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "gc_simulation/slow.rs"]
mod slow;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_cas::chunker::parse_profile;
use forebay_cas::clock::SystemClock;
use forebay_cas::gc::{GcOptions, Retention, collect};
use forebay_cas::origin::Origin;
use forebay_cas::push::{Patching, PushOptions, push};
use forebay_cas::rng::{Random, Seed};
use forebay_cas::sync::Mutex;
use forebay_cas::verify::{VerifyOptions, verify};
use forebay_cas::{Cancel, Classify, Collected, ErrorClass, Progress, Repository, Surroundings};
use forebay_format::{RefName, SnapshotId};
use object_store::memory::InMemory;
use tokio::runtime::{Builder, Runtime};

use self::slow::Slow;

const WRITERS: u64 = 3;
const COLLECTORS: u64 = 2;
const ROUNDS: u64 = 4;

/// One simulated world.
struct World {
    memory: Arc<InMemory>,
    runtime: Runtime,
    folder: tempfile::TempDir,
    seed: u64,
    /// The newest version of each ref, as its only writer was told; `None` if it was not told in the end.
    acknowledged: Mutex<BTreeMap<RefName, Option<SnapshotId>>>,
    /// What actors were told that nobody should be told.
    complaints: Mutex<Vec<String>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        Self {
            memory: Arc::default(),
            runtime,
            folder,
            seed,
            acknowledged: Mutex::default(),
            complaints: Mutex::default(),
        }
    }

    fn random(&self, name: &str) -> Random {
        Seed::fixed(self.seed).stream(name)
    }

    fn around(&self, actor: &str, life: u64) -> Surroundings {
        Surroundings {
            runtime: self.runtime.handle().clone(),
            clock: Arc::new(SystemClock::new()),
            seed: Seed::fixed(Seed::fixed(self.seed).stream(&format!("{actor} {life}")).below(u64::MAX)),
            notices: Arc::new(Collected::default()),
            // Kept through crashes, as on a machine.
            cache: self.folder.path().join(actor).join("cache"),
            writer: actor.to_owned(),
            tool: "simulation".to_owned(),
        }
    }

    fn origin(&self, store: Slow) -> Origin {
        Origin::new(Arc::new(store), "memory:///".to_owned(), None)
    }

    /// An actor's repository for one command, which may crash after some requests. `None` if it crashes at once.
    fn open(&self, actor: &str, life: u64, random: &Random) -> Option<(Repository, Slow)> {
        let crash = (random.below(3) == 0).then(|| random.below(60));
        let store = Slow::new(Arc::clone(&self.memory), self.random(&format!("line {actor} {life}")), crash);
        let opened = Repository::open(self.origin(store.clone()), self.around(actor, life));
        opened.ok().map(|repository| (repository, store))
    }

    fn write(&self, actor: &str, name: &str, bytes: &[u8]) -> PathBuf {
        let source = self.folder.path().join(actor).join("source");
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(source.join(name), bytes).unwrap();
        source
    }

    /// Pushes folders that share files with those of others, and removes its ref now and then.
    fn writer(&self, number: u64) {
        let actor = format!("writer {number}");
        let random = self.random(&actor);
        let name: RefName = format!("ref-{number}").parse().unwrap();
        let mut own = noise(number, 40_000);
        for life in 0..ROUNDS {
            // Few shared files: writers store the same chunks, and need what others have just given up.
            self.write(&actor, "shared", &noise(100 + random.below(3), 30_000));
            let at = usize::try_from(random.below(30_000)).unwrap();
            own.splice(at..at + 10, noise(random.below(u64::MAX), 20));
            let source = self.write(&actor, "own", &own);
            let Some((mut repository, store)) = self.open(&actor, life, &random) else { continue };
            let pushed = push(&mut repository, &options(&source, &name), &Progress::default(), &Cancel::default());
            match pushed {
                Ok(report) => drop(self.acknowledged.lock().insert(name.clone(), Some(report.snapshot))),
                Err(error) => {
                    let class = error.class();
                    if class == ErrorClass::Corrupt || !(store.has_crashed() || class == ErrorClass::Conflict) {
                        self.complaints.lock().push(format!("{actor}: {error:?}"));
                    }
                    // The record may have been written all the same.
                    self.acknowledged.lock().insert(name.clone(), None);
                }
            }
            if random.below(4) == 0 {
                let is_removed = repository.remove_ref(&name).is_ok();
                let mut acknowledged = self.acknowledged.lock();
                if is_removed {
                    acknowledged.remove(&name);
                } else {
                    acknowledged.insert(name.clone(), None);
                }
            }
        }
    }

    /// Collects without any grace.
    fn collector(&self, number: u64) {
        let actor = format!("collector {number}");
        let random = self.random(&actor);
        for life in 0..ROUNDS {
            let Some((mut repository, store)) = self.open(&actor, life, &random) else { continue };
            let keep_last = (random.below(2) == 0).then_some(1);
            let retention = Retention { keep_last, ..Retention::default() };
            let collected = self.collect(&mut repository, retention);
            if let Err((class, error)) = collected
                && !(store.has_crashed() || class == ErrorClass::Conflict)
            {
                self.complaints.lock().push(format!("{actor}: {error}"));
            }
        }
    }

    fn collect(&self, repository: &mut Repository, retention: Retention) -> Result<u64, (ErrorClass, String)> {
        let options = GcOptions { dry_run: false, grace: Duration::ZERO, retention, all: false };
        let collected = collect(repository, &options, &Progress::default(), &Cancel::default());
        collected.map(|report| report.condemned_bytes).map_err(|error| (error.class(), format!("{error:?}")))
    }

    /// What was acknowledged is there, and everything is whole.
    fn check(&self, what: &str) -> Repository {
        let quick = Slow::new(Arc::clone(&self.memory), self.random("check"), None).quick();
        let mut repository = Repository::open(self.origin(quick), self.around(what, 0)).unwrap();
        let everything = VerifyOptions { version: None, sample_percent: 100.0, threads: 1 };
        let report = verify(&mut repository, &everything, &Progress::default(), &Cancel::default()).unwrap();
        assert_eq!((report.missing, report.corrupt), (0, 0), "seed {}, {what}: {report:?}", self.seed);
        for (name, snapshot) in self.acknowledged.lock().iter() {
            let Some(snapshot) = snapshot else { continue };
            let newest = repository.state().newest(name).map(|version| version.snapshot);
            assert_eq!(newest, Some(*snapshot), "seed {}, {what}: {name}", self.seed);
            let version = VerifyOptions { version: Some(*snapshot), ..everything.clone() };
            let report = verify(&mut repository, &version, &Progress::default(), &Cancel::default()).unwrap();
            assert_eq!((report.missing, report.corrupt), (0, 0), "seed {}, {what}: {name}", self.seed);
        }
        repository
    }
}

fn options(source: &Path, name: &RefName) -> PushOptions {
    PushOptions {
        paths: vec![source.to_owned()],
        name: name.clone(),
        expect: None,
        step: None,
        parent: None,
        signer: None,
        labels: BTreeMap::new(),
        exclude: Vec::new(),
        allow_changed: false,
        dry_run: false,
        patching: Patching::Always,
        threads: 1,
    }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn simulate(seed: u64) {
    let world = World::new(seed);
    let quick = Slow::new(Arc::clone(&world.memory), world.random("start"), None).quick();
    let params = parse_profile("1/4/16").unwrap();
    let mut repository = Repository::init(world.origin(quick), params, world.around("base", 0)).unwrap();
    // One ref is always there.
    let source = world.write("base", "shared", &noise(100, 30_000));
    let base: RefName = "base".parse().unwrap();
    let pushed = push(&mut repository, &options(&source, &base), &Progress::default(), &Cancel::default()).unwrap();
    world.acknowledged.lock().insert(base, Some(pushed.snapshot));
    std::thread::scope(|scope| {
        let world = &world;
        (0..WRITERS).for_each(|number| drop(scope.spawn(move || world.writer(number))));
        (0..COLLECTORS).for_each(|number| drop(scope.spawn(move || world.collector(number))));
    });
    let mut repository = world.check("after the storm");
    assert_eq!(*world.complaints.lock(), [] as [String; 0], "seed {seed}");
    let collected = world.collect(&mut repository, Retention { keep_last: Some(1), ..Retention::default() });
    assert!(collected.is_ok(), "seed {seed}: {collected:?}");
    // Bases that only dead patches need go with the packs of those, one run later each.
    let mut repository = world.check("after the last collection");
    let left = (0..8).map(|_| world.collect(&mut repository, Retention::default())).find(|left| *left == Ok(0));
    assert!(left.is_some() && repository.state().condemned.is_empty(), "seed {seed}: garbage is left");
    drop(world.check("in the end"));
}

#[test]
fn writers_and_collectors_lose_nothing() {
    let soak = std::env::var_os("FOREBAY_SOAK").is_some();
    let first = std::env::var("FOREBAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    let worlds = if soak { 1500 } else { 24 };
    let threads = 4;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || (first + thread..first + worlds).step_by(4).for_each(simulate));
        }
    });
}

//! What every origin must do, run on memory, on a folder and on a real S3 server.
//!
//! The S3 server is given by `FOREBAY_TEST_S3_ENDPOINT` (scripts/test.sh starts one); without it those tests say that they
//! are skipped. `FOREBAY_TEST_IGNORANT_S3_ENDPOINT` is a server that ignores conditional writes and must be refused.
#![allow(clippy::disallowed_methods, reason = "tests run real tasks and read their environment")]
#![allow(clippy::print_stderr, reason = "a test that did not run must not look like one that passed")]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use forebay_cas::clock::SystemClock;
use forebay_cas::fetch::{FetchOptions, fetch};
use forebay_cas::log::{Log, LogError};
use forebay_cas::origin::{Created, Origin, OriginError, ProbeError, probe};
use forebay_cas::push::{Expect, Patching, PushError, PushOptions, push};
use forebay_cas::rng::Seed;
use forebay_cas::verify::{VerifyOptions, verify};
use forebay_cas::{Cancel, Classify, Collected, ErrorClass, OpenError, Progress, Repository, Surroundings};
use forebay_format::{LogRecord, LogState, Nonce, RefChange, RefName, RepositoryId, SnapshotId, Timestamp};
use tokio::runtime::{Builder, Runtime};

/// A place to test on, fresh for each test.
struct Site {
    name: &'static str,
    url: String,
    settings: Vec<(String, String)>,
    _folder: tempfile::TempDir,
}

impl Site {
    fn open(&self) -> Origin {
        Origin::open(&self.url, &self.settings).expect("the URL is right")
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads can be started")
}

fn settings(endpoint: &str) -> Vec<(String, String)> {
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| "testing".to_owned());
    [
        ("AWS_ENDPOINT", endpoint.to_owned()),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", variable("FOREBAY_TEST_S3_KEY")),
        ("AWS_SECRET_ACCESS_KEY", variable("FOREBAY_TEST_S3_SECRET")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// The S3 server's bucket with a fresh prefix; `None` where the variable is not set.
fn s3(variable: &str) -> Option<Site> {
    let Ok(endpoint) = std::env::var(variable) else {
        eprintln!("skipped on S3: {variable} is not set; scripts/test.sh starts a server and sets it");
        return None;
    };
    let prefix = Seed::from_os().stream("prefix").bytes::<8>().map(|byte| format!("{byte:02x}")).concat();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let settings = settings(&endpoint);
    Some(Site { name: "s3", url: format!("s3://forebay-test/{prefix}"), settings, _folder: folder })
}

/// Every place where several origins can be opened on the same data; memory is not among them.
fn shared_sites() -> Vec<Site> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = folder.path().join("origin").display().to_string();
    let mut sites = vec![Site { name: "folder", url, settings: Vec::new(), _folder: folder }];
    sites.extend(s3("FOREBAY_TEST_S3_ENDPOINT"));
    sites
}

fn sites() -> Vec<Site> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut sites = shared_sites();
    sites.push(Site { name: "memory", url: "memory://".to_owned(), settings: Vec::new(), _folder: folder });
    sites
}

#[test]
fn objects_are_written_read_listed_and_deleted() {
    let runtime = runtime();
    for site in sites() {
        let origin = site.open();
        runtime.block_on(async {
            assert!(matches!(origin.get("a/x", 10).await, Err(OriginError::NotFound { .. })), "{}", site.name);
            assert_eq!(origin.len("a/x").await.unwrap(), None);
            origin.put("a/x", Bytes::from_static(b"0123456789").into()).await.unwrap();
            assert_eq!(origin.len("a/x").await.unwrap(), Some(10));
            assert_eq!(origin.get("a/x", 10).await.unwrap(), "0123456789");
            assert!(matches!(origin.get("a/x", 9).await, Err(OriginError::TooLarge { size: 10, limit: 9, .. })));
            assert_eq!(origin.get_range("a/x", 3..6).await.unwrap(), "345");
            for range in [8..12, 10..11, 20..30] {
                let error = origin.get_range("a/x", range.clone()).await.unwrap_err();
                assert_eq!(error.class(), ErrorClass::Corrupt, "{} {range:?}: {error:?}", site.name);
            }
            origin.put("a/b/y", Bytes::from_static(b"y").into()).await.unwrap();
            let mut listed = origin.list("a").await.unwrap();
            listed.sort();
            assert_eq!(listed, [("a/b/y".to_owned(), 1), ("a/x".to_owned(), 10)]);
            origin.delete("a/x").await.unwrap();
            origin.delete("a/x").await.unwrap();
            assert_eq!(origin.len("a/x").await.unwrap(), None);
        });
    }
}

#[test]
fn of_racing_creates_exactly_one_wins() {
    let runtime = runtime();
    for site in sites() {
        let origin = Arc::new(site.open());
        runtime.block_on(async {
            for round in 0..20 {
                let path = format!("race/{round}");
                let mut racers = tokio::task::JoinSet::new();
                for racer in 0..8_u8 {
                    let (origin, path) = (Arc::clone(&origin), path.clone());
                    racers.spawn(async move { (racer, origin.create(&path, vec![racer].into()).await.unwrap()) });
                }
                let outcomes = racers.join_all().await;
                let winners: Vec<u8> =
                    outcomes.iter().filter(|(_, created)| *created == Created::New).map(|(racer, _)| *racer).collect();
                assert_eq!(winners.len(), 1, "{} round {round}: {outcomes:?}", site.name);
                assert_eq!(origin.get(&path, 1).await.unwrap().to_vec(), winners);
            }
            probe(&origin, &Seed::fixed(1).stream("probe")).await.unwrap();
            assert_eq!(origin.list("probe").await.unwrap(), []);
        });
    }
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let Some(site) = s3("FOREBAY_TEST_IGNORANT_S3_ENDPOINT") else { return };
    let runtime = runtime();
    let outcome = runtime.block_on(async { probe(&site.open(), &Seed::fixed(1).stream("probe")).await });
    assert!(matches!(outcome, Err(ProbeError::ConditionIgnored { winners, .. }) if winners > 1), "{outcome:?}");
    let place = Place::new(&runtime, 1);
    let refused = Repository::init(site.open(), forebay_cas::chunker::PROFILES[0].params, place.around.clone());
    let error = refused.expect_err("nothing may be written there");
    assert!(matches!(error, OpenError::Probe(_)), "{error:?}");
    assert_eq!(error.class(), ErrorClass::Usage);
    // That server may still list what was just deleted; of a repository there is nothing.
    let left = runtime.block_on(site.open().list("")).unwrap();
    assert!(left.iter().all(|(path, _)| path.starts_with("probe/")), "{left:?}");
}

fn record(state: &LogState, name: &RefName, snapshot: u64) -> LogRecord {
    let old = state.newest(name).map(|version| version.snapshot);
    let new = Some(SnapshotId::of(&snapshot.to_le_bytes()));
    let sequence = state.find(name).map_or(1, |known| known.sequence + 1);
    LogRecord {
        repository: state.repository,
        sequence: 0,
        previous: None,
        nonce: Nonce::from_bytes([0; 16]),
        writer: "test".to_owned(),
        tool: "test".to_owned(),
        time: Timestamp { seconds: 0, nanos: 0 },
        index_generation: 0,
        refs: vec![RefChange { name: name.clone(), sequence, old, new, parent: old, envelope: None, step: None }],
        segments: Vec::new(),
        gc: None,
        forgotten: None,
    }
}

#[test]
fn every_append_that_succeeds_is_in_the_log_once() {
    const WRITERS: u64 = 8;
    const ROUNDS: u64 = 8;
    let runtime = runtime();
    let repository = RepositoryId::from_bytes([7; 16]);
    let name: RefName = "shared".parse().unwrap();
    for site in sites() {
        let origin = Arc::new(site.open());
        runtime.block_on(async {
            let mut writers = tokio::task::JoinSet::new();
            for writer in 0..WRITERS {
                let (origin, name) = (Arc::clone(&origin), name.clone());
                writers.spawn(async move {
                    let mut log = Log::cold(origin, repository);
                    let random = Seed::fixed(writer).stream("nonces");
                    for round in 0..ROUNDS {
                        let build = |state: &LogState| Ok::<_, LogError>(record(state, &name, writer * 100 + round));
                        log.append(&random, build).await.unwrap();
                    }
                });
            }
            writers.join_all().await;
            let mut log = Log::cold(Arc::clone(&origin), repository);
            log.refresh().await.unwrap();
            let versions = &log.state().find(&name).unwrap().versions;
            assert_eq!(versions.len() as u64, WRITERS * ROUNDS, "{}", site.name);
            let parents_follow = versions.windows(2).all(|pair| pair[1].parent == Some(pair[0].snapshot));
            assert!(parents_follow, "{}: each version follows the one before", site.name);
            let mut snapshots: Vec<_> = versions.iter().map(|version| version.snapshot).collect();
            snapshots.sort();
            snapshots.dedup();
            assert_eq!(snapshots.len() as u64, WRITERS * ROUNDS, "{}: no win is lost or doubled", site.name);
        });
    }
}

#[test]
fn states_sum_the_log_up() {
    let runtime = runtime();
    let repository = RepositoryId::from_bytes([8; 16]);
    let name: RefName = "long".parse().unwrap();
    for site in sites().into_iter().filter(|site| site.name != "s3") {
        let origin = Arc::new(site.open());
        runtime.block_on(async {
            let mut log = Log::cold(Arc::clone(&origin), repository);
            let random = Seed::fixed(3).stream("nonces");
            for number in 0..230 {
                log.append(&random, |state| Ok::<_, LogError>(record(state, &name, number))).await.unwrap();
            }
            assert_eq!(origin.list("log/commit.state").await.unwrap().len(), 2, "{}", site.name);
            let requests = origin.requests();
            let mut cold = Log::cold(Arc::clone(&origin), repository);
            cold.refresh().await.unwrap();
            assert_eq!(cold.state(), log.state());
            assert!(origin.requests() - requests < 50, "a cold reader starts from the newest state");
            // A copy that the origin does not confirm is dropped.
            let mut foreign = log.state().clone();
            foreign.sequence = 5;
            let mut doubtful = Log::from_copy(Arc::clone(&origin), foreign);
            doubtful.refresh().await.unwrap();
            assert_eq!(doubtful.state(), log.state());
        });
    }
}

/// Folder and surroundings of one machine.
struct Place {
    folder: tempfile::TempDir,
    around: Surroundings,
    notices: Arc<Collected>,
}

impl Place {
    fn new(runtime: &Runtime, seed: u64) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let notices = Arc::new(Collected::default());
        let around = Surroundings {
            runtime: runtime.handle().clone(),
            clock: Arc::new(SystemClock::new()),
            seed: Seed::fixed(seed),
            notices: Arc::<Collected>::clone(&notices),
            cache: folder.path().join("cache"),
            writer: format!("machine-{seed}"),
            tool: "test".to_owned(),
        };
        Self { folder, around, notices }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }
}

fn push_options(path: &Path, name: &str) -> PushOptions {
    PushOptions {
        paths: vec![path.to_owned()],
        step: None,
        parent: None,
        signer: None,
        name: name.parse().expect("a ref name"),
        expect: None,
        labels: std::collections::BTreeMap::new(),
        exclude: Vec::new(),
        allow_changed: false,
        dry_run: false,
        patching: Patching::Always,
        threads: 2,
    }
}

fn fetch_options(dest: &Path) -> FetchOptions {
    FetchOptions {
        dest: dest.to_owned(),
        include: Vec::new(),
        exclude: Vec::new(),
        delete: false,
        offline: false,
        cache: std::env::temp_dir(),
        threads: 2,
    }
}

#[test]
fn what_one_machine_pushes_another_fetches() {
    let runtime = runtime();
    for site in shared_sites() {
        let one = Place::new(&runtime, 1);
        let other = Place::new(&runtime, 2);
        let source = one.path("source");
        std::fs::create_dir_all(source.join("below")).unwrap();
        let mut noise = vec![0; 3_000_000];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        std::fs::write(source.join("noise"), &noise).unwrap();
        std::fs::write(source.join("below/text"), "water ".repeat(50_000)).unwrap();
        let (progress, cancel) = (Progress::default(), Cancel::default());

        let params = forebay_cas::chunker::PROFILES[1].params;
        let mut writer = Repository::init(site.open(), params, one.around.clone()).unwrap();
        let first = push(&mut writer, &push_options(&source, "set"), &progress, &cancel).unwrap();
        assert!(first.committed && first.sequence == 1 && first.new_chunks == first.chunks, "{first:?}");
        let again = push(&mut writer, &push_options(&source, "set"), &progress, &cancel).unwrap();
        assert!(!again.committed && again.new_chunks == 0 && again.stored_bytes == 0, "{again:?}");

        let mut reader = Repository::open(site.open(), other.around.clone()).unwrap();
        let clock = other.around.clock.as_ref();
        let report = fetch(
            &reader.reader().unwrap(),
            clock,
            first.snapshot,
            &fetch_options(&other.path("dest")),
            &progress,
            &cancel,
        )
        .unwrap();
        assert_eq!(report.files_written, 2, "{}", site.name);
        assert_eq!(std::fs::read(other.path("dest/noise")).unwrap(), noise);

        noise.insert(1_000_000, 7);
        std::fs::write(source.join("noise"), &noise).unwrap();
        let second = push(&mut writer, &push_options(&source, "set"), &progress, &cancel).unwrap();
        assert!(second.new_bytes < 3 * 256 * 1024 && second.parent == Some(first.snapshot), "{second:?}");
        reader.refresh().unwrap();
        let report = fetch(
            &reader.reader().unwrap(),
            clock,
            second.snapshot,
            &fetch_options(&other.path("dest")),
            &progress,
            &cancel,
        )
        .unwrap();
        assert_eq!(report.files_written, 1, "{}", site.name);
        assert_eq!(std::fs::read(other.path("dest/noise")).unwrap(), noise);

        let stale =
            PushOptions { expect: Some(Expect::Prefix(first.snapshot.to_hex())), ..push_options(&source, "set") };
        let refused = push(&mut reader, &stale, &progress, &cancel);
        assert!(matches!(refused, Err(PushError::Conflict { found: Some(found), .. }) if found == second.snapshot));
        for version in [None, Some(first.snapshot), Some(second.snapshot)] {
            let options = VerifyOptions { version, sample_percent: 100.0, threads: 2 };
            let report = verify(&mut reader, &options, &progress, &cancel).unwrap();
            assert!(report.chunks > 10 && report.missing + report.corrupt == 0, "{}: {report:?}", site.name);
        }
        let warnings = other.notices.take();
        assert!(warnings.iter().all(|warning| warning.kind == "index-filled"), "{warnings:?}");
    }
}

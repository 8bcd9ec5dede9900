//! What every command needs: settings, output, a runtime, the repository.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_cas::chunker::PROFILES;
use forebay_cas::clock::{Clock, SystemClock};
use forebay_cas::index::LocalIndex;
use forebay_cas::origin::Origin;
use forebay_cas::rng::Seed;
use forebay_cas::task::RuntimeThread;
use forebay_cas::{Cancel, ErrorClass, Notices, OpenError, Repository, Surroundings, Warning};
use forebay_format::{ChunkerParams, RefName, RefVersion, Timestamp, VersionSpec};
use tokio::runtime::{Builder, Handle, Runtime};
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;
use crate::meter::Meter;
use crate::output::Output;
use crate::settings::Settings;
use crate::stop;

/// Threads that wait for requests; the work itself has its own.
const REQUEST_THREADS: usize = 2;
/// Threads for what blocks on files, started when they are needed. A node reads for 16 requests at a time, and each of them
/// waits for the origin's own calls.
const FILE_THREADS: usize = 64;

/// One run of the command.
#[derive(Debug)]
pub(crate) struct Context<'o> {
    pub(crate) settings: Settings,
    pub(crate) output: &'o Output,
    pub(crate) cancel: Cancel,
    runtime: Runtime,
    clock: Arc<SystemClock>,
    seed: Seed,
    network: OnceLock<RuntimeThread>,
}

impl<'o> Context<'o> {
    pub(crate) fn new(settings: Settings, verbose: u8, output: &'o Output) -> Result<Self, Failure> {
        start_tracing(verbose);
        let runtime = Builder::new_multi_thread()
            .worker_threads(REQUEST_THREADS)
            .max_blocking_threads(FILE_THREADS)
            .enable_all()
            .build()
            .map_err(|source| Failure::new(ErrorClass::Failed, format_args!("no threads can be started: {source}")))?;
        let cancel = Cancel::default();
        stop::listen(&runtime, cancel.clone());
        Ok(Self {
            settings,
            output,
            cancel,
            runtime,
            clock: Arc::new(SystemClock::new()),
            seed: Seed::from_os(),
            network: OnceLock::new(),
        })
    }

    /// Time since the command was started.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    /// The clocks of this run.
    pub(crate) fn clock(&self) -> &SystemClock {
        &self.clock
    }

    /// Wall time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The same, to be kept.
    pub(crate) fn shared_clock(&self) -> Arc<dyn Clock> {
        Arc::<SystemClock>::clone(&self.clock)
    }

    /// Runs requests and what blocks on disks.
    pub(crate) fn runtime(&self) -> &Handle {
        self.runtime.handle()
    }

    /// The runtime of connections to nodes; its thread is started by the first call.
    pub(crate) fn network(&self) -> Result<Handle, Failure> {
        if let Some(network) = self.network.get() {
            return Ok(network.handle().clone());
        }
        let started = RuntimeThread::start("quic")
            .map_err(|source| Failure::new(ErrorClass::Failed, format_args!("no threads can be started: {source}")))?;
        Ok(self.network.get_or_init(|| started).handle().clone())
    }

    /// Bytes that nobody can guess.
    pub(crate) fn random<const N: usize>(&self, what: &str) -> [u8; N] {
        self.seed.stream(what).bytes()
    }

    /// Shows progress until it is dropped.
    pub(crate) fn meter(&self, what: &'static str) -> Meter {
        Meter::start(self.output, self.runtime.handle(), what)
    }

    /// Opens the repository.
    pub(crate) fn repository(&self) -> Result<Repository, Failure> {
        Ok(Repository::open(self.origin()?, self.surroundings())?)
    }

    /// Opens the repository, or makes it with default chunk sizes, with one line that says so.
    pub(crate) fn repository_or_new(&self) -> Result<Repository, Failure> {
        match Repository::open(self.origin()?, self.surroundings()) {
            Err(OpenError::NotFound { .. }) => {}
            other => return Ok(other?),
        }
        match self.init(PROFILES[0].params) {
            Ok(repository) => {
                let message = format!("made a new repository at {}", self.settings.values.repo);
                self.output.warn(Warning { kind: "new-repository", message, path: None });
                Ok(repository)
            }
            // Somebody else made it just now.
            Err(Failure::Operation { class: ErrorClass::Conflict, .. }) => self.repository(),
            Err(failure) => Err(failure),
        }
    }

    /// Opens the repository, or imagines an empty one: for a rehearsal that must leave nothing behind.
    pub(crate) fn repository_or_imagined(&self) -> Result<Repository, Failure> {
        match Repository::open(self.origin()?, self.surroundings()) {
            Err(OpenError::NotFound { .. }) => {
                let origin = Origin::open("memory://", &[])?;
                Ok(Repository::init(origin, PROFILES[0].params, self.surroundings())?)
            }
            other => Ok(other?),
        }
    }

    /// Makes a repository.
    pub(crate) fn init(&self, params: ChunkerParams) -> Result<Repository, Failure> {
        Ok(Repository::init(self.origin()?, params, self.surroundings())?)
    }

    /// Deletes the index cache that a command found damaged.
    pub(crate) fn throw_away_index(&self, failure: &Failure) -> Result<(), Failure> {
        let Some(folder) = failure.damaged_index() else { return Ok(()) };
        let message = format!("the index cache {} is damaged and is made anew", folder.display());
        self.output.warn(Warning { kind: "index-rebuilt", message, path: None });
        LocalIndex::wipe(folder).map_err(|source| {
            let class = forebay_cas::Classify::class(&source);
            Failure::new(class, format_args!("{} cannot be emptied: {source}", folder.display()))
        })
    }

    /// Opens another repository to read from. What is remembered of it lies beside what is remembered of this one, for it may
    /// be a copy that goes by the same name.
    pub(crate) fn other_repository(&self, url: &str) -> Result<Repository, Failure> {
        let around = self.surroundings();
        let cache = around.cache.join("others");
        Ok(Repository::open(Origin::open(url, &self.settings.store)?, Surroundings { cache, ..around })?)
    }

    fn origin(&self) -> Result<Origin, Failure> {
        Ok(Origin::open(&self.settings.values.repo, &self.settings.store)?)
    }

    /// What operations need from this run.
    pub(crate) fn surroundings(&self) -> Surroundings {
        let notices: Arc<dyn Notices> = Arc::new(self.output.clone());
        let clock: Arc<dyn Clock> = Arc::<SystemClock>::clone(&self.clock);
        Surroundings {
            runtime: self.runtime.handle().clone(),
            clock,
            seed: self.seed.clone(),
            notices,
            cache: self.settings.values.cache_dir.clone(),
            writer: writer(&self.settings),
            tool: concat!("forebay ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// Finds `NAME[@VERSION]` in a repository.
pub(crate) fn resolve(repository: &Repository, text: &str) -> Result<(RefName, RefVersion), Failure> {
    let (name, spec) = VersionSpec::parse(text).map_err(Failure::usage)?;
    let version = repository.resolve(&name, &spec)?;
    Ok((name, version))
}

/// Parses a ref name.
pub(crate) fn ref_name(text: &str) -> Result<RefName, Failure> {
    text.parse().map_err(|error: forebay_format::RefNameError| Failure::usage(error))
}

/// Who writes: tenant and host, as people will look for them.
fn writer(settings: &Settings) -> String {
    let host = rustix::system::uname();
    format!("{}@{}", settings.values.tenant, host.nodename().to_string_lossy())
}

fn start_tracing(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => "forebay_cas=debug",
        _ => "debug",
    };
    let started = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(level))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
    debug_assert!(started.is_ok(), "started once");
}

//! A repository: its configuration, its log, its index, and reading chunks out of it.

mod ahead;
mod error;
mod origin_source;
mod read;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use forebay_format::{
    ChunkerParams, Cipher, Digest, IdScheme, Limits, LogRecord, LogState, RefChange, RefName, RefVersion,
    RepositoryConfig, RepositoryId, Segment, SegmentId, SegmentRef, Snapshot, SnapshotId, StepSpec, VersionSpec,
};
use tokio::runtime::Handle;

pub use self::error::{OpenError, ReadError, ResolveError};
pub use self::origin_source::OriginSource;
pub(crate) use self::origin_source::locate;
pub use self::read::{ChunkReader, decode_frame};
use crate::class::{Classify, ErrorClass};
use crate::clock::Clock;
use crate::index::{LocalIndex, OpenMode};
use crate::log::{Log, LogError};
use crate::origin::{Created, Origin, OriginError, probe, sweep};
use crate::packer::segment_path;
use crate::progress::{Notices, Warning};
use crate::rng::Seed;

const CONFIG: &str = "forebay.cbor";

/// What operations on a repository need from their surroundings.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Runs requests. Operations block on it: they are not to be called from its own threads.
    pub runtime: Handle,
    /// Time for labels and waits.
    pub clock: Arc<dyn Clock>,
    /// Randomness for names and nonces.
    pub seed: Seed,
    /// Takes warnings.
    pub notices: Arc<dyn Notices>,
    /// Folder for everything that can be made again.
    pub cache: PathBuf,
    /// Written into log records: who.
    pub writer: String,
    /// Written into log records: with which program.
    pub tool: String,
}

/// An open repository. Blocking; see [`Surroundings::runtime`].
#[derive(Debug)]
pub struct Repository {
    pub(crate) origin: Arc<Origin>,
    pub(crate) config: RepositoryConfig,
    pub(crate) around: Surroundings,
    log: Log,
    index: Option<Arc<LocalIndex>>,
    /// The generation that the open index stands for.
    indexed: u64,
}

impl Repository {
    /// Makes a repository with these chunk sizes, after proving that the store keeps conditional creates.
    ///
    /// # Errors
    /// [`OpenError::Exists`] if there is one already.
    pub fn init(origin: Origin, chunker: ChunkerParams, around: Surroundings) -> Result<Self, OpenError> {
        let origin = Arc::new(origin);
        let config = RepositoryConfig {
            format: RepositoryConfig::FORMAT,
            id: RepositoryId::from_bytes(around.seed.stream("repository").bytes()),
            chunker,
            id_scheme: IdScheme::Blake3,
            cipher: Cipher::None,
            min_writer: RepositoryConfig::FORMAT,
            created: around.clock.now(),
        };
        prepare_folder(&origin)?;
        around.runtime.block_on(async {
            if read_config(&origin).await?.is_some() {
                return Err(OpenError::Exists { origin: origin.url().to_owned() });
            }
            if !origin.list("log").await?.is_empty() {
                return Err(OpenError::Headless { origin: origin.url().to_owned() });
            }
            probe(&origin, &around.seed.stream("probe")).await?;
            let created = origin.create(CONFIG, Bytes::from(config.encode())).await?;
            // Whoever won: the object there is the configuration. It is ours if it has our random id.
            if created != Created::New && read_config(&origin).await?.as_ref() != Some(&config) {
                return Err(OpenError::Exists { origin: origin.url().to_owned() });
            }
            Ok(())
        })?;
        let log = Log::cold(Arc::clone(&origin), config.id);
        Ok(Self { origin, config, around, log, index: None, indexed: 0 })
    }

    /// Opens a repository and reads its log.
    ///
    /// # Errors
    /// [`OpenError::NotFound`] if there is none.
    pub fn open(origin: Origin, around: Surroundings) -> Result<Self, OpenError> {
        let origin = Arc::new(origin);
        let config = around.runtime.block_on(read_config(&origin))?;
        let Some(config) = config else {
            return Err(OpenError::NotFound { origin: origin.url().to_owned() });
        };
        let copy = copy_path(&around.cache, config.id);
        let log = match read_copy(&copy, config.id) {
            Some(state) => Log::from_copy(Arc::clone(&origin), state),
            None => Log::cold(Arc::clone(&origin), config.id),
        };
        let mut repository = Self { origin, config, around, log, index: None, indexed: 0 };
        repository.refresh()?;
        Ok(repository)
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &RepositoryConfig {
        &self.config
    }

    /// Where it is.
    #[must_use]
    pub const fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// All refs as the log has them.
    #[must_use]
    pub const fn state(&self) -> &LogState {
        self.log.state()
    }

    /// Reads what has been appended to the log since.
    ///
    /// # Errors
    /// [`LogError`] if a record is damaged or the origin fails.
    pub fn refresh(&mut self) -> Result<(), LogError> {
        let before = self.log.state().sequence;
        self.around.runtime.block_on(self.log.refresh())?;
        if self.log.state().sequence != before {
            self.keep_copy();
        }
        Ok(())
    }

    /// Makes ready for writing: proves that a store keeps conditional creates, and sweeps a folder of what killed writers
    /// left unfinished. A folder needs no proof: there a create is a hard link.
    ///
    /// # Errors
    /// [`OpenError::Probe`] if it does not.
    pub fn prepare_to_write(&self) -> Result<(), OpenError> {
        match self.origin.folder() {
            Some(folder) => sweep(folder, self.around.clock.now()),
            None => self.around.runtime.block_on(probe(&self.origin, &self.around.seed.stream("probe")))?,
        }
        Ok(())
    }

    /// Appends a log record, see [`Log::append`].
    pub(crate) fn append<E: From<LogError>>(
        &mut self,
        build: impl FnMut(&LogState) -> Result<LogRecord, E> + Send,
    ) -> Result<LogRecord, E> {
        let random = self.around.seed.stream("nonces");
        let record = self.around.runtime.block_on(self.log.append(&random, build))?;
        self.keep_copy();
        Ok(record)
    }

    /// Removes a ref. Its content stays until it is collected as garbage.
    ///
    /// # Errors
    /// [`ResolveError::NotFound`] if there is no such ref.
    pub fn remove_ref(&mut self, name: &RefName) -> Result<RefVersion, ResolveError> {
        let origin = self.origin.url().to_owned();
        let (time, writer, tool) = (self.around.clock.now(), self.around.writer.clone(), self.around.tool.clone());
        let mut removed = Err(ResolveError::NotFound { origin: origin.clone(), name: name.clone() });
        self.append::<ResolveError>(|state| {
            let Some(version) = state.newest(name) else {
                return Err(ResolveError::NotFound { origin: origin.clone(), name: name.clone() });
            };
            removed = Ok(version.clone());
            Ok(LogRecord {
                refs: vec![RefChange {
                    name: name.clone(),
                    sequence: state.find(name).map_or(1, |ref_state| ref_state.sequence + 1),
                    old: Some(version.snapshot),
                    new: None,
                    parent: None,
                    envelope: None,
                    step: None,
                }],
                ..empty_record(state, time, writer.clone(), tool.clone())
            })
        })?;
        removed
    }

    /// Finds a version of a ref.
    ///
    /// # Errors
    /// [`ResolveError`] says whether the ref or the version is unknown, or the prefix stands for several.
    pub fn resolve(&self, name: &RefName, spec: &VersionSpec) -> Result<RefVersion, ResolveError> {
        let versions = self.state().find(name).map(|state| state.versions.as_slice()).unwrap_or_default();
        let origin = || self.origin.url().to_owned();
        let Some(newest) = versions.last() else {
            return Err(ResolveError::NotFound { origin: origin(), name: name.clone() });
        };
        let (version, found) = match spec {
            VersionSpec::Newest => return Ok(newest.clone()),
            VersionSpec::Sequence(sequence) => {
                let text = sequence.to_string();
                let exact = versions.iter().find(|version| version.sequence == *sequence);
                let found = match exact {
                    Some(version) => vec![version],
                    None if text.len() >= 8 => with_prefix(versions, &text),
                    None => Vec::new(),
                };
                (text, found)
            }
            VersionSpec::IdPrefix(prefix) => (prefix.clone(), with_prefix(versions, prefix)),
        };
        match found.split_last() {
            None => Err(ResolveError::NoVersion { name: name.clone(), version, newest: newest.sequence }),
            Some((last, others)) if others.iter().all(|other| other.snapshot == last.snapshot) => Ok((*last).clone()),
            Some(_) => Err(ResolveError::Ambiguous { name: name.clone(), version, matches: found.len() }),
        }
    }

    /// Finds a checkpoint of a run.
    ///
    /// # Errors
    /// [`ResolveError`] says whether the run or the step is unknown.
    pub fn resolve_step(&self, run: &RefName, spec: StepSpec) -> Result<RefVersion, ResolveError> {
        let state = self.state();
        if state.newest(run).is_none() {
            return Err(ResolveError::NotFound { origin: self.origin.url().to_owned(), name: run.clone() });
        }
        let latest = state.latest_step(run);
        let found = match spec {
            StepSpec::Latest => latest,
            StepSpec::Step(step) => state.find_step(run, step),
        };
        let latest = latest.and_then(|version| version.step);
        found.cloned().ok_or_else(|| ResolveError::NoStep { name: run.clone(), spec, latest })
    }

    /// The index, filled with all committed segments. The first call opens it.
    ///
    /// # Errors
    /// [`ReadError`] if a segment is damaged or missing, or index or origin fail.
    pub fn index(&mut self) -> Result<Arc<LocalIndex>, ReadError> {
        let index = match &self.index {
            Some(index) => Arc::clone(index),
            None => {
                let index = Arc::new(self.open_index()?);
                self.tell_about(&index);
                self.index = Some(Arc::clone(&index));
                self.indexed = self.state().index_generation;
                index
            }
        };
        loop {
            if self.indexed != self.state().index_generation {
                index.follow(self.state())?;
                self.indexed = self.state().index_generation;
            }
            let sequence = self.state().sequence;
            match self.load_segments(&index) {
                Ok(()) => return Ok(index),
                // A collection of garbage may have replaced and deleted it meanwhile.
                Err(ReadError::Origin(OriginError::NotFound { path, .. })) => {
                    self.refresh()?;
                    if self.state().sequence == sequence {
                        let origin = self.origin.url().to_owned();
                        return Err(ReadError::Origin(OriginError::NotFound { origin, path }));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the snapshot of a version.
    ///
    /// # Errors
    /// [`ReadError`] if it is missing or damaged.
    pub fn snapshot(&mut self, id: SnapshotId) -> Result<Snapshot, ReadError> {
        let reader = self.reader()?;
        reader.snapshot(id)
    }

    /// A reader of chunks with the index as it is now; cheap to clone into threads.
    ///
    /// # Errors
    /// As [`Self::index`].
    pub fn reader(&mut self) -> Result<ChunkReader, ReadError> {
        let index = self.index()?;
        let source = OriginSource::new(Arc::clone(&self.origin), Arc::clone(&index), self.around.runtime.clone());
        Ok(ChunkReader::new(Arc::new(source), index))
    }

    /// As [`Self::reader`], for a process that goes on for long: others can write the index meanwhile. The repository can
    /// only be read from here on.
    ///
    /// # Errors
    /// As [`Self::index`].
    pub fn into_reader(mut self) -> Result<ChunkReader, ReadError> {
        let index = self.index()?;
        self.index = None;
        let index = Arc::try_unwrap(index).map_or_else(|shared| shared, |own| Arc::new(own.beside()));
        // Whoever wrote in between may have emptied it.
        self.load_segments(&index)?;
        let source = OriginSource::new(Arc::clone(&self.origin), Arc::clone(&index), self.around.runtime.clone());
        Ok(ChunkReader::new(Arc::new(source), index))
    }

    /// Opens the index. One that holds segments which the log does not have belongs to a history that was taken back, as
    /// when a repository is restored from a copy: its places may lead nowhere, so it is made anew.
    fn open_index(&mut self) -> Result<LocalIndex, ReadError> {
        let folder = LocalIndex::folder_of(&self.around.cache, self.config.id);
        let index = LocalIndex::open(&folder);
        if self.has_all_of(&index)? {
            return Ok(index);
        }
        // Another process may have committed since this one read the log, or a collection of garbage may have dropped them.
        self.refresh()?;
        if !index.follow(self.state())? {
            let folder = folder.display();
            self.warn("index-rebuilt", format!("the index cache {folder} knows more than the log, and is made anew"));
        }
        Ok(index)
    }

    fn has_all_of(&self, index: &LocalIndex) -> Result<bool, ReadError> {
        let live: BTreeSet<SegmentId> = self.log.state().segments.iter().map(|segment| segment.id).collect();
        Ok(index.loaded_segments()?.iter().all(|loaded| live.contains(loaded)))
    }

    fn load_segments(&self, index: &LocalIndex) -> Result<(), ReadError> {
        let (mut segments, mut rows) = (0, 0);
        for name in &self.log.state().segments {
            if index.has_segment(name)? {
                continue;
            }
            let segment = self.segment(name)?;
            index.add_segment(name, &segment)?;
            segments += 1;
            rows += segment.rows.len();
        }
        // A few are the news of other writers; all of several mean that the index was made anew.
        if segments == self.log.state().segments.len() && segments > 0 {
            self.warn("index-filled", format!("filled the index cache from {segments} segments, {rows} chunks"));
        }
        Ok(())
    }

    /// Reads a segment that the log names.
    pub(crate) fn segment(&self, name: &SegmentRef) -> Result<Segment, ReadError> {
        let path = segment_path(name.generation, name.id);
        let bytes = self.around.runtime.block_on(self.origin.get(&path, Limits::DEFAULT.segment_bytes))?;
        let decoded = if Digest::of(&bytes) == name.digest {
            Segment::decode(&bytes)
        } else {
            Err(forebay_format::DecodeError::Checksum { what: "index segment" })
        };
        decoded.map_err(|source| ReadError::Segment { path, source })
    }

    fn tell_about(&self, index: &LocalIndex) {
        let folder = index.folder().display();
        if let Some(why) = index.wiped() {
            self.warn("index-rebuilt", format!("the index cache {folder} was damaged ({why}) and is made anew"));
        }
        if index.mode() == OpenMode::Memory {
            self.warn("cache-unusable", format!("the cache folder {folder} cannot be used; working without it"));
        }
    }

    fn warn(&self, kind: &'static str, message: String) {
        self.around.notices.warn(Warning { kind, message, path: None });
    }

    /// Keeps the log's state for the next process. A copy is believed only after the origin confirms it.
    fn keep_copy(&self) {
        let path = copy_path(&self.around.cache, self.config.id);
        let mut temporary = path.clone().into_os_string();
        temporary.push(format!(".{}", std::process::id()));
        let written = path
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(&temporary, self.log.state().encode()))
            .and_then(|()| std::fs::rename(&temporary, &path));
        if let Err(error) = written {
            tracing::debug!(%error, path = %path.display(), "the copy of the log's state could not be kept");
            let _only_a_copy = std::fs::remove_file(&temporary);
        }
    }
}

/// A record that changes nothing, to be filled in.
pub(crate) fn empty_record(
    state: &LogState,
    time: forebay_format::Timestamp,
    writer: String,
    tool: String,
) -> LogRecord {
    LogRecord {
        repository: state.repository,
        sequence: 0,
        previous: None,
        nonce: forebay_format::Nonce::from_bytes([0; 16]),
        writer,
        tool,
        time,
        index_generation: state.index_generation,
        refs: Vec::new(),
        segments: Vec::new(),
        gc: None,
        forgotten: None,
    }
}

fn with_prefix<'v>(versions: &'v [RefVersion], prefix: &str) -> Vec<&'v RefVersion> {
    versions.iter().filter(|version| version.snapshot.to_hex().starts_with(prefix)).collect()
}

/// A folder origin is made with its parents, with a word about who cannot.
fn prepare_folder(origin: &Origin) -> Result<(), OpenError> {
    if let Some(folder) = origin.folder() {
        std::fs::create_dir_all(folder).map_err(|source| OpenError::Folder { folder: folder.clone(), source })?;
    }
    Ok(())
}

async fn read_config(origin: &Origin) -> Result<Option<RepositoryConfig>, OpenError> {
    match origin.get(CONFIG, Limits::DEFAULT.small_object_bytes).await {
        Ok(bytes) => RepositoryConfig::decode(&bytes)
            .map(Some)
            .map_err(|source| OpenError::Damaged { origin: origin.url().to_owned(), source }),
        Err(OriginError::NotFound { .. }) => Ok(None),
        Err(source) if source.class() == ErrorClass::NotFound => Ok(None),
        Err(source) => Err(source.into()),
    }
}

fn copy_path(cache: &Path, repository: RepositoryId) -> PathBuf {
    cache.join(repository.to_hex()).join("log.state")
}

/// A copy that cannot be read or decoded is as good as none.
fn read_copy(path: &Path, repository: RepositoryId) -> Option<LogState> {
    let bytes = std::fs::read(path).ok()?;
    let sequence = LogState::sequence_of(&bytes)?;
    LogState::decode(repository, sequence, &bytes).ok()
}

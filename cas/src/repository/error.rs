//! What can go wrong when a repository is opened, asked and read.

use std::path::PathBuf;

use forebay_format::{ChunkId, DecodeError, FrameKind, RefName, StepSpec};

use crate::class::{Classify, ErrorClass};
use crate::codec::CodecError;
use crate::index::IndexError;
use crate::log::LogError;
use crate::origin::{OriginError, ProbeError};

/// A repository cannot be opened or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is none.
    #[error("there is no repository at {origin}; `forebay push` or `forebay init` makes one")]
    NotFound {
        /// The origin.
        origin: String,
    },
    /// There is one already.
    #[error("there is a repository at {origin} already")]
    Exists {
        /// The origin.
        origin: String,
    },
    /// There is a log and no configuration: a repository that has lost its head, not a place for a new one.
    #[error(
        "{origin} has a log and no forebay.cbor: bring that file back from a copy, or make the new repository elsewhere"
    )]
    Headless {
        /// The origin.
        origin: String,
    },
    /// Its configuration is damaged or newer than this program.
    #[error("the configuration of the repository at {origin} cannot be read")]
    Damaged {
        /// The origin.
        origin: String,
        /// What is wrong.
        source: DecodeError,
    },
    /// Its folder cannot be made.
    #[error("the folder {} cannot be made", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the file system says.
        source: std::io::Error,
    },
    /// The store does not keep its word about conditional creates.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The origin failed.
    #[error("the repository cannot be opened")]
    Origin(#[from] OriginError),
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Classify for OpenError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotFound { .. } => ErrorClass::NotFound,
            Self::Exists { .. } => ErrorClass::Conflict,
            Self::Damaged { source: DecodeError::Version { .. }, .. } => ErrorClass::Usage,
            Self::Damaged { .. } | Self::Headless { .. } => ErrorClass::Corrupt,
            Self::Folder { source, .. } => match source.class() {
                ErrorClass::Failed => ErrorClass::Space,
                class => class,
            },
            Self::Probe(source) => source.class(),
            Self::Origin(source) => source.class(),
            Self::Log(source) => source.class(),
        }
    }
}

/// A version cannot be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// No such ref.
    #[error("{origin} has no ref {name}; `forebay refs` lists them")]
    NotFound {
        /// The origin.
        origin: String,
        /// The ref.
        name: RefName,
    },
    /// No such version of the ref.
    #[error("{name} has no version {version}; the newest is {name}@{newest}, `forebay log {name}` lists them")]
    NoVersion {
        /// The ref.
        name: RefName,
        /// The version asked for.
        version: String,
        /// Sequence of the newest.
        newest: u64,
    },
    /// No such checkpoint of the run.
    #[error("{name} has no checkpoint {spec}; {}", known_steps(name, *latest))]
    NoStep {
        /// The run.
        name: RefName,
        /// The step asked for.
        spec: StepSpec,
        /// Step of the latest checkpoint; `None` if no version of the ref is one.
        latest: Option<u64>,
    },
    /// A prefix stands for several versions.
    #[error("{name}@{version} stands for {matches} versions; write more digits")]
    Ambiguous {
        /// The ref.
        name: RefName,
        /// The prefix.
        version: String,
        /// Versions it stands for.
        matches: usize,
    },
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Classify for ResolveError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotFound { .. } | Self::NoVersion { .. } | Self::NoStep { .. } => ErrorClass::NotFound,
            Self::Ambiguous { .. } => ErrorClass::Usage,
            Self::Log(source) => source.class(),
        }
    }
}

fn known_steps(name: &RefName, latest: Option<u64>) -> String {
    match latest {
        Some(step) => format!("the latest is {name}@{step}, `forebay checkpoint ls {name}` lists them"),
        None => "none of its versions is a checkpoint".to_owned(),
    }
}

/// Chunks cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No pack is known that has the chunk.
    #[error("{} chunk {id} is missing: no index segment lists it", kind.as_str())]
    Missing {
        /// The chunk.
        id: ChunkId,
        /// What it was wanted as.
        kind: FrameKind,
    },
    /// The pack that should have it is gone or too short.
    #[error("chunk {id} is lost: {pack} is missing or cut short")]
    Pack {
        /// The chunk.
        id: ChunkId,
        /// Object name of the pack.
        pack: String,
        /// What the origin says.
        source: Box<OriginError>,
    },
    /// What lies where the chunk should is not its frame.
    #[error("chunk {id} is damaged: {pack} has another frame at {offset}")]
    Frame {
        /// The chunk.
        id: ChunkId,
        /// Object name of the pack.
        pack: String,
        /// Byte offset.
        offset: u64,
    },
    /// It is a chunk of another kind.
    #[error("chunk {id} is a {} chunk and was wanted as {}", found.as_str(), wanted.as_str())]
    Kind {
        /// The chunk.
        id: ChunkId,
        /// What it is.
        found: FrameKind,
        /// What it was wanted as.
        wanted: FrameKind,
    },
    /// The payload fails its checks.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The bytes are right and are not a node, list or snapshot.
    #[error("{} chunk {id} is not what it should be", kind.as_str())]
    Content {
        /// The chunk.
        id: ChunkId,
        /// Its kind.
        kind: FrameKind,
        /// What is wrong.
        source: DecodeError,
    },
    /// Folders nest too deep, or the parts of a folder are out of order.
    #[error("the folder {} is damaged: its parts contradict each other", String::from_utf8_lossy(path))]
    Tree {
        /// Path of the folder, raw bytes.
        path: Vec<u8>,
    },
    /// An index segment is damaged.
    #[error("the index segment {path} is damaged")]
    Segment {
        /// The object.
        path: String,
        /// What is wrong.
        source: DecodeError,
    },
    /// The index cache failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The origin failed.
    #[error("the repository cannot be read")]
    Origin(#[from] OriginError),
    /// The nodes that were asked did not give it.
    #[error("{detail}")]
    Peer {
        /// What it means to the caller.
        class: ErrorClass,
        /// What happened, node by name.
        detail: String,
    },
}

impl ReadError {
    /// What the chunk it is about was wanted as, where that is known.
    pub(crate) const fn kind(&self) -> Option<FrameKind> {
        match self {
            Self::Missing { kind, .. } | Self::Content { kind, .. } => Some(*kind),
            Self::Kind { wanted, .. } => Some(*wanted),
            _ => None,
        }
    }

    /// The chunk it is about.
    #[must_use]
    pub const fn chunk(&self) -> Option<ChunkId> {
        match self {
            Self::Missing { id, .. }
            | Self::Pack { id, .. }
            | Self::Frame { id, .. }
            | Self::Kind { id, .. }
            | Self::Content { id, .. } => Some(*id),
            Self::Codec(source) => Some(source.chunk()),
            _ => None,
        }
    }
}

impl Classify for ReadError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Missing { .. }
            | Self::Frame { .. }
            | Self::Kind { .. }
            | Self::Content { .. }
            | Self::Tree { .. }
            | Self::Segment { .. } => ErrorClass::Corrupt,
            Self::Pack { source, .. } => listed(source),
            Self::Origin(source) => listed(source),
            Self::Codec(source) => source.class(),
            Self::Log(source) => source.class(),
            Self::Index(source) => source.class(),
            Self::Peer { class, .. } => *class,
        }
    }

    fn damaged_index(&self) -> Option<&std::path::Path> {
        match self {
            Self::Index(source) => source.damaged_index(),
            _ => None,
        }
    }
}

/// What the log or an index lists must be there.
fn listed(source: &OriginError) -> ErrorClass {
    match source.class() {
        ErrorClass::NotFound => ErrorClass::Corrupt,
        class => class,
    }
}

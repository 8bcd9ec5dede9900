//! The log in an origin: append by creating the next number, settle every doubt by reading back.

use std::sync::Arc;

use bytes::Bytes;
use forebay_format::{DecodeError, Digest, Limits, LogRecord, LogState, Nonce, RepositoryId};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;

use crate::class::{Classify, ErrorClass};
use crate::clock;
use crate::origin::{Created, Origin, OriginError};
use crate::rng::Random;

/// A state is written after each record whose number this divides: a cold reader reads at most so many records.
const STATE_EVERY: u64 = 100;
/// Records asked for at once while catching up; one answer beyond the end is wasted, at most so many.
const READ_AHEAD: u64 = 8;
/// Lost races after which a writer gives up. With 16 writers a writer loses about 16 in a row at the worst.
const RACES_MAX: u32 = 1000;
/// Upper bound of the random wait after a lost race or an unknown outcome.
const BACKOFF_MS: u64 = 40;

/// Reading or appending to a log failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The origin failed.
    #[error("the log cannot be read or written")]
    Origin(#[from] OriginError),
    /// A record or state is damaged or does not follow the one before.
    #[error("{path} is damaged")]
    Damaged {
        /// The object.
        path: String,
        /// What is wrong.
        source: DecodeError,
    },
    /// Other writers won a thousand races in a row.
    #[error("the log of {origin} is so busy that {races} appends in a row lost; try again")]
    Busy {
        /// The origin.
        origin: String,
        /// Lost races.
        races: u32,
    },
}

impl Classify for LogError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Origin(source) => source.class(),
            Self::Damaged { .. } => ErrorClass::Corrupt,
            Self::Busy { .. } => ErrorClass::Conflict,
        }
    }
}

/// A reader and writer of one log. Holds the newest state it knows.
#[derive(Debug)]
pub struct Log {
    origin: Arc<Origin>,
    state: LogState,
    /// The newest record's bytes were not read in this process but come from a local copy of the state.
    unproven: bool,
}

/// Object name of a record.
#[must_use]
pub fn record_path(sequence: u64) -> String {
    format!("log/commit/{sequence:020}")
}

/// Object name of a state.
#[must_use]
pub fn state_path(sequence: u64) -> String {
    format!("log/commit.state/{sequence:020}")
}

impl Log {
    /// A log that starts from what a local copy of a state says; it is believed only after the record it ends with has
    /// been read again and is the same.
    #[must_use]
    pub fn from_copy(origin: Arc<Origin>, state: LogState) -> Self {
        Self { origin, state, unproven: true }
    }

    /// A log of which nothing is known yet.
    #[must_use]
    pub const fn cold(origin: Arc<Origin>, repository: RepositoryId) -> Self {
        Self { origin, state: LogState::empty(repository), unproven: true }
    }

    /// The newest state known; [`Self::refresh`] makes it newer.
    #[must_use]
    pub const fn state(&self) -> &LogState {
        &self.state
    }

    /// Reads all records there are. A local copy that the origin does not confirm is dropped and everything is read anew.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if a record or state fails its checks; the state stays as it was before that record.
    pub async fn refresh(&mut self) -> Result<(), LogError> {
        if self.unproven {
            if !self.copy_is_confirmed().await? {
                self.start_from_newest_state().await?;
            }
            self.unproven = false;
        }
        loop {
            let first = self.state.sequence + 1;
            // One record first: mostly there is none.
            let Some(bytes) = self.read(first).await? else { return Ok(()) };
            self.take_in(first, &bytes)?;
            let mut ahead: FuturesOrdered<_> =
                (first + 1..first + 1 + READ_AHEAD).map(|sequence| self.read_owned(sequence)).collect();
            while let Some(result) = ahead.next().await {
                let (sequence, bytes) = result?;
                let Some(bytes) = bytes else { return Ok(()) };
                self.take_in(sequence, &bytes)?;
            }
        }
    }

    /// Appends the record that `build` makes of the newest state; it is called again after every lost race. Number,
    /// predecessor and nonce are filled in here.
    ///
    /// Success means that the record is durable and nobody else's. Nothing else says that it is.
    ///
    /// # Errors
    /// What `build` returns, or [`LogError`] as `E`.
    pub async fn append<E: From<LogError>>(
        &mut self,
        random: &Random,
        mut build: impl FnMut(&LogState) -> Result<LogRecord, E> + Send,
    ) -> Result<LogRecord, E> {
        for _ in 0..RACES_MAX {
            self.refresh().await?;
            let mut record = build(&self.state)?;
            record.repository = self.state.repository;
            record.sequence = self.state.sequence + 1;
            record.previous = self.state.last;
            record.nonce = Nonce::from_bytes(random.bytes());
            if self.try_append(&record).await? {
                return Ok(record);
            }
            clock::sleep(std::time::Duration::from_millis(random.below(BACKOFF_MS))).await;
        }
        Err(LogError::Busy { origin: self.origin.url().to_owned(), races: RACES_MAX }.into())
    }

    /// Creates one record; says whether it is there and ours.
    async fn try_append(&mut self, record: &LogRecord) -> Result<bool, LogError> {
        let bytes = Bytes::from(record.encode());
        let path = record_path(record.sequence);
        let won = match self.origin.create(&path, bytes.clone()).await? {
            Created::New => true,
            // A name that exists in a folder was there before: every other failure is an error.
            Created::Exists if self.origin.folder().is_some() => false,
            Created::Exists | Created::Unknown => self.is_ours(record).await?,
        };
        if won {
            self.take_in(record.sequence, &bytes)?;
            if record.sequence.is_multiple_of(STATE_EVERY) {
                self.write_state().await;
            }
        }
        Ok(won)
    }

    /// Reads the record's number back and compares nonces: the only thing that settles a doubt.
    async fn is_ours(&self, record: &LogRecord) -> Result<bool, LogError> {
        let Some(bytes) = self.read(record.sequence).await? else { return Ok(false) };
        let found = decode(self.state.repository, record.sequence, &bytes)?;
        Ok(found.nonce == record.nonce)
    }

    /// A state saves later readers work; without it they read the records.
    async fn write_state(&self) {
        let path = state_path(self.state.sequence);
        if let Err(source) = self.origin.create(&path, self.state.encode().into()).await {
            tracing::warn!(path, %source, "the state of the log could not be written; readers will read its records");
        }
    }

    async fn copy_is_confirmed(&self) -> Result<bool, LogError> {
        match self.state.last {
            None => Ok(false),
            Some(last) => Ok(self.read(self.state.sequence).await?.is_some_and(|bytes| Digest::of(&bytes) == last)),
        }
    }

    async fn start_from_newest_state(&mut self) -> Result<(), LogError> {
        let repository = self.state.repository;
        let states = self.origin.list("log/commit.state").await?;
        let newest = states.iter().filter_map(|(path, _)| path.rsplit('/').next()?.parse::<u64>().ok()).max();
        self.state = match newest {
            None => LogState::empty(repository),
            Some(sequence) => {
                let path = state_path(sequence);
                let bytes = self.origin.get(&path, Limits::DEFAULT.log_state_bytes).await?;
                LogState::decode(repository, sequence, &bytes).map_err(|source| LogError::Damaged { path, source })?
            }
        };
        Ok(())
    }

    async fn read(&self, sequence: u64) -> Result<Option<Bytes>, LogError> {
        read(&self.origin, sequence).await
    }

    fn read_owned(
        &self,
        sequence: u64,
    ) -> impl Future<Output = Result<(u64, Option<Bytes>), LogError>> + Send + 'static {
        let origin = Arc::clone(&self.origin);
        async move { Ok((sequence, read(&origin, sequence).await?)) }
    }

    fn take_in(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), LogError> {
        let record = decode(self.state.repository, sequence, bytes)?;
        self.state
            .apply(&record, Digest::of(bytes))
            .map_err(|source| LogError::Damaged { path: record_path(sequence), source })
    }
}

async fn read(origin: &Origin, sequence: u64) -> Result<Option<Bytes>, LogError> {
    match origin.get(&record_path(sequence), Limits::DEFAULT.log_record_bytes).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(OriginError::NotFound { .. }) => Ok(None),
        Err(source) => Err(source.into()),
    }
}

fn decode(repository: RepositoryId, sequence: u64, bytes: &[u8]) -> Result<LogRecord, LogError> {
    LogRecord::decode(repository, sequence, bytes)
        .map_err(|source| LogError::Damaged { path: record_path(sequence), source })
}

//! A totally ordered journal in an origin: append by creating the next number, settle every doubt by reading back.
//!
//! The commit log and the budgets are two users of it. What differs stands in [`Chain`].

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_format::{DecodeError, Digest, Limits, Nonce, RepositoryId};
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
pub(crate) const RACES_MAX: u32 = 1000;
/// Upper bound of the random wait after a lost race or an unknown outcome.
const BACKOFF_MS: u64 = 40;

/// Reading or appending to a journal failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
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
    /// A record is not there although later ones are.
    #[error("{path} is missing, and there are later records: bring it back from a copy")]
    Missing {
        /// The object.
        path: String,
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

impl Classify for JournalError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Origin(source) => source.class(),
            Self::Damaged { .. } | Self::Missing { .. } => ErrorClass::Corrupt,
            Self::Busy { .. } => ErrorClass::Conflict,
        }
    }
}

/// The sum of the records of a journal up to one of them, and what its records are.
pub trait Chain: Clone + Debug + Send + Sync + Sized {
    /// One record.
    type Record: Send + Sync;
    /// Folder of the records; states lie in the same with `.state` behind.
    const FOLDER: &'static str;

    /// The state before the first record.
    fn empty(repository: RepositoryId) -> Self;
    /// Whose journal it is.
    fn repository(&self) -> RepositoryId;
    /// Number of the last record it contains; 0 for none.
    fn sequence(&self) -> u64;
    /// BLAKE3 of that record as stored.
    fn last(&self) -> Option<Digest>;

    /// Takes in the next record, whose bytes have the digest `digest`.
    ///
    /// # Errors
    /// [`DecodeError`] if the record does not follow this state; nothing is changed then.
    fn apply(&mut self, record: &Self::Record, digest: Digest) -> Result<(), DecodeError>;
    /// The object's bytes of the state.
    fn encode(&self) -> Vec<u8>;
    /// Reads the state after record `sequence`.
    ///
    /// # Errors
    /// [`DecodeError`] for damage, or another's state.
    fn decode(repository: RepositoryId, sequence: u64, bytes: &[u8]) -> Result<Self, DecodeError>;

    /// Makes a record the next one after this state.
    fn follow(&self, record: &mut Self::Record, nonce: Nonce);
    /// The object's bytes of a record.
    fn encode_record(record: &Self::Record) -> Vec<u8>;
    /// Reads record number `sequence`.
    ///
    /// # Errors
    /// [`DecodeError`] for damage, or another's record.
    fn decode_record(repository: RepositoryId, sequence: u64, bytes: &[u8]) -> Result<Self::Record, DecodeError>;
}

/// A reader and writer of one journal. Holds the newest state it knows.
#[derive(Debug)]
pub struct Journal<S> {
    origin: Arc<Origin>,
    state: S,
    /// The newest record's bytes were not read in this process but come from a local copy of the state.
    unproven: bool,
}

/// Object name of a record.
#[must_use]
pub fn record_path<S: Chain>(sequence: u64) -> String {
    format!("{}/{sequence:020}", S::FOLDER)
}

/// Object name of a state.
#[must_use]
pub fn state_path<S: Chain>(sequence: u64) -> String {
    format!("{}.state/{sequence:020}", S::FOLDER)
}

impl<S: Chain> Journal<S> {
    /// A journal that starts from what a local copy of a state says; it is believed only after the record it ends with
    /// has been read again and is the same.
    #[must_use]
    pub const fn from_copy(origin: Arc<Origin>, state: S) -> Self {
        Self { origin, state, unproven: true }
    }

    /// A journal of which nothing is known yet.
    #[must_use]
    pub fn cold(origin: Arc<Origin>, repository: RepositoryId) -> Self {
        Self { origin, state: S::empty(repository), unproven: true }
    }

    /// The newest state known; [`Self::refresh`] makes it newer.
    #[must_use]
    pub const fn state(&self) -> &S {
        &self.state
    }

    /// Reads all records there are. A local copy that the origin does not confirm is dropped and everything is read anew.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if a record or state fails its checks; the state stays as it was before that record.
    pub async fn refresh(&mut self) -> Result<(), JournalError> {
        if self.unproven {
            if !self.copy_is_confirmed().await? {
                self.start_from_newest_state().await?;
            }
            self.unproven = false;
        }
        loop {
            let first = self.state.sequence() + 1;
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

    /// Proves that the newest record known is the newest there is: a record that was lost in the middle looks like an end
    /// to who reads one number after the other.
    ///
    /// # Errors
    /// [`JournalError::Missing`] if there are later records that do not follow.
    pub async fn prove_end(&mut self) -> Result<(), JournalError> {
        let last = record_path::<S>(self.state.sequence());
        let later = self.origin.list_after(S::FOLDER, &last).await?;
        let Some(newest) = later.iter().filter_map(|path| path.rsplit('/').next()?.parse::<u64>().ok()).max() else {
            return Ok(());
        };
        // They may have come since.
        self.refresh().await?;
        if self.state.sequence() < newest {
            return Err(JournalError::Missing { path: record_path::<S>(self.state.sequence() + 1) });
        }
        Ok(())
    }

    /// Appends the record that `build` makes of the newest state; it is called again after every lost race. Number,
    /// predecessor and nonce are filled in here.
    ///
    /// Success means that the record is durable and nobody else's. Nothing else says that it is.
    ///
    /// # Errors
    /// What `build` returns, or [`JournalError`] as `E`.
    pub async fn append<E: From<JournalError>>(
        &mut self,
        random: &Random,
        mut build: impl FnMut(&S) -> Result<S::Record, E> + Send,
    ) -> Result<S::Record, E> {
        for _ in 0..RACES_MAX {
            self.refresh().await?;
            let mut record = build(&self.state)?;
            self.state.follow(&mut record, Nonce::from_bytes(random.bytes()));
            if self.try_append(&record).await? {
                return Ok(record);
            }
            back_off(random).await;
        }
        Err(JournalError::Busy { origin: self.origin.url().to_owned(), races: RACES_MAX }.into())
    }

    /// Creates one record; says whether it is there and ours.
    async fn try_append(&mut self, record: &S::Record) -> Result<bool, JournalError> {
        let bytes = Bytes::from(S::encode_record(record));
        let sequence = self.state.sequence() + 1;
        let won = create_ours(&self.origin, &record_path::<S>(sequence), &bytes).await?;
        if won {
            self.take_in(sequence, &bytes)?;
            if sequence.is_multiple_of(STATE_EVERY) {
                self.write_state().await;
            }
        }
        Ok(won)
    }

    /// A state saves later readers work; without it they read the records.
    async fn write_state(&self) {
        let path = state_path::<S>(self.state.sequence());
        if let Err(source) = self.origin.create(&path, self.state.encode().into()).await {
            tracing::warn!(path, %source, "the state of the log could not be written; readers will read its records");
        }
    }

    async fn copy_is_confirmed(&self) -> Result<bool, JournalError> {
        match self.state.last() {
            None => Ok(false),
            Some(last) => Ok(self.read(self.state.sequence()).await?.is_some_and(|bytes| Digest::of(&bytes) == last)),
        }
    }

    async fn start_from_newest_state(&mut self) -> Result<(), JournalError> {
        let repository = self.state.repository();
        let states = self.origin.list(&format!("{}.state", S::FOLDER)).await?;
        let newest = states.iter().filter_map(|(path, _)| path.rsplit('/').next()?.parse::<u64>().ok()).max();
        self.state = match newest {
            None => S::empty(repository),
            Some(sequence) => {
                let path = state_path::<S>(sequence);
                let bytes = self.origin.get(&path, Limits::DEFAULT.log_state_bytes).await?;
                S::decode(repository, sequence, &bytes).map_err(|source| JournalError::Damaged { path, source })?
            }
        };
        Ok(())
    }

    async fn read(&self, sequence: u64) -> Result<Option<Bytes>, JournalError> {
        Ok(read_if_there(&self.origin, &record_path::<S>(sequence)).await?)
    }

    fn read_owned(
        &self,
        sequence: u64,
    ) -> impl Future<Output = Result<(u64, Option<Bytes>), JournalError>> + Send + 'static + use<S> {
        let origin = Arc::clone(&self.origin);
        async move { Ok((sequence, read_if_there(&origin, &record_path::<S>(sequence)).await?)) }
    }

    fn take_in(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), JournalError> {
        let record = S::decode_record(self.state.repository(), sequence, bytes);
        record
            .and_then(|record| self.state.apply(&record, Digest::of(bytes)))
            .map_err(|source| JournalError::Damaged { path: record_path::<S>(sequence), source })
    }
}

/// Creates an object that holds a nonce; says whether it is there and ours. A name that exists in a folder was there
/// before: every other failure is an error. On a remote store reading it back is the only thing that settles a doubt;
/// with the nonce in it, equal bytes are our own.
pub(crate) async fn create_ours(origin: &Origin, path: &str, bytes: &Bytes) -> Result<bool, OriginError> {
    match origin.create(path, bytes.clone()).await? {
        Created::New => Ok(true),
        Created::Exists if origin.folder().is_some() => Ok(false),
        Created::Exists | Created::Unknown => Ok(read_if_there(origin, path).await?.as_ref() == Some(bytes)),
    }
}

/// Reads a record; `None` if the store says that there is none.
pub(crate) async fn read_if_there(origin: &Origin, path: &str) -> Result<Option<Bytes>, OriginError> {
    match origin.get(path, Limits::DEFAULT.log_record_bytes).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(OriginError::NotFound { .. }) => Ok(None),
        Err(source) => Err(source),
    }
}

/// Waits a little after a lost race, so that the same writers do not meet again.
pub(crate) async fn back_off(random: &Random) {
    clock::sleep(Duration::from_millis(random.below(BACKOFF_MS))).await;
}

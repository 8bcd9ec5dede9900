//! The commit log: the totally ordered record of ref changes.

use forebay_format::{DecodeError, Digest, LogRecord, LogState, Nonce, RepositoryId};

use crate::journal::{Chain, Journal, JournalError};

/// A reader and writer of one commit log.
pub type Log = Journal<LogState>;

/// Reading or appending to a log failed.
pub type LogError = JournalError;

impl Chain for LogState {
    type Record = LogRecord;
    const FOLDER: &'static str = "log/commit";

    fn empty(repository: RepositoryId) -> Self {
        Self::empty(repository)
    }

    fn repository(&self) -> RepositoryId {
        self.repository
    }

    fn sequence(&self) -> u64 {
        self.sequence
    }

    fn last(&self) -> Option<Digest> {
        self.last
    }

    fn apply(&mut self, record: &LogRecord, digest: Digest) -> Result<(), DecodeError> {
        self.apply(record, digest)
    }

    fn encode(&self) -> Vec<u8> {
        self.encode()
    }

    fn decode(repository: RepositoryId, sequence: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode(repository, sequence, bytes)
    }

    fn follow(&self, record: &mut LogRecord, nonce: Nonce) {
        record.repository = self.repository;
        record.sequence = self.sequence + 1;
        record.previous = self.last;
        record.nonce = nonce;
    }

    fn encode_record(record: &LogRecord) -> Vec<u8> {
        record.encode()
    }

    fn decode_record(repository: RepositoryId, sequence: u64, bytes: &[u8]) -> Result<LogRecord, DecodeError> {
        LogRecord::decode(repository, sequence, bytes)
    }
}

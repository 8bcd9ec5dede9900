//! The journal of the budgets as a chain of records.

use forebay_format::{BudgetChange, BudgetRecord, BudgetState, DecodeError, Digest, Nonce, RepositoryId, Timestamp};
use forebay_policy::{Applied, BudgetBook, Change, MoneyError};

use super::convert;
use crate::journal::Chain;

/// All records up to one, summed up in a book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetLedger {
    repository: RepositoryId,
    sequence: u64,
    last: Option<Digest>,
    book: BudgetBook,
}

impl BudgetLedger {
    /// The book.
    #[must_use]
    pub const fn book(&self) -> &BudgetBook {
        &self.book
    }

    /// A record of these changes; the journal fills in what makes it the next one.
    ///
    /// # Errors
    /// [`MoneyError::Overflow`] if an amount does not fit into a record.
    pub(super) fn record(
        &self,
        writer: &str,
        tool: &str,
        time: Timestamp,
        changes: &[Change],
    ) -> Result<BudgetRecord, MoneyError> {
        Ok(BudgetRecord {
            repository: self.repository,
            sequence: 0,
            previous: None,
            nonce: Nonce::from_bytes([0; 16]),
            writer: writer.to_owned(),
            tool: tool.to_owned(),
            time,
            changes: changes.iter().map(convert::change_out).collect::<Result<_, _>>()?,
        })
    }

    fn apply_one(&mut self, sequence: u64, change: &BudgetChange) -> Result<(), DecodeError> {
        let change = convert::change_in(change)?;
        match self.book.apply(&change) {
            Ok(Applied::Done) => {}
            Ok(Applied::NotOpen | Applied::IdTaken) => {
                tracing::warn!(sequence, ?change, "a change of the budgets that changes nothing");
            }
            Err(_sum) => return Err(DecodeError::Field { what: "budget record", field: "sum", value: sequence }),
        }
        Ok(())
    }
}

impl Chain for BudgetLedger {
    type Record = BudgetRecord;
    const FOLDER: &'static str = BudgetRecord::FOLDER;

    fn empty(repository: RepositoryId) -> Self {
        Self { repository, sequence: 0, last: None, book: BudgetBook::default() }
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

    fn apply(&mut self, record: &BudgetRecord, digest: Digest) -> Result<(), DecodeError> {
        let follows = self.sequence.checked_add(1) == Some(record.sequence) && record.previous == self.last;
        if record.repository != self.repository || !follows {
            return Err(DecodeError::Order { what: "budget record", index: record.sequence });
        }
        match &record.changes[..] {
            [change] => self.apply_one(record.sequence, change)?,
            changes => {
                // All of them or none.
                let mut after = self.clone();
                changes.iter().try_for_each(|change| after.apply_one(record.sequence, change))?;
                *self = after;
            }
        }
        self.sequence = record.sequence;
        self.last = Some(digest);
        Ok(())
    }

    fn encode(&self) -> Vec<u8> {
        let (accounts, open) = convert::book_out(&self.book);
        let Self { repository, sequence, last, .. } = *self;
        BudgetState { repository, sequence, last, accounts, open }.encode()
    }

    fn decode(repository: RepositoryId, sequence: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        let state = BudgetState::decode(repository, sequence, bytes)?;
        let book = convert::book_in(&state.accounts, &state.open)?;
        Ok(Self { repository, sequence, last: state.last, book })
    }

    fn follow(&self, record: &mut BudgetRecord, nonce: Nonce) {
        record.repository = self.repository;
        record.sequence = self.sequence + 1;
        record.previous = self.last;
        record.nonce = nonce;
    }

    fn encode_record(record: &BudgetRecord) -> Vec<u8> {
        record.encode()
    }

    fn decode_record(repository: RepositoryId, sequence: u64, bytes: &[u8]) -> Result<BudgetRecord, DecodeError> {
        BudgetRecord::decode(repository, sequence, bytes)
    }
}

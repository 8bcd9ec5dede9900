//! `ledger/<node>/<month>/<number>`: what one node sent in one month, a record for each time it wrote down its counters.

use minicbor::{Decode, Encode};

use crate::log::{check_sequence, check_time};
use crate::{DecodeError, Limits, NodeKey, Nonce, RepositoryId, Timestamp, sealed};

const MAGIC: [u8; 8] = *b"FBYLEDG0";
const WHAT: &str = "ledger record";
/// Bytes of each text in a row.
pub const LEDGER_TEXT_MAX: usize = 255;

/// Six separate counters, `[payload, sent, wire, retried, requests, avoided]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(array)]
pub struct LedgerUsage {
    /// Bytes that were asked for and arrived, each once.
    #[n(0)]
    pub payload_bytes: u64,
    /// Content bytes that left, those sent again included.
    #[n(1)]
    pub sent_bytes: u64,
    /// The same with everything the wire adds.
    #[n(2)]
    pub wire_bytes: u64,
    /// The part of `sent_bytes` that was in vain.
    #[n(3)]
    pub retried_bytes: u64,
    /// Requests, each try counted.
    #[n(4)]
    pub requests: u64,
    /// Bytes that did not have to leave.
    #[n(5)]
    pub avoided_bytes: u64,
}

/// What went on one day, for whom and over which way.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LedgerRow {
    /// Day of the month, from 1, UTC.
    #[n(0)]
    pub day: u8,
    /// Who pays.
    #[n(1)]
    pub tenant: String,
    /// For which job; empty for none.
    #[n(2)]
    pub job: String,
    /// What was read; empty if it is not known.
    #[n(3)]
    pub dataset: String,
    /// Cache class.
    #[n(4)]
    pub class: String,
    /// Link tier.
    #[n(5)]
    pub tier: String,
    /// Place the bytes left.
    #[n(6)]
    pub from: String,
    /// Place they went to.
    #[n(7)]
    pub to: String,
    /// How much.
    #[n(8)]
    pub usage: LedgerUsage,
}

impl LedgerRow {
    fn texts(&self) -> [&str; 7] {
        [&self.tenant, &self.job, &self.dataset, &self.class, &self.tier, &self.from, &self.to]
    }
}

/// One record: what a node has counted since the record before.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LedgerRecord {
    /// The repository, so that a record cannot pass for another's.
    #[n(0)]
    pub repository: RepositoryId,
    /// The node that counted.
    #[n(1)]
    pub node: NodeKey,
    /// The month its rows belong to, as the number `YYYYMM`, UTC.
    #[n(2)]
    pub month: u32,
    /// Number of the record, from 1 without gaps for each node and month; equal to its object's name.
    #[n(3)]
    pub sequence: u64,
    /// Tells the writer whether a record under this number is its own.
    #[n(4)]
    pub nonce: Nonce,
    /// When it was written; for people.
    #[n(5)]
    pub time: Timestamp,
    /// Program and version that wrote it.
    #[n(6)]
    pub tool: String,
    /// The rows, sorted by day and then field by field, none twice, at least one.
    #[n(7)]
    pub rows: Vec<LedgerRow>,
}

impl LedgerRecord {
    /// The object's name.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{:020}", Self::folder(self.node, self.month), self.sequence)
    }

    /// The folder of a node's records of a month `YYYYMM`.
    #[must_use]
    pub fn folder(node: NodeKey, month: u32) -> String {
        format!("ledger/{node}/{:04}-{:02}", month / 100, month % 100)
    }

    /// The object's bytes. Rows are put in order.
    #[must_use]
    pub fn encode(&mut self) -> Vec<u8> {
        self.rows.sort_by(|one, two| (one.day, one.texts()).cmp(&(two.day, two.texts())));
        sealed::seal(&MAGIC, self)
    }

    /// Reads record number `sequence` of a node, a month and a repository.
    ///
    /// # Errors
    /// [`DecodeError`] for damage, or if it is another repository's, node's, month's or number's record.
    pub fn decode(
        repository: RepositoryId,
        node: NodeKey,
        month: u32,
        sequence: u64,
        bytes: &[u8],
    ) -> Result<Self, DecodeError> {
        let what = WHAT;
        let record: Self = sealed::open(what, &MAGIC, bytes, Limits::DEFAULT.log_record_bytes)?;
        if (record.repository, record.node, record.month, record.sequence) != (repository, node, month, sequence) {
            return Err(DecodeError::Contradiction {
                what,
                field: "repository, node, month or sequence",
                claimed: record.sequence,
                actual: sequence,
            });
        }
        check_sequence(what, sequence)?;
        check_month(what, month)?;
        check_time(what, record.time)?;
        if record.rows.is_empty() {
            return Err(DecodeError::Field { what, field: "number of rows", value: 0 });
        }
        let mut last: Option<&LedgerRow> = None;
        for (index, row) in (0..).zip(&record.rows) {
            if !(1..=31).contains(&row.day) {
                return Err(DecodeError::Field { what, field: "day", value: row.day.into() });
            }
            for text in row.texts() {
                check_text(what, text)?;
            }
            if last.is_some_and(|last| (last.day, last.texts()) >= (row.day, row.texts())) {
                return Err(DecodeError::Order { what, index });
            }
            last = Some(row);
        }
        Ok(record)
    }
}

/// A month `YYYYMM` of the years 0 to 9999.
pub(crate) fn check_month(what: &'static str, month: u32) -> Result<(), DecodeError> {
    if month / 100 <= 9999 && (1..=12).contains(&(month % 100)) {
        Ok(())
    } else {
        Err(DecodeError::Field { what, field: "month", value: month.into() })
    }
}

pub(crate) fn check_text(what: &'static str, text: &str) -> Result<(), DecodeError> {
    if text.len() <= LEDGER_TEXT_MAX {
        Ok(())
    } else {
        Err(DecodeError::Field { what, field: "length of a text", value: text.len() as u64 })
    }
}

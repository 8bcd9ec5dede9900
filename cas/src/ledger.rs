//! The ledger: what every node sent, for whom and over which way, month by month.
//!
//! A node counts in memory and writes down from time to time; each time is one record, and a month is the sum of its
//! records. Records are only ever added, so that a report of any month can be made again at any time.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use forebay_format::{
    DecodeError, LEDGER_TEXT_MAX, LedgerRecord, LedgerRow, LedgerUsage, NodeKey, Nonce, RepositoryId,
};
use forebay_policy::{Day, Month, Usage, UsageKey, UsageOverflow, UsageTable};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::runtime::Handle;

use crate::Surroundings;
use crate::class::{Classify, ErrorClass};
use crate::journal::{RACES_MAX, back_off, create_ours, read_if_there};
use crate::origin::{Origin, OriginError};
use crate::rng::Random;
use crate::sync::Mutex;

/// Rows of one record: some 2 MB.
const RECORD_ROWS_MAX: usize = 10_000;
/// Keys counted between two flushes. What comes after these is counted for its tenant and way alone, under [`MANY`], so
/// that names which clients make up cannot fill the memory.
const ROWS_MAX: usize = 100_000;
/// Job and dataset of what has too many of them.
pub const MANY: &str = "(many)";
/// Records read at once.
const READS: usize = 64;

/// The ledger cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The origin failed.
    #[error("the ledger cannot be read or written")]
    Origin(#[from] OriginError),
    /// A record is damaged.
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
    /// Something lies among the records that is none.
    #[error("{path} is no record of the ledger")]
    Stranger {
        /// The object.
        path: String,
    },
    /// The counters do not fit.
    #[error(transparent)]
    Overflow(#[from] UsageOverflow),
    /// Others that write as this node won a thousand races in a row.
    #[error("the ledger of node {node} is written by others all the time; give every node an identity of its own")]
    Busy {
        /// The node.
        node: NodeKey,
    },
}

impl Classify for LedgerError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Origin(source) => source.class(),
            Self::Damaged { .. } | Self::Missing { .. } | Self::Stranger { .. } | Self::Overflow(_) => {
                ErrorClass::Corrupt
            }
            Self::Busy { .. } => ErrorClass::Conflict,
        }
    }
}

/// Counts what a node sends and writes it down. Counting takes no time to speak of and may happen on any thread;
/// [`Self::flush`] blocks, see [`Surroundings::runtime`].
///
/// What was counted and not flushed is lost with the process. What a flush could not write is kept for the next one, and
/// nothing is written twice: a record whose fate is unknown keeps its number until that is settled.
#[derive(Debug)]
pub struct LedgerWriter {
    origin: Arc<Origin>,
    repository: RepositoryId,
    node: NodeKey,
    around: Surroundings,
    random: Random,
    counted: Mutex<BTreeMap<Day, UsageTable>>,
    flushing: Mutex<Flushing>,
}

#[derive(Debug, Default)]
struct Flushing {
    /// The next free number, as far as this process knows.
    next: BTreeMap<Month, u64>,
    /// Records on their way, oldest first.
    records: VecDeque<LedgerRecord>,
}

impl LedgerWriter {
    /// A writer for a node. Where its records of this month end is found by listing them.
    ///
    /// # Errors
    /// [`LedgerError::Origin`] if they cannot be listed.
    pub fn open(
        origin: Arc<Origin>,
        repository: RepositoryId,
        node: NodeKey,
        around: Surroundings,
    ) -> Result<Self, LedgerError> {
        let month = Month::of_unix(around.clock.now().seconds);
        let records = around.runtime.block_on(records_of(&origin, node, month))?;
        let flushing = Flushing { next: BTreeMap::from([(month, records + 1)]), records: VecDeque::new() };
        let random = around.seed.stream("nonces");
        let (counted, flushing) = (Mutex::default(), Mutex::new(flushing));
        Ok(Self { origin, repository, node, around, random, counted, flushing })
    }

    /// Counts for the day it is now. Texts are cut to 255 bytes.
    ///
    /// # Errors
    /// [`UsageOverflow`] if a counter does not fit; nothing is counted then.
    pub fn count(&self, key: &UsageKey, usage: Usage) -> Result<(), UsageOverflow> {
        let day = Day::of_unix(self.around.clock.now().seconds);
        let mut key = clipped(key);
        let mut counted = self.counted.lock();
        let rows: usize = counted.values().map(UsageTable::len).sum();
        let table = counted.entry(day).or_default();
        if rows >= ROWS_MAX && !table.contains(&key) {
            key.job = MANY.to_owned();
            key.dataset = MANY.to_owned();
        }
        table.add(key, usage)
    }

    /// What has been counted since the last flush, in all.
    ///
    /// # Errors
    /// [`UsageOverflow`] if the sum does not fit.
    pub fn unflushed(&self) -> Result<UsageTable, UsageOverflow> {
        let mut sum = UsageTable::default();
        self.counted.lock().values().try_for_each(|table| sum.merge(table))?;
        Ok(sum)
    }

    /// Writes down what has been counted; returns the number of records. Nothing counted, nothing written.
    ///
    /// # Errors
    /// [`LedgerError`]; what could not be written is written by a later flush.
    pub fn flush(&self) -> Result<u64, LedgerError> {
        let mut flushing = self.flushing.lock();
        self.around.runtime.block_on(async {
            // What an earlier flush could not write comes first: counting goes on in one table meanwhile.
            let late = self.write(&mut flushing).await?;
            flushing.records = self.take_records();
            Ok(late + self.write(&mut flushing).await?)
        })
    }

    /// Turns what has been counted into records without numbers.
    fn take_records(&self) -> VecDeque<LedgerRecord> {
        let counted = mem::take(&mut *self.counted.lock());
        let mut rows = BTreeMap::<Month, Vec<LedgerRow>>::new();
        for (day, table) in &counted {
            let rows = rows.entry(day.month()).or_default();
            rows.extend(table.iter().map(|(key, usage)| row_out(*day, key, usage)));
        }
        let time = self.around.clock.now();
        let record = |month: Month, rows: &[LedgerRow]| LedgerRecord {
            repository: self.repository,
            node: self.node,
            month: month.number(),
            sequence: 0,
            nonce: Nonce::from_bytes(self.random.bytes()),
            time,
            tool: self.around.tool.clone(),
            rows: rows.to_vec(),
        };
        let records = rows.iter().flat_map(|(month, rows)| {
            rows.chunks(RECORD_ROWS_MAX).map(|rows| record(*month, rows)).collect::<Vec<_>>()
        });
        records.collect()
    }

    async fn write(&self, flushing: &mut Flushing) -> Result<u64, LedgerError> {
        let mut written = 0;
        while let Some(record) = flushing.records.front_mut() {
            let month = Month::from_number(record.month).expect("the month of a day");
            let next = match flushing.next.get(&month) {
                Some(next) => *next,
                None => records_of(&self.origin, self.node, month).await? + 1,
            };
            let next = self.write_one(record, next).await?;
            flushing.next.insert(month, next);
            flushing.records.pop_front();
            written += 1;
        }
        Ok(written)
    }

    /// Creates one record under the first free number from `next`; returns the number after it. A record that has a number
    /// already was tried before, and may be there.
    async fn write_one(&self, record: &mut LedgerRecord, next: u64) -> Result<u64, LedgerError> {
        if record.sequence == 0 {
            record.sequence = next;
        }
        for _ in 0..RACES_MAX {
            let bytes = Bytes::from(record.encode());
            if create_ours(&self.origin, &record.path(), &bytes).await? {
                return Ok(record.sequence + 1);
            }
            // Somebody else's record has this number, or nobody's after an answer that got lost: then it is still free.
            if read_if_there(&self.origin, &record.path()).await?.is_some() {
                record.sequence += 1;
            }
            back_off(&self.random).await;
        }
        Err(LedgerError::Busy { node: self.node })
    }
}

/// What all nodes sent in one month.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledgers {
    /// By node and day.
    pub nodes: BTreeMap<NodeKey, BTreeMap<Day, UsageTable>>,
}

impl Ledgers {
    /// The whole month of each node.
    ///
    /// # Errors
    /// [`UsageOverflow`] if a sum does not fit.
    pub fn by_node(&self) -> Result<BTreeMap<NodeKey, UsageTable>, UsageOverflow> {
        let sum = |days: &BTreeMap<Day, UsageTable>| {
            let mut sum = UsageTable::default();
            days.values().try_for_each(|table| sum.merge(table))?;
            Ok(sum)
        };
        self.nodes.iter().map(|(node, days)| Ok((*node, sum(days)?))).collect()
    }
}

/// Reads what all nodes wrote down for a month. Blocking; see [`Surroundings::runtime`].
///
/// # Errors
/// [`LedgerError`] names the object if a record is damaged or missing: a sum that leaves something out is none.
pub fn read_ledgers(
    origin: &Arc<Origin>,
    repository: RepositoryId,
    month: Month,
    runtime: &Handle,
) -> Result<Ledgers, LedgerError> {
    runtime.block_on(async {
        let mut ledgers = Ledgers::default();
        for name in origin.folders("ledger").await? {
            // The budgets lie beside the nodes.
            let Ok(node) = name.parse::<NodeKey>() else { continue };
            let days = read_node(origin, repository, node, month).await?;
            if !days.is_empty() {
                ledgers.nodes.insert(node, days);
            }
        }
        Ok(ledgers)
    })
}

async fn read_node(
    origin: &Arc<Origin>,
    repository: RepositoryId,
    node: NodeKey,
    month: Month,
) -> Result<BTreeMap<Day, UsageTable>, LedgerError> {
    let mut days = BTreeMap::<Day, UsageTable>::new();
    let number = month.number();
    let records = records_of(origin, node, month).await?;
    let reads = stream::iter(1..=records).map(|sequence| async move {
        let path = path_of(node, month, sequence);
        let Some(bytes) = read_if_there(origin, &path).await? else { return Err(LedgerError::Missing { path }) };
        LedgerRecord::decode(repository, node, number, sequence, &bytes)
            .map_err(|source| LedgerError::Damaged { path, source })
    });
    let mut reads = std::pin::pin!(reads.buffer_unordered(READS));
    while let Some(record) = reads.try_next().await? {
        for row in &record.rows {
            let Some(day) = month.day(row.day) else {
                let source = DecodeError::Field { what: "ledger record", field: "day", value: row.day.into() };
                return Err(LedgerError::Damaged { path: record.path(), source });
            };
            let (key, usage) = row_in(row);
            days.entry(day).or_default().add(key, usage)?;
        }
    }
    Ok(days)
}

/// How many records a node has for a month: they are numbered from 1 without gaps.
async fn records_of(origin: &Origin, node: NodeKey, month: Month) -> Result<u64, LedgerError> {
    let listed = origin.list(&LedgerRecord::folder(node, month.number())).await?;
    let mut numbers = Vec::with_capacity(listed.len());
    for (path, _) in listed {
        let number = path.rsplit('/').next().and_then(|name| name.parse::<u64>().ok());
        match number.filter(|number| path_of(node, month, *number) == path && *number > 0) {
            Some(number) => numbers.push(number),
            None => return Err(LedgerError::Stranger { path }),
        }
    }
    numbers.sort_unstable();
    match (1..).zip(&numbers).find(|(expected, number)| expected != *number) {
        Some((expected, _)) => Err(LedgerError::Missing { path: path_of(node, month, expected) }),
        None => Ok(numbers.len() as u64),
    }
}

fn path_of(node: NodeKey, month: Month, sequence: u64) -> String {
    format!("{}/{sequence:020}", LedgerRecord::folder(node, month.number()))
}

fn row_out(day: Day, key: &UsageKey, usage: &Usage) -> LedgerRow {
    let UsageKey { tenant, job, dataset, class, tier, from, to } = key.clone();
    let Usage { payload_bytes, sent_bytes, wire_bytes, retried_bytes, requests, avoided_bytes } = *usage;
    let usage = LedgerUsage { payload_bytes, sent_bytes, wire_bytes, retried_bytes, requests, avoided_bytes };
    LedgerRow { day: day.number(), tenant, job, dataset, class, tier, from, to, usage }
}

fn row_in(row: &LedgerRow) -> (UsageKey, Usage) {
    let LedgerRow { tenant, job, dataset, class, tier, from, to, .. } = row.clone();
    let LedgerUsage { payload_bytes, sent_bytes, wire_bytes, retried_bytes, requests, avoided_bytes } = row.usage;
    let usage = Usage { payload_bytes, sent_bytes, wire_bytes, retried_bytes, requests, avoided_bytes };
    (UsageKey { tenant, job, dataset, class, tier, from, to }, usage)
}

fn clipped(key: &UsageKey) -> UsageKey {
    let clip = |text: &str| text[..text.floor_char_boundary(LEDGER_TEXT_MAX)].to_owned();
    UsageKey {
        tenant: clip(&key.tenant),
        job: clip(&key.job),
        dataset: clip(&key.dataset),
        class: clip(&key.class),
        tier: clip(&key.tier),
        from: clip(&key.from),
        to: clip(&key.to),
    }
}

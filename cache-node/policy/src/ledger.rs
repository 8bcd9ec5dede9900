//! What was sent, for whom and over which way.

use std::collections::BTreeMap;
use std::collections::btree_map::{self, Entry};
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// For whom and over which way bytes went. Places are texts such as `origin:s3`, `gateway` and `site:fra-1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UsageKey {
    /// Who pays.
    pub tenant: String,
    /// For which job; empty for none.
    pub job: String,
    /// The name of what was read; empty if it is not known.
    pub dataset: String,
    /// Cache class.
    pub class: String,
    /// Link tier.
    pub tier: String,
    /// Place the bytes left.
    pub from: String,
    /// Place they went to.
    pub to: String,
}

impl UsageKey {
    /// One of its fields.
    #[must_use]
    pub fn get(&self, field: KeyField) -> &str {
        match field {
            KeyField::Tenant => &self.tenant,
            KeyField::Job => &self.job,
            KeyField::Dataset => &self.dataset,
            KeyField::Class => &self.class,
            KeyField::Tier => &self.tier,
            KeyField::From => &self.from,
            KeyField::To => &self.to,
        }
    }
}

/// A field of [`UsageKey`] by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyField {
    /// Who pays.
    Tenant,
    /// For which job.
    Job,
    /// What was read.
    Dataset,
    /// Cache class.
    Class,
    /// Link tier.
    Tier,
    /// Place the bytes left.
    From,
    /// Place they went to.
    To,
}

impl KeyField {
    /// All fields, in the order of [`UsageKey`].
    pub const ALL: [Self; 7] = [Self::Tenant, Self::Job, Self::Dataset, Self::Class, Self::Tier, Self::From, Self::To];

    /// The name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Job => "job",
            Self::Dataset => "dataset",
            Self::Class => "class",
            Self::Tier => "tier",
            Self::From => "from",
            Self::To => "to",
        }
    }
}

impl fmt::Display for KeyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KeyField {
    type Err = ParseFieldError;

    fn from_str(text: &str) -> Result<Self, ParseFieldError> {
        let named = Self::ALL.into_iter().find(|field| field.name() == text);
        named.ok_or_else(|| ParseFieldError { text: text.to_owned() })
    }
}

/// A text that names no field of usage.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is nothing to group by: write tenant, job, dataset, class, tier, from or to")]
pub struct ParseFieldError {
    /// The text as given.
    pub text: String,
}

/// Six separate counters; none is derived from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes that were asked for and arrived, each once.
    pub payload_bytes: u64,
    /// Content bytes that left the place `from`, those sent again included: what is billed.
    pub sent_bytes: u64,
    /// The same with everything the wire adds, where it was measured.
    pub wire_bytes: u64,
    /// The part of `sent_bytes` that was in vain: cut off, lost, or sent twice.
    pub retried_bytes: u64,
    /// Requests, each try counted.
    pub requests: u64,
    /// Bytes that did not have to leave `from`: cache hits, chunks that were there, deltas.
    pub avoided_bytes: u64,
}

impl Usage {
    /// The sum of both.
    ///
    /// # Errors
    /// [`UsageOverflow`] if a counter does not fit into 64 bits.
    pub fn checked_add(self, other: Self) -> Result<Self, UsageOverflow> {
        let add = |left: u64, right: u64| left.checked_add(right).ok_or(UsageOverflow);
        Ok(Self {
            payload_bytes: add(self.payload_bytes, other.payload_bytes)?,
            sent_bytes: add(self.sent_bytes, other.sent_bytes)?,
            wire_bytes: add(self.wire_bytes, other.wire_bytes)?,
            retried_bytes: add(self.retried_bytes, other.retried_bytes)?,
            requests: add(self.requests, other.requests)?,
            avoided_bytes: add(self.avoided_bytes, other.avoided_bytes)?,
        })
    }
}

/// A counter would not fit into 64 bits: more than 18 EB, which no honest ledger comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the counters of the ledger add up to more than 64 bits hold")]
pub struct UsageOverflow;

/// Usage by key, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageTable {
    rows: BTreeMap<UsageKey, Usage>,
}

impl UsageTable {
    /// Adds to one row.
    ///
    /// # Errors
    /// [`UsageOverflow`]; the table is as it was then.
    pub fn add(&mut self, key: UsageKey, usage: Usage) -> Result<(), UsageOverflow> {
        match self.rows.entry(key) {
            Entry::Vacant(row) => {
                row.insert(usage);
            }
            Entry::Occupied(mut row) => {
                let sum = row.get().checked_add(usage)?;
                row.insert(sum);
            }
        }
        Ok(())
    }

    /// Adds all rows of another table.
    ///
    /// # Errors
    /// [`UsageOverflow`]; some rows may have been added by then.
    pub fn merge(&mut self, other: &Self) -> Result<(), UsageOverflow> {
        other.iter().try_for_each(|(key, usage)| self.add(key.clone(), *usage))
    }

    /// Sums by some of the fields; a group is the values of these fields in the order given. No fields: one group.
    ///
    /// # Errors
    /// [`UsageOverflow`] if a sum does not fit.
    pub fn group(&self, by: &[KeyField]) -> Result<BTreeMap<Vec<&str>, Usage>, UsageOverflow> {
        let mut groups = BTreeMap::<Vec<&str>, Usage>::new();
        for (key, usage) in &self.rows {
            let group = groups.entry(by.iter().map(|field| key.get(*field)).collect()).or_default();
            *group = group.checked_add(*usage)?;
        }
        Ok(groups)
    }

    /// The sum of all rows.
    ///
    /// # Errors
    /// [`UsageOverflow`] if it does not fit.
    pub fn total(&self) -> Result<Usage, UsageOverflow> {
        self.rows.values().try_fold(Usage::default(), |sum, usage| sum.checked_add(*usage))
    }

    /// Rows by key.
    pub fn iter(&self) -> btree_map::Iter<'_, UsageKey, Usage> {
        self.rows.iter()
    }

    /// Whether there is a row of this key.
    #[must_use]
    pub fn contains(&self, key: &UsageKey) -> bool {
        self.rows.contains_key(key)
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl<'t> IntoIterator for &'t UsageTable {
    type Item = (&'t UsageKey, &'t Usage);
    type IntoIter = btree_map::Iter<'t, UsageKey, Usage>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn key() -> impl Strategy<Value = UsageKey> {
        let word = || select(vec!["", "a", "b"]).prop_map(str::to_owned);
        (word(), word(), word(), word()).prop_map(|(tenant, job, from, to)| UsageKey {
            tenant,
            job,
            from,
            to,
            ..UsageKey::default()
        })
    }

    fn usage() -> impl Strategy<Value = Usage> {
        proptest::array::uniform6(0..1_u64 << 40).prop_map(
            |[payload_bytes, sent_bytes, wire_bytes, retried_bytes, requests, avoided_bytes]| Usage {
                payload_bytes,
                sent_bytes,
                wire_bytes,
                retried_bytes,
                requests,
                avoided_bytes,
            },
        )
    }

    #[test]
    fn sums_that_do_not_fit_are_refused_and_change_nothing() {
        let mut table = UsageTable::default();
        let most = Usage { requests: u64::MAX, ..Usage::default() };
        table.add(UsageKey::default(), most).unwrap();
        let before = table.clone();
        assert_eq!(table.add(UsageKey::default(), Usage { requests: 1, ..most }), Err(UsageOverflow));
        assert_eq!(table, before);
    }

    #[test]
    fn names_round_trip() {
        for field in KeyField::ALL {
            assert_eq!(field.to_string().parse(), Ok(field));
        }
        assert!("Tenant".parse::<KeyField>().is_err());
    }

    proptest! {
        #[test]
        fn nothing_is_lost_however_it_is_added_and_grouped(
            rows in vec((key(), usage()), 0..60),
            at in any::<prop::sample::Index>(),
            by in prop::sample::subsequence(KeyField::ALL.to_vec(), 0..=7),
        ) {
            let sum = |tables: &[&[(UsageKey, Usage)]]| {
                let mut table = UsageTable::default();
                for rows in tables {
                    let mut part = UsageTable::default();
                    rows.iter().try_for_each(|(key, usage)| part.add(key.clone(), *usage)).unwrap();
                    table.merge(&part).unwrap();
                }
                table
            };
            let at = at.index(rows.len() + 1);
            let table = sum(&[&rows]);
            prop_assert_eq!(&table, &sum(&[&rows[at..], &rows[..at]]));
            let groups = table.group(&by).unwrap();
            let grouped = groups.values().try_fold(Usage::default(), |sum, usage| sum.checked_add(*usage));
            prop_assert_eq!(grouped, table.total());
            prop_assert!(groups.keys().all(|group| group.len() == by.len()));
        }
    }
}

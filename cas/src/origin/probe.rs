//! Proof that a store keeps its word about conditional creates.

use bytes::Bytes;
use futures_util::future::join_all;

use super::{Created, Origin, OriginError};
use crate::class::{Classify, ErrorClass};
use crate::rng::Random;

/// Creates that race for one name.
const RACERS: usize = 8;

/// Why a store is not written to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The store let two writers create one object.
    #[error(
        "{origin} ignores `create only if absent` ({winners} of {RACERS} racing creates won): two writers would destroy \
         each other's work, so Forebay does not write there; use a store with conditional writes"
    )]
    ConditionIgnored {
        /// The origin.
        origin: String,
        /// Creates that were told they had won.
        winners: usize,
    },
    /// The store could not be asked.
    #[error("cannot find out whether {origin} supports conditional writes")]
    Origin {
        /// The origin.
        origin: String,
        /// Why.
        source: OriginError,
    },
}

impl Classify for ProbeError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::ConditionIgnored { .. } => ErrorClass::Usage,
            Self::Origin { source, .. } => source.class(),
        }
    }
}

/// Lets eight creates race for one fresh name, then one more come late: exactly one may win. The object is deleted.
///
/// # Errors
/// [`ProbeError::ConditionIgnored`] if more than one wins.
pub async fn probe(origin: &Origin, random: &Random) -> Result<(), ProbeError> {
    let path = format!("probe/{}", hex(random.bytes::<16>()));
    let failed = |source| ProbeError::Origin { origin: origin.url().to_owned(), source };
    let create = |racer: usize| origin.create(&path, Bytes::from(racer.to_le_bytes().to_vec()));
    let race = join_all((0..RACERS).map(create)).await;
    let late = create(RACERS).await;
    let mut winners = 0;
    for outcome in race.into_iter().chain([late]) {
        if outcome.map_err(failed)? == Created::New {
            winners += 1;
        }
    }
    origin.delete(&path).await.map_err(failed)?;
    // None: all answers got lost, and the object was created by a try that did not hear of it. Nobody lied.
    if winners > 1 {
        return Err(ProbeError::ConditionIgnored { origin: origin.url().to_owned(), winners });
    }
    Ok(())
}

fn hex(bytes: [u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

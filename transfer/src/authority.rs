//! Signing and checking what travels signed.

use std::sync::Arc;

use forebay_cas::clock::Clock;
use forebay_cas::sync::Mutex;
use forebay_transfer_proto::{Claim, Purpose, Signed};

use crate::identity::Identity;
use crate::node_id::{NodeId, VerifyError};

/// How long a claim is good for. Short, since it cannot be taken back; long against clocks that differ.
const CLAIM_SECONDS: u64 = 15 * 60;
/// A claim is made anew when so much of its life is left.
const RENEW_SECONDS: u64 = 5 * 60;

/// Signs a body.
#[must_use]
pub fn sign(identity: &Identity, purpose: Purpose, body: Vec<u8>) -> Signed {
    let signature = identity.sign(&Signed::message(purpose, &body));
    Signed { key: *identity.node_id().as_bytes(), body, signature }
}

/// Who signed a body.
///
/// # Errors
/// [`VerifyError`]: nobody, as far as can be told.
pub fn signer(signed: &Signed, purpose: Purpose) -> Result<NodeId, VerifyError> {
    let key = NodeId::from_bytes(signed.key);
    key.verify(&Signed::message(purpose, &signed.body), &signed.signature)?;
    Ok(key)
}

/// Makes the claims of one client, and keeps the newest as long as it is good.
#[derive(Debug)]
pub struct ClaimMaker {
    identity: Identity,
    clock: Arc<dyn Clock>,
    claim: Claim,
    newest: Mutex<Option<(u64, Signed)>>,
}

impl ClaimMaker {
    /// Claims like this one; its time is filled in.
    #[must_use]
    pub fn new(identity: Identity, clock: Arc<dyn Clock>, claim: Claim) -> Self {
        Self { identity, clock, claim, newest: Mutex::default() }
    }

    /// What is claimed.
    #[must_use]
    pub const fn claim(&self) -> &Claim {
        &self.claim
    }

    /// A claim that is good for minutes.
    #[must_use]
    pub fn signed(&self) -> Signed {
        let now = seconds(self.clock.as_ref());
        let mut newest = self.newest.lock();
        if let Some((not_after, signed)) = &*newest
            && now + RENEW_SECONDS < *not_after
        {
            return signed.clone();
        }
        let not_after = now + CLAIM_SECONDS;
        let signed = sign(&self.identity, Purpose::Claim, Claim { not_after, ..self.claim.clone() }.encode());
        *newest = Some((not_after, signed.clone()));
        signed
    }
}

/// Seconds since 1970.
#[must_use]
pub fn seconds(clock: &dyn Clock) -> u64 {
    clock.now().seconds.try_into().unwrap_or(0)
}

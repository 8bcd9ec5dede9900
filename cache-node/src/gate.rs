//! Who may ask: claims are checked here, and nowhere else.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_cas::clock::Clock;
use forebay_cas::sync::Mutex;
use forebay_format::RepositoryId;
use forebay_transfer::NodeId;
use forebay_transfer::authority::{seconds, signer};
use forebay_transfer_proto::{Claim, Purpose, Signed, Trouble};

/// Claims remembered as good; each is a few hundred bytes.
const REMEMBERED_MAX: usize = 4096;
/// Clocks may differ by so much.
const SKEW_SECONDS: u64 = 60;
/// No claim is good for longer from now on, whatever it says: it cannot be taken back.
const LIFE_SECONDS_MAX: u64 = 24 * 60 * 60;

/// A refusal, in the words of the protocol.
pub(crate) type Refusal = (Trouble, String);

/// Checks claims, and remembers those that are good.
#[derive(Debug)]
pub(crate) struct Gate {
    clock: Arc<dyn Clock>,
    /// The repository claims must name; an edge leaves that to its gateway.
    repository: Option<RepositoryId>,
    /// Keys and whom they may bill; `None` lets every key bill whom it names.
    clients: Option<BTreeMap<NodeId, String>>,
    good: Mutex<BTreeMap<[u8; 32], Arc<Claim>>>,
}

impl Gate {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        repository: Option<RepositoryId>,
        clients: Option<BTreeMap<NodeId, String>>,
    ) -> Self {
        Self { clock, repository, clients, good: Mutex::default() }
    }

    /// Whether a key is let in at all.
    pub(crate) fn knows(&self, key: NodeId) -> bool {
        self.clients.as_ref().is_none_or(|clients| clients.contains_key(&key))
    }

    /// The claim, if it is known to be good and has not expired.
    pub(crate) fn known(&self, signed: &Signed) -> Option<Arc<Claim>> {
        let claim = self.good.lock().get(&name_of(signed)).cloned()?;
        (claim.not_after + SKEW_SECONDS >= seconds(self.clock.as_ref())).then_some(claim)
    }

    /// Remembers a claim as good.
    pub(crate) fn remember(&self, signed: &Signed, claim: &Arc<Claim>) {
        let mut good = self.good.lock();
        if good.len() >= REMEMBERED_MAX {
            let now = seconds(self.clock.as_ref());
            good.retain(|_, claim| claim.not_after + SKEW_SECONDS >= now);
            if good.len() >= REMEMBERED_MAX {
                good.clear();
            }
        }
        good.insert(name_of(signed), Arc::clone(claim));
    }

    /// Checks a claim by all rules that this node knows.
    pub(crate) fn check(&self, signed: &Signed) -> Result<Arc<Claim>, Refusal> {
        let auth = |message: String| (Trouble::Auth, message);
        let key = signer(signed, Purpose::Claim).map_err(|error| auth(format!("the claim is not signed: {error}")))?;
        let claim = Claim::decode(&signed.body).map_err(|error| auth(error.to_string()))?;
        let now = seconds(self.clock.as_ref());
        if claim.not_after + SKEW_SECONDS < now || claim.not_after > now + LIFE_SECONDS_MAX {
            let late = now.saturating_sub(claim.not_after);
            return Err(auth(format!("the claim of {key} is not for now ({late} s too late); check the clocks")));
        }
        if let (Some(mine), Some(named)) = (self.repository, claim.repository)
            && mine != named
        {
            return Err(auth(format!("the claim is for the repository {}, which is not here", named.to_hex())));
        }
        if let Some(clients) = &self.clients {
            match clients.get(&key) {
                None => return Err(auth(format!("the key {key} is not known here; its operator can add it"))),
                Some(tenant) if *tenant != claim.tenant => {
                    return Err(auth(format!("the key {key} may not bill tenant {:?}", claim.tenant)));
                }
                Some(_) => {}
            }
        }
        Ok(Arc::new(claim))
    }
}

fn name_of(signed: &Signed) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&signed.key).update(&signed.signature).update(&signed.body);
    *hasher.finalize().as_bytes()
}

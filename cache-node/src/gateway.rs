//! A gateway: answers from the origin, and bills what leaves.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use forebay_cas::clock::Clock;
use forebay_cas::codec::Decoder;
use forebay_cas::source::{Frame, Want};
use forebay_cas::sync::Mutex;
use forebay_cas::{ChunkReader, Classify, ErrorClass, ReadError, Repository, ResolveError, chain};
use forebay_format::{
    ChunkId, Codec, FRAME_HEADER_LEN, FrameHeader, FrameKind, RefName, RepositoryId, StepSpec, StoredId, VersionSpec,
};
use forebay_policy::Usage;
use forebay_transfer::authority::{seconds, sign};
use forebay_transfer::{Answer, Identity, NodeId, Service};
use forebay_transfer_proto::request::Reservation;
use forebay_transfer_proto::{Claim, From, Purpose, RateBytesPerS, Reply, Request, Signed, Statement, Trouble};
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::bill::Bill;
use crate::counters;
use crate::gate::{Gate, Refusal};
use crate::pace::Paces;
use crate::turns::Turns;

/// Frames read ahead of the network.
const FRAMES_AHEAD: usize = 4;
/// Answers to slow takers that wait without a turn; each holds a thread and a range of a pack, about 5 MiB.
const SLOW_MAX: usize = 32;
/// How long a statement about a ref is fresh.
const STATEMENT_SECONDS: u64 = 300;

/// A gateway's service. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<Shared>,
}

struct Shared {
    identity: Identity,
    repository_id: RepositoryId,
    repository: Mutex<Repository>,
    reader: ChunkReader,
    gate: Gate,
    paces: Paces,
    bill: Bill,
    clock: Arc<dyn Clock>,
    blocking: Handle,
    wire_spread: AtomicU64,
    turns: Turns,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("repository", &self.shared.repository_id).finish_non_exhaustive()
    }
}

/// What the thread that reads hands to the task that sends.
enum Outgoing {
    Frame(Frame),
    Missing(ChunkId),
    Trouble(Refusal),
}

/// A want, taken apart.
struct Asked {
    /// Who signed the claim: the client, whichever edge asks for it.
    key: [u8; 32],
    claim: Arc<Claim>,
    kind: FrameKind,
    reservation: Option<Reservation>,
    fresh: bool,
    ids: Vec<ChunkId>,
    to: String,
}

impl Gateway {
    /// A gateway of an open repository. `clients` are the keys that may ask and whom they may bill; `None` lets all.
    /// `limit` is the most that it sends to all clients together.
    ///
    /// # Errors
    /// [`ReadError`] if the index cannot be filled.
    pub fn new(
        identity: Identity,
        mut repository: Repository,
        bill: Bill,
        clients: Option<std::collections::BTreeMap<NodeId, String>>,
        limit: Option<RateBytesPerS>,
        clock: Arc<dyn Clock>,
        blocking: Handle,
    ) -> Result<Self, ReadError> {
        let repository_id = repository.config().id;
        let reader = repository.reader()?;
        let gate = Gate::new(Arc::clone(&clock), Some(repository_id), clients);
        let paces = Paces::new(Arc::clone(&clock), limit);
        let (repository, wire_spread) = (Mutex::new(repository), AtomicU64::new(0));
        let turns = Turns::new(SLOW_MAX);
        let shared = Shared {
            identity,
            repository_id,
            repository,
            reader,
            gate,
            paces,
            bill,
            clock,
            blocking,
            wire_spread,
            turns,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Whether a key is let in at all.
    pub(crate) fn knows_client(&self, key: NodeId) -> bool {
        self.shared.gate.knows(key)
    }

    /// What it serves.
    pub(crate) fn repository_id(&self) -> RepositoryId {
        self.shared.repository_id
    }

    /// Bodies of the origin's answers so far, in bytes.
    #[must_use]
    pub fn origin_read_bytes(&self) -> u64 {
        self.shared.reader.source().traffic().wire_bytes
    }

    /// Writes the ledger down. Blocking. `wire_bytes` is what the wire has carried outwards so far.
    pub fn flush(&self, wire_bytes: u64, is_last: bool) {
        let before = self.shared.wire_spread.swap(wire_bytes, Ordering::Relaxed);
        if wire_bytes > before {
            self.shared.bill.spread(wire_bytes - before);
        }
        self.shared.bill.flush(is_last);
    }

    async fn answer(self, request: Request, answer: Answer) {
        let key = request.claim().key;
        let claim = match self.claim(request.claim()) {
            Ok(claim) => claim,
            Err((trouble, message)) => return answer.trouble(trouble, &message).await,
        };
        if claim.repository.is_none() && !matches!(request, Request::Resolve { .. } | Request::Authorize { .. }) {
            return answer.trouble(Trouble::Auth, "the claim names no repository").await;
        }
        match request {
            Request::Want { kind, reservation, fresh, ids, to, .. } => {
                let Some(kind) = FrameKind::from_u8(kind) else {
                    return answer.trouble(Trouble::Usage, "no such kind of frames").await;
                };
                self.want(Asked { key, claim, kind, reservation, fresh, ids, to }, answer).await;
            }
            Request::Resolve { name, version, step, .. } => {
                self.reply(answer, move |gateway| gateway.resolve(&name, &version, step)).await;
            }
            Request::Reserve { reservation, ids, to, avoided_bytes, .. } => {
                let reserve = move |gateway: &Self| gateway.reserve(&claim, reservation, &ids, &to, avoided_bytes);
                self.reply(answer, reserve).await;
            }
            Request::Release { reservation, .. } => {
                self.reply(answer, move |gateway| gateway.shared.bill.release(reservation).map(|()| Reply::Done)).await;
            }
            Request::Authorize { .. } => answer.reply(Reply::Done).await,
            _ => answer.trouble(Trouble::Usage, "this node does not know such requests").await,
        }
    }

    fn claim(&self, signed: &Signed) -> Result<Arc<Claim>, Refusal> {
        if let Some(claim) = self.shared.gate.known(signed) {
            return Ok(claim);
        }
        let claim = self.shared.gate.check(signed)?;
        self.shared.gate.remember(signed, &claim);
        Ok(claim)
    }

    /// Does something that blocks, and replies with what it says.
    async fn reply(&self, answer: Answer, work: impl FnOnce(&Self) -> Result<Reply, Refusal> + Send + 'static) {
        let gateway = self.clone();
        match self.shared.blocking.spawn_blocking(move || work(&gateway)).await {
            Ok(Ok(reply)) => answer.reply(reply).await,
            Ok(Err((trouble, message))) => answer.trouble(trouble, &message).await,
            Err(panic) => answer.trouble(Trouble::Failed, &panic.to_string()).await,
        }
    }

    fn resolve(&self, name: &RefName, version: &str, step: bool) -> Result<Reply, Refusal> {
        let usage = |error: &dyn std::error::Error| (Trouble::Usage, error.to_string());
        let mut repository = self.shared.repository.lock();
        repository.refresh().map_err(|error| refusal(&error))?;
        let found = if step {
            let (_, spec) = StepSpec::parse(&format!("{name}@{version}")).map_err(|error| usage(&error))?;
            repository.resolve_step(name, spec)
        } else if version.is_empty() {
            repository.resolve(name, &VersionSpec::Newest)
        } else {
            let (_, spec) = VersionSpec::parse(&format!("{name}@{version}")).map_err(|error| usage(&error))?;
            repository.resolve(name, &spec)
        };
        let found = found.map_err(|error| resolve_refusal(&error))?;
        // Its segments are known from here on.
        repository.index().map_err(|error| refusal(&error))?;
        let newest_sequence = repository.state().newest(name).map_or(found.sequence, |newest| newest.sequence);
        let statement = Statement {
            repository: self.shared.repository_id,
            name: name.clone(),
            sequence: found.sequence,
            snapshot: found.snapshot,
            parent: found.parent,
            envelope: found.envelope,
            step: found.step,
            newest_sequence,
            log_sequence: repository.state().sequence,
            time: found.time,
            not_after: seconds(self.shared.clock.as_ref()) + STATEMENT_SECONDS,
        };
        Ok(Reply::Resolved(sign(&self.shared.identity, Purpose::Statement, statement.encode())))
    }

    /// Sums up what will be sent at the most, and sets it aside: exactly the frames, and the bases of those that are patches.
    fn reserve(
        &self,
        claim: &Claim,
        reservation: Reservation,
        ids: &[ChunkId],
        to: &str,
        avoided_bytes: u64,
    ) -> Result<Reply, Refusal> {
        let mut bytes = 0;
        let mut counted = BTreeSet::new();
        let mut todo = ids.to_vec();
        while let Some(id) = todo.pop() {
            if counted.insert(id)
                && let Some(place) = self.shared.reader.index().locate(id).map_err(|error| refusal(&error))?.first()
            {
                bytes += place.row.header.frame_len();
                todo.extend(place.row.header.base);
            }
        }
        self.shared.bill.reserve(claim, to, reservation, bytes)?;
        if avoided_bytes > 0 {
            self.shared.bill.count(claim, to, Usage { avoided_bytes, ..Usage::default() });
        }
        Ok(Reply::Reserved(bytes))
    }

    async fn want(&self, asked: Asked, mut answer: Answer) {
        let Some(mut turn) = self.shared.turns.take(asked.key).await else { return };
        let (out, mut outgoing) = mpsc::channel(FRAMES_AHEAD);
        let gateway = self.clone();
        let (claim, to) = (Arc::clone(&asked.claim), asked.to.clone());
        let reading = self.shared.blocking.spawn_blocking(move || gateway.read(&asked, &out));
        self.shared.bill.count(&claim, &to, Usage { requests: 1, ..Usage::default() });
        while let Some(next) = outgoing.recv().await {
            let is_sent = match next {
                Outgoing::Frame(frame) => {
                    let sent_bytes = frame.header.frame_len();
                    let payload_bytes = u64::from(frame.header.plain_len);
                    self.shared.paces.turn(&claim, sent_bytes).await;
                    let taken = turn.lend(answer.frame(From::Gateway, &frame.header, frame.payload)).await;
                    let is_sent = taken == Some(true);
                    let retried_bytes = if is_sent { 0 } else { sent_bytes };
                    let payload_bytes = if is_sent { payload_bytes } else { 0 };
                    let usage = Usage { payload_bytes, sent_bytes, retried_bytes, ..Usage::default() };
                    self.shared.bill.count(&claim, &to, usage);
                    counters::sent(From::Gateway, sent_bytes);
                    is_sent
                }
                Outgoing::Missing(id) => answer.missing(id).await,
                Outgoing::Trouble((trouble, message)) => return answer.trouble(trouble, &message).await,
            };
            if !is_sent {
                answer.abandon();
                return;
            }
        }
        if reading.await.is_ok() {
            answer.finish();
        } else {
            answer.trouble(Trouble::Failed, "reading broke off").await;
        }
    }

    /// Reads frames out of the origin; each is paid before it is handed on. Blocking.
    fn read(&self, asked: &Asked, out: &mpsc::Sender<Outgoing>) {
        let mut here = Vec::with_capacity(asked.ids.len());
        for id in &asked.ids {
            match self.knows(*id) {
                Ok(true) => here.push(Want { id: *id, len: 0 }),
                Ok(false) => drop(out.blocking_send(Outgoing::Missing(*id))),
                Err(refused) => return drop(out.blocking_send(Outgoing::Trouble(refused))),
            }
        }
        let mut left: BTreeSet<ChunkId> = here.iter().map(|want| want.id).collect();
        let mut decoder = Decoder::new();
        let hand_on = |frame: Frame| {
            let charged = self.shared.bill.charge(&asked.claim, &asked.to, asked.reservation, frame.header.frame_len());
            let (outgoing, goes_on) = match charged {
                Ok(()) => (Outgoing::Frame(frame), true),
                Err(refused) => (Outgoing::Trouble(refused), false),
            };
            if out.blocking_send(outgoing).is_ok() && goes_on {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        let mut stopped = false;
        let read = self.shared.reader.source().frames(asked.kind, &here, &mut |frame| {
            // A frame as sent must at least be the one that was stored; the first look is cheap for raw ones. Who could do
            // nothing with a patch gets the whole chunk.
            let is_whole = if asked.fresh {
                frame.header.base.is_none() && decoder.check(&frame.header, &frame.payload, &mut Vec::new()).is_ok()
            } else {
                StoredId::of(&frame.payload) == frame.header.stored_id
            };
            if !is_whole || !left.remove(&frame.header.id) {
                return ControlFlow::Continue(());
            }
            let flow = hand_on(frame);
            stopped = flow.is_break();
            flow
        });
        if stopped {
            return;
        }
        if let Err(error) = read {
            return drop(out.blocking_send(Outgoing::Trouble(refusal(&error))));
        }
        // What is damaged where it was read may be whole elsewhere.
        for id in left {
            let flow = match self.shared.reader.chunk(id, asked.kind) {
                Ok(plain) => hand_on(raw_frame(id, asked.kind, plain)),
                Err(error) => {
                    drop(out.blocking_send(Outgoing::Trouble(refusal(&error))));
                    return;
                }
            };
            if flow.is_break() {
                return;
            }
        }
    }

    /// Whether a chunk is in the repository, as far as its log goes by now.
    fn knows(&self, id: ChunkId) -> Result<bool, Refusal> {
        let index = self.shared.reader.index();
        if index.contains(id).map_err(|error| refusal(&error))? {
            return Ok(true);
        }
        let mut repository = self.shared.repository.lock();
        repository.refresh().map_err(|error| refusal(&error))?;
        let index = repository.index().map_err(|error| refusal(&error))?;
        index.contains(id).map_err(|error| refusal(&error))
    }
}

impl Service for Gateway {
    fn handle(&self, _peer: NodeId, request: Request, answer: Answer) -> BoxFuture<'static, ()> {
        Box::pin(self.clone().answer(request, answer))
    }
}

fn raw_frame(id: ChunkId, kind: FrameKind, plain: Vec<u8>) -> Frame {
    let len = u32::try_from(plain.len()).expect("a chunk is at most 16 MiB");
    let header = FrameHeader {
        kind,
        codec: Codec::Raw,
        depth: 0,
        id,
        base: None,
        stored_id: StoredId::from_bytes(*id.as_bytes()),
        plain_len: len,
        stored_len: len,
    };
    debug_assert_eq!(header.frame_len(), (FRAME_HEADER_LEN + plain.len()) as u64);
    Frame { header, payload: Bytes::from(plain) }
}

fn resolve_refusal(error: &ResolveError) -> Refusal {
    match error {
        ResolveError::NotFound { name, .. } => (Trouble::NotFound, format!("the repository has no ref {name}")),
        other => refusal(other),
    }
}

/// An error of the repository, told to a stranger.
fn refusal<E: std::error::Error + Classify + 'static>(error: &E) -> Refusal {
    let trouble = match error.class() {
        ErrorClass::NotFound => Trouble::NotFound,
        ErrorClass::Usage => Trouble::Usage,
        ErrorClass::Corrupt => Trouble::Corrupt,
        ErrorClass::Net => Trouble::Net,
        _ => Trouble::Failed,
    };
    (trouble, chain(error))
}

//! An edge: answers from its cache, and asks its gateway once for what several want.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_cas::clock::{self, Clock};
use forebay_cas::codec::Decoder;
use forebay_cas::numbers::index;
use forebay_cas::source::{Frame, Want};
use forebay_cas::sync::Mutex;
use forebay_format::{ChunkId, FrameKind};
use forebay_policy::Class;
use forebay_transfer::client::{Client, PeerError};
use forebay_transfer::source::{Check, Order, ask_all, fetch};
use forebay_transfer::{Answer, NodeId, Service};
use forebay_transfer_proto::request::Reservation;
use forebay_transfer_proto::{Claim, From, RateBytesPerS, Reply, Request, SchedulerConfig, Signed, Trouble};
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use crate::counters;
use crate::gate::{Gate, Refusal};
use crate::pace::Paces;
use crate::store::{Located, Span, Store};
use crate::turns::Turns;

/// Frames read ahead of the network.
const FRAMES_AHEAD: usize = 4;
/// Answers to slow clients that wait without a turn; each holds up to 256 KiB, or a larger frame.
const SLOW_MAX: usize = 256;
/// Who waits for somebody else's fetch waits no longer; the fetch itself has closer deadlines.
const FLIGHT: Duration = Duration::from_secs(60);

/// Bytes of the frames that landed last: who waits for them gets them without a look at the disk.
const RECENT_BYTES: u64 = 16 << 20;
/// Bytes of frames that the cache has no room for, held until all who wait for them have sent them on.
const PASSING_BYTES: u32 = 64 << 20;
/// How long a frame that cannot be kept waits for room among those.
const PASSING: Duration = Duration::from_secs(5);
/// A frame that was evicted before it was sent is fetched again so many times.
const FETCHES: u32 = 3;

/// What became of a fetch, for all who wait for it.
type Landed = Option<Result<Landing, Refusal>>;

/// A frame that came. It is held where it is kept, not by those who wait for it: they may never ask for it.
#[derive(Debug, Clone)]
struct Landing {
    frame_len: u64,
    /// What it is a patch of.
    base: Option<ChunkId>,
    held: Held,
}

#[derive(Debug, Clone)]
enum Held {
    /// In the cache, and in memory as long as it is one of the last.
    Cached(Weak<Frame>),
    /// Nowhere else.
    Passing(Arc<Passing>),
}

/// A frame that the cache has no room for.
#[derive(Debug)]
struct Passing {
    frame: Frame,
    _room: OwnedSemaphorePermit,
}

impl Landing {
    /// Where the frame is, if it is in memory.
    fn frame(&self) -> Option<Frame> {
        match &self.held {
            Held::Cached(frame) => Some(frame.upgrade()?.as_ref().clone()),
            Held::Passing(passing) => Some(passing.frame.clone()),
        }
    }
}

/// The frames that landed last.
#[derive(Debug, Default)]
struct Recent {
    frames: VecDeque<Arc<Frame>>,
    bytes: u64,
}

impl Recent {
    fn push(&mut self, frame: &Arc<Frame>) {
        self.bytes += frame.header.frame_len();
        self.frames.push_back(Arc::clone(frame));
        while self.bytes > RECENT_BYTES
            && let Some(oldest) = self.frames.pop_front()
        {
            self.bytes -= oldest.header.frame_len();
        }
    }
}

/// An edge's service. Cheap to clone.
#[derive(Clone)]
pub struct Edge {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<Store>,
    upstream: Arc<Client>,
    clock: Arc<dyn Clock>,
    /// Runs what blocks on the disk.
    blocking: Handle,
    gate: Gate,
    paces: Paces,
    place: String,
    flights: Mutex<BTreeMap<ChunkId, watch::Receiver<Landed>>>,
    recent: Mutex<Recent>,
    passing: Arc<Semaphore>,
    turns: Turns,
}

impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edge").field("place", &self.shared.place).finish_non_exhaustive()
    }
}

/// A want, taken apart.
struct Asked {
    claim: Arc<Claim>,
    signed: Signed,
    kind: FrameKind,
    reservation: Option<Reservation>,
    fresh: bool,
    ids: Vec<ChunkId>,
}

impl Edge {
    /// An edge with this cache in front of these nodes. `place` is what it calls itself in bills, `limit` the most that it
    /// sends to all clients together.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        upstream: Client,
        clock: Arc<dyn Clock>,
        blocking: Handle,
        place: String,
        limit: Option<RateBytesPerS>,
    ) -> Self {
        let gate = Gate::new(Arc::clone(&clock), None, None);
        let paces = Paces::new(Arc::clone(&clock), limit);
        let (upstream, flights, turns) = (Arc::new(upstream), Mutex::default(), Turns::new(SLOW_MAX));
        let recent = Mutex::default();
        let passing = Arc::new(Semaphore::new(index(PASSING_BYTES.into())));
        let shared = Shared { store, upstream, clock, blocking, gate, paces, place, flights, recent, passing, turns };
        Self { shared: Arc::new(shared) }
    }

    async fn answer(self, peer: NodeId, request: Request, answer: Answer) {
        let claim = match self.claim(peer, request.claim()).await {
            Ok(claim) => claim,
            Err((trouble, message)) => return answer.trouble(trouble, &message).await,
        };
        match request {
            Request::Want { claim: signed, kind, reservation, fresh, ids, .. } => {
                let Some(kind) = FrameKind::from_u8(kind) else {
                    return answer.trouble(Trouble::Usage, "no such kind of frames").await;
                };
                let asked = Asked { claim, signed, kind, reservation, fresh, ids };
                self.want(asked, answer).await;
            }
            Request::Warm { claim: signed, kind, reservation, ids } => {
                let Some(kind) = FrameKind::from_u8(kind) else {
                    return answer.trouble(Trouble::Usage, "no such kind of frames").await;
                };
                self.warm(Asked { claim, signed, kind, reservation, fresh: false, ids }, answer).await;
            }
            Request::Reserve { claim, reservation, ids, .. } => self.reserve(claim, reservation, ids, answer).await,
            Request::Authorize { .. } => answer.reply(Reply::Done).await,
            Request::Status { .. } | Request::Drain { .. } => {
                answer.trouble(Trouble::Usage, "this is for the node itself").await;
            }
            other => self.relay(&other, answer).await,
        }
    }

    /// The claim, if this client may use it and the gateway accepts it.
    async fn claim(&self, peer: NodeId, signed: &Signed) -> Result<Arc<Claim>, Refusal> {
        if signed.key != *peer.as_bytes() {
            return Err((Trouble::Auth, "the claim is another client's".to_owned()));
        }
        if let Some(claim) = self.shared.gate.known(signed) {
            return Ok(claim);
        }
        let claim = self.shared.gate.check(signed)?;
        let request = Request::Authorize { claim: signed.clone() };
        ask_all(&self.shared.upstream, &request).await.map_err(|error| upstream(&error))?;
        self.shared.gate.remember(signed, &claim);
        Ok(claim)
    }

    async fn relay(&self, request: &Request, answer: Answer) {
        match ask_all(&self.shared.upstream, request).await {
            Ok(reply) => answer.reply(reply).await,
            Err(error) => {
                let (trouble, message) = upstream(&error);
                answer.trouble(trouble, &message).await;
            }
        }
    }

    /// Only what is not here has to cross the uplink, and to be paid.
    async fn reserve(&self, claim: Signed, reservation: Reservation, ids: Vec<ChunkId>, answer: Answer) {
        let store = Arc::clone(&self.shared.store);
        let (ids, avoided_bytes) = store.split(ids);
        counters::avoided(avoided_bytes);
        let to = self.shared.place.clone();
        // The gateway is told even if nothing is missing: what was avoided stands in its ledger.
        let request = Request::Reserve { claim, reservation, ids, to, avoided_bytes };
        self.relay(&request, answer).await;
    }

    async fn want(&self, asked: Asked, mut answer: Answer) {
        let Some(missing) = self.send_hits(&asked, &mut answer).await else { return };
        for (id, from, landed) in self.join_flights(&asked, missing) {
            let (frame, from) = match self.landed(&asked, id, from, landed).await {
                Ok(landed) => landed,
                Err((Trouble::NotFound, _)) => {
                    if answer.missing(id).await {
                        continue;
                    }
                    return;
                }
                Err((trouble, message)) => return answer.trouble(trouble, &message).await,
            };
            let Some(mut turn) = self.shared.turns.take(asked.signed.key).await else { return };
            self.shared.paces.turn(&asked.claim, frame.header.frame_len()).await;
            counters::sent(from, frame.header.frame_len());
            if turn.lend(answer.frame(from, &frame.header, frame.payload)).await != Some(true) {
                answer.abandon();
                return;
            }
        }
        answer.finish();
    }

    /// Waits for a frame and reads it where it is held; fetches it again if it was evicted meanwhile.
    async fn landed(
        &self,
        asked: &Asked,
        id: ChunkId,
        mut from: From,
        mut flight: watch::Receiver<Landed>,
    ) -> Result<(Frame, From), Refusal> {
        for _ in 0..FETCHES {
            let landing = land(&mut flight).await?;
            if let Some(frame) = landing.frame() {
                return Ok((frame, from));
            }
            let (store, kind) = (Arc::clone(&self.shared.store), asked.kind);
            if let Ok(Some(frame)) = self.shared.blocking.spawn_blocking(move || store.get(id, kind)).await {
                return Ok((frame, from));
            }
            if let Some((_, again_from, again)) = self.join_flights(asked, vec![id]).pop() {
                (flight, from) = (again, if again_from == From::Gateway { again_from } else { from });
            }
        }
        Err((Trouble::Busy, format!("chunk {id} is evicted faster than it can be sent")))
    }

    /// Fetches and keeps what is not here, with what patches are made of.
    async fn warm(&self, mut asked: Asked, answer: Answer) {
        let mut moved_bytes = 0;
        let mut seen: BTreeSet<ChunkId> = asked.ids.iter().copied().collect();
        let mut todo = std::mem::take(&mut asked.ids);
        // Chains of bases end: their depth falls.
        while !todo.is_empty() {
            let store = Arc::clone(&self.shared.store);
            let looking = self.shared.blocking.spawn_blocking(move || {
                let located = store.locate(&todo);
                let bases: Vec<ChunkId> = located.spans.iter().flat_map(|span| store.bases(span)).collect();
                (located.missing, bases)
            });
            let Ok((missing, mut bases)) = looking.await else {
                return answer.trouble(Trouble::Failed, "the cache cannot be read").await;
            };
            for (id, from, mut landed) in self.join_flights(&asked, missing) {
                match land(&mut landed).await {
                    Ok(landing) => {
                        moved_bytes += if from == From::Gateway { landing.frame_len } else { 0 };
                        bases.extend(landing.base);
                    }
                    Err((trouble, message)) => {
                        return answer.trouble(trouble, &format!("chunk {id}: {message}")).await;
                    }
                }
            }
            bases.retain(|base| seen.insert(*base));
            todo = bases;
        }
        answer.reply(Reply::Warmed(moved_bytes)).await;
    }

    /// Sends what is in the cache; returns what is not, or `None` if nobody listens any more.
    async fn send_hits(&self, asked: &Asked, answer: &mut Answer) -> Option<Vec<ChunkId>> {
        let mut turn = self.shared.turns.take(asked.signed.key).await?;
        let store = &self.shared.store;
        let Located { spans, mut missing } = match store.locate_now(&asked.ids) {
            Some(located) => located,
            None => {
                let (store, ids) = (Arc::clone(store), asked.ids.clone());
                self.shared.blocking.spawn_blocking(move || store.locate(&ids)).await.ok()?
            }
        };
        for span in spans {
            let mut left: BTreeSet<ChunkId> = span.ids().collect();
            for frame in self.read(span, asked).await? {
                left.remove(&frame.header.id);
                self.shared.paces.turn(&asked.claim, frame.header.frame_len()).await;
                counters::sent(From::Site, frame.header.frame_len());
                let sent = turn.lend(answer.frame(From::Site, &frame.header, frame.payload)).await;
                if sent != Some(true) {
                    answer.abandon();
                    return None;
                }
            }
            missing.extend(left);
        }
        Some(missing)
    }

    /// Reads what is in the page cache right here: it is sent while it is still in the processor's cache, and no thread has
    /// to be woken. Everything else is read where waiting holds nobody up.
    async fn read(&self, span: Span, asked: &Asked) -> Option<Vec<Frame>> {
        let (kind, fresh) = (asked.kind, asked.fresh);
        if !fresh && let Some(frames) = self.shared.store.read_now(&span, kind) {
            return Some(frames);
        }
        let store = Arc::clone(&self.shared.store);
        let reading = self.shared.blocking.spawn_blocking(move || {
            let mut frames = store.read(&span, kind);
            frames.retain(|frame| !fresh || is_whole(&store, frame));
            frames
        });
        reading.await.ok()
    }

    /// Waits for whoever fetches these already, and fetches the others.
    fn join_flights(&self, asked: &Asked, missing: Vec<ChunkId>) -> Vec<(ChunkId, From, watch::Receiver<Landed>)> {
        let mut waits = Vec::with_capacity(missing.len());
        let mut lead = BTreeMap::new();
        let mut wants = Vec::new();
        {
            let mut flights = self.shared.flights.lock();
            for id in missing {
                if let Some(flight) = flights.get(&id) {
                    waits.push((id, From::Site, flight.clone()));
                    continue;
                }
                // It may have landed between the look into the cache and the look at the flights.
                if self.shared.store.contains(id) {
                    let landing = Landing { frame_len: 0, base: None, held: Held::Cached(Weak::new()) };
                    waits.push((id, From::Site, watch::channel(Some(Ok(landing))).1));
                    continue;
                }
                let (set, flight) = watch::channel(None);
                flights.insert(id, flight.clone());
                lead.insert(id, set);
                wants.push(Want { id, len: 0 });
                waits.push((id, From::Gateway, flight));
            }
        }
        if !wants.is_empty() {
            let order = Order {
                kind: asked.kind,
                wants,
                claim: asked.signed.clone(),
                reservation: asked.reservation,
                check: Check::Stored,
                to: self.shared.place.clone(),
                scheduling: SchedulerConfig::default(),
            };
            let class = asked.claim.class.parse().unwrap_or(Class::Standard);
            // On its own: it goes on for the others if the client that started it goes away.
            #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the network at the latest")]
            tokio::task::spawn(self.clone().fly(order, class, lead));
        }
        waits
    }

    /// Fetches chunks for all who wait for them, and keeps them.
    async fn fly(self, order: Order, class: Class, mut lead: BTreeMap<ChunkId, watch::Sender<Landed>>) {
        let (out, mut frames) = mpsc::channel(FRAMES_AHEAD);
        let shared = &self.shared;
        let fetching = fetch(Arc::clone(&shared.upstream), Arc::clone(&shared.clock), order, out);
        let landing = async {
            while let Some(delivered) = frames.recv().await {
                let id = delivered.frame.header.id;
                let landed = self.keep(delivered.frame, class).await;
                // Into the cache first, then out of the flights: who looks into both finds it in one.
                shared.flights.lock().remove(&id);
                if let Some(set) = lead.remove(&id) {
                    set.send_replace(Some(landed));
                }
            }
        };
        let (fetched, ()) = futures_util::future::join(fetching, landing).await;
        let why = match &fetched {
            Ok(()) => (Trouble::NotFound, "no such chunk".to_owned()),
            Err(error) => upstream(error),
        };
        // No error is remembered: the next who asks starts anew.
        let mut flights = shared.flights.lock();
        for (id, set) in lead {
            flights.remove(&id);
            set.send_replace(Some(Err(why.clone())));
        }
    }
}

impl Edge {
    /// Keeps a frame in the cache, or for those who wait for it if there is no room.
    async fn keep(&self, frame: Frame, class: Class) -> Result<Landing, Refusal> {
        let shared = &self.shared;
        let (frame_len, base) = (frame.header.frame_len(), frame.header.base);
        let frame = Arc::new(frame);
        let (store, putting) = (Arc::clone(&shared.store), Arc::clone(&frame));
        let put = shared.blocking.spawn_blocking(move || store.put(&putting.header, &putting.payload, class));
        if put.await.unwrap_or(false) {
            shared.recent.lock().push(&frame);
            return Ok(Landing { frame_len, base, held: Held::Cached(Arc::downgrade(&frame)) });
        }
        let bytes = u32::try_from(frame_len).unwrap_or(u32::MAX).min(PASSING_BYTES);
        match clock::timeout(PASSING, Arc::clone(&shared.passing).acquire_many_owned(bytes)).await {
            Ok(Ok(room)) => {
                let passing = Passing { frame: frame.as_ref().clone(), _room: room };
                Ok(Landing { frame_len, base, held: Held::Passing(Arc::new(passing)) })
            }
            _ => Err((Trouble::Busy, "the cache is full, and too much is on its way through".to_owned())),
        }
    }
}

impl Service for Edge {
    fn handle(&self, peer: NodeId, request: Request, answer: Answer) -> BoxFuture<'static, ()> {
        Box::pin(self.clone().answer(peer, request, answer))
    }
}

/// Waits for a flight.
async fn land(flight: &mut watch::Receiver<Landed>) -> Result<Landing, Refusal> {
    match clock::timeout(FLIGHT, flight.wait_for(Option::is_some)).await {
        Ok(Ok(landed)) => landed.clone().unwrap_or_else(|| Err(given_up())),
        Ok(Err(_closed)) => Err(given_up()),
        Err(_elapsed) => Err((Trouble::Net, "the gateway takes too long".to_owned())),
    }
}

/// Whoever fetched it is gone without a word.
fn given_up() -> Refusal {
    (Trouble::Failed, "the fetch was given up".to_owned())
}

/// Looks at a copy that a client says is damaged; throws it away if it is.
fn is_whole(store: &Store, frame: &Frame) -> bool {
    let is_whole = Decoder::new().check(&frame.header, &frame.payload, &mut Vec::new()).is_ok();
    if !is_whole {
        store.discard(frame.header.id);
    }
    is_whole
}

/// A failure of the gateway, told on.
fn upstream(error: &PeerError) -> Refusal {
    let message = match error {
        PeerError::Refused { message, .. } => message.clone(),
        other => format!("the gateway: {}", forebay_cas::chain(other)),
    };
    let trouble = match error.trouble() {
        // A gateway that lies or answers with another key is out of reach for the client.
        Trouble::Auth if matches!(error, PeerError::WrongKey { .. }) => Trouble::Net,
        trouble => trouble,
    };
    (trouble, message)
}

//! Chunks from nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_cas::clock::{self, Clock};
use forebay_cas::codec::Decoder;
use forebay_cas::numbers::length;
use forebay_cas::source::{ChunkSource, Frame, Traffic, Want};
use forebay_cas::{Classify, ErrorClass, ReadError, chain};
use forebay_format::{ChunkId, FrameKind, PATCH_DEPTH_MAX};
use forebay_transfer_proto::request::Reservation;
use forebay_transfer_proto::{
    Action, From, Item, MonotonicUs, RUN_BYTES, Reply, Request, RunId, Scheduler, SchedulerConfig, Trouble,
    WANT_IDS_MAX, Wanted,
};
use futures_util::StreamExt;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::authority::ClaimMaker;
use crate::client::{Client, Part, PeerError};

/// Frames on their way from the network to who wants them.
const FRAMES_AHEAD: usize = 16;
/// Frames on their way from streams to their scheduler.
const EVENTS_AHEAD: usize = 16;
/// A node has fetched a run by then, over whatever uplink it has.
const WARM: Duration = Duration::from_secs(120);
/// What a client calls the place where it is.
const CLIENT: &str = "client";
/// A consumer that is slower than this has made the silence itself.
const OWN_DELAY_US: u64 = 1_000_000;

/// A frame that came, and how.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// The frame; decoded and verified only if that was asked for.
    pub frame: Frame,
    /// Where it came from.
    pub from: From,
}

/// What is to be fetched, and for whom.
#[derive(Debug, Clone)]
pub struct Order {
    /// What the chunks are.
    pub kind: FrameKind,
    /// Which.
    pub wants: Vec<Want>,
    /// Signed by who pays.
    pub claim: forebay_transfer_proto::Signed,
    /// What was reserved.
    pub reservation: Option<Reservation>,
    /// What a frame has to pass before it is handed on; one that does not is asked for elsewhere.
    pub check: Check,
    /// The place they go to, for the bill.
    pub to: String,
    /// How many runs at a time, and how patiently.
    pub scheduling: SchedulerConfig,
}

/// What is looked at of a frame that came.
#[derive(Debug, Clone, Default)]
pub enum Check {
    /// Its kind only: whoever gets it decodes it.
    #[default]
    Kind,
    /// That it decodes; of a patch, that it is what its header says. For who keeps frames.
    Stored,
    /// That it decodes, also of a patch whose base is here. A base without bytes could not be had: its patches are of no
    /// use.
    Decoded(BTreeMap<ChunkId, Option<Bytes>>),
}

impl Check {
    fn passes(&self, decoder: &mut Decoder, frame: &Frame, buffer: &mut Vec<u8>) -> bool {
        let Frame { header, payload } = frame;
        let base = match (self, header.base) {
            (Self::Kind, _) => return true,
            (Self::Decoded(bases), Some(base)) => bases.get(&base),
            _ => None,
        };
        match base {
            Some(Some(base)) => decoder.decode(header, payload, Some(base), buffer).is_ok(),
            Some(None) => false,
            None => decoder.check(header, payload, buffer).is_ok(),
        }
    }
}

/// Fetches chunks from a client's nodes and hands them on as they come, until all are there or lost.
///
/// # Errors
/// The first loss that is not just a chunk that no node has; those are left out.
pub async fn fetch(
    client: Arc<Client>,
    clock: Arc<dyn Clock>,
    order: Order,
    out: mpsc::Sender<Delivered>,
) -> Result<(), PeerError> {
    let wanted = order.wants.iter().map(|want| Wanted { id: want.id, len: want.len });
    let scheduler = Scheduler::new(order.scheduling, client.nodes(), wanted);
    let (events_in, events) = mpsc::channel(EVENTS_AHEAD);
    let drive = Drive {
        client,
        clock,
        order,
        scheduler,
        runs: JoinSet::new(),
        aborts: BTreeMap::new(),
        events_in,
        decoder: Decoder::new(),
        plain: Vec::new(),
        error: None,
    };
    drive.run(events, out).await
}

/// One [`fetch`]: the scheduler, and the streams that it has open.
struct Drive {
    client: Arc<Client>,
    clock: Arc<dyn Clock>,
    order: Order,
    scheduler: Scheduler,
    runs: JoinSet<()>,
    aborts: BTreeMap<RunId, (usize, tokio::task::AbortHandle)>,
    events_in: mpsc::Sender<(RunId, Event)>,
    decoder: Decoder,
    plain: Vec<u8>,
    /// What the last node that failed said.
    error: Option<PeerError>,
}

enum Event {
    Progress,
    Item(Item),
    End,
    Failed(PeerError),
}

impl Drive {
    async fn run(
        mut self,
        mut events: mpsc::Receiver<(RunId, Event)>,
        out: mpsc::Sender<Delivered>,
    ) -> Result<(), PeerError> {
        loop {
            self.act()?;
            if self.scheduler.is_done() {
                return Ok(());
            }
            let now = self.now();
            let wait = self.scheduler.deadline().map(|deadline| deadline.since(now));
            tokio::select! {
                event = events.recv() => {
                    let Some((run, event)) = event else { return Ok(()) };
                    if !self.handle(run, event, &out).await {
                        return Ok(());
                    }
                }
                () = clock::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
            while self.runs.try_join_next().is_some() {}
        }
    }

    fn now(&self) -> MonotonicUs {
        MonotonicUs(u64::try_from(self.clock.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// Does what the scheduler says.
    fn act(&mut self) -> Result<(), PeerError> {
        let now = self.now();
        while let Some(action) = self.scheduler.poll(now) {
            match action {
                Action::Start { run, source, ids, fresh } => self.start(run, source, ids, fresh),
                Action::Abort { run } => {
                    if let Some((source, handle)) = self.aborts.remove(&run) {
                        handle.abort();
                        let silence = self.order.scheduling.stall;
                        let node = self.client.name(source);
                        let error = PeerError::Silent { node, silence };
                        self.client.avoid(source, &error);
                        self.error.get_or_insert(error);
                    }
                }
                Action::Lost { trouble: Trouble::NotFound, .. } => {}
                Action::Lost { id, trouble } => return Err(self.lost(id, trouble)),
            }
        }
        Ok(())
    }

    fn lost(&mut self, id: ChunkId, trouble: Trouble) -> PeerError {
        match self.error.take() {
            Some(error) if error.trouble() == trouble => error,
            _ => PeerError::Refused {
                node: (0..self.client.nodes()).map(|node| self.client.name(node)).collect::<Vec<_>>().join(", "),
                trouble,
                message: format!("chunk {id} does not come whole"),
            },
        }
    }

    fn start(&mut self, run: RunId, source: usize, ids: Vec<ChunkId>, fresh: bool) {
        let request = Request::Want {
            claim: self.order.claim.clone(),
            kind: self.order.kind as u8,
            reservation: self.order.reservation,
            fresh,
            ids,
            to: self.order.to.clone(),
        };
        let handle = self.runs.spawn(carry(Arc::clone(&self.client), source, run, request, self.events_in.clone()));
        self.aborts.insert(run, (source, handle));
    }

    /// Takes in what happened on a run. `false`: nobody wants anything any more.
    async fn handle(&mut self, run: RunId, event: Event, out: &mpsc::Sender<Delivered>) -> bool {
        let now = self.now();
        match event {
            Event::Progress => self.scheduler.handle_progress(now, run),
            Event::Item(Item::Frame { from, header, payload }) => {
                let frame = Frame { header, payload };
                let fits = frame.header.kind == self.order.kind
                    && self.order.check.passes(&mut self.decoder, &frame, &mut self.plain);
                let len = frame.header.frame_len();
                if !fits {
                    self.client.waste(len);
                    self.scheduler.handle_corrupt(now, run, frame.header.id);
                } else if self.scheduler.handle_frame(now, run, frame.header.id) {
                    if out.send(Delivered { frame, from }).await.is_err() {
                        return false;
                    }
                    let after = self.now();
                    if after.0 > now.0 + OWN_DELAY_US {
                        self.scheduler.handle_own_delay(after);
                    }
                } else {
                    self.client.waste(len);
                }
            }
            Event::Item(Item::Missing(id)) => self.scheduler.handle_missing(now, run, id),
            Event::Item(Item::Trouble { trouble, message }) => {
                let node = self.aborts.get(&run).map_or_else(String::new, |(source, _)| self.client.name(*source));
                self.failed(now, run, PeerError::Refused { node, trouble, message });
            }
            Event::Item(Item::Reply(_)) | Event::End => {
                self.aborts.remove(&run);
                self.scheduler.handle_end(run);
            }
            Event::Failed(error) => self.failed(now, run, error),
        }
        true
    }

    fn failed(&mut self, now: MonotonicUs, run: RunId, error: PeerError) {
        let source = self.aborts.remove(&run).map(|(source, _)| source);
        match (&error, source) {
            (PeerError::Protocol { .. } | PeerError::WrongKey { .. }, Some(source)) => {
                self.scheduler.handle_failure(now, run, error.trouble());
                self.scheduler.handle_liar(source);
            }
            _ => self.scheduler.handle_failure(now, run, error.trouble()),
        }
        self.error = Some(error);
    }
}

/// Carries one run from its stream to the scheduler.
async fn carry(client: Arc<Client>, source: usize, run: RunId, request: Request, events: mpsc::Sender<(RunId, Event)>) {
    let mut answer = match client.ask(source, &request).await {
        Ok(answer) => answer,
        Err(error) => {
            let _gone = events.send((run, Event::Failed(error))).await;
            return;
        }
    };
    loop {
        let event = match answer.next_part().await {
            Ok(Part::Item(item)) => Event::Item(item),
            Ok(Part::Bytes) => {
                // News of life; if there is no room for it, there is other news.
                let _full = events.try_send((run, Event::Progress));
                continue;
            }
            Ok(Part::End) => Event::End,
            Err(error) => {
                client.waste(length(answer.pending()));
                Event::Failed(error)
            }
        };
        let is_last = matches!(event, Event::End | Event::Failed(_));
        if events.send((run, event)).await.is_err() || is_last {
            return;
        }
    }
}

/// The chunks of one repository, from nodes. Blocking calls; the network has its own runtime.
pub struct NodeSource {
    client: Arc<Client>,
    runtime: Handle,
    clock: Arc<dyn Clock>,
    claims: ClaimMaker,
    reservation: Reservation,
    scheduling: SchedulerConfig,
    is_reserved: AtomicBool,
    site_bytes: AtomicU64,
    gateway_bytes: AtomicU64,
}

impl fmt::Debug for NodeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeSource").field("claim", self.claims.claim()).finish_non_exhaustive()
    }
}

impl NodeSource {
    /// A source that asks with these claims. The reservation is a random name for what will be set aside.
    #[must_use]
    pub fn new(
        client: Arc<Client>,
        runtime: Handle,
        clock: Arc<dyn Clock>,
        claims: ClaimMaker,
        reservation: Reservation,
        scheduling: SchedulerConfig,
    ) -> Self {
        Self {
            client,
            runtime,
            clock,
            claims,
            reservation,
            scheduling,
            is_reserved: AtomicBool::new(false),
            site_bytes: AtomicU64::new(0),
            gateway_bytes: AtomicU64::new(0),
        }
    }

    /// Gives back what was reserved and not used. A node that cannot be told finds out when it expires.
    pub fn release(&self) {
        if self.is_reserved.swap(false, Ordering::Relaxed) {
            let request = Request::Release { claim: self.claims.signed(), reservation: self.reservation };
            let told = self.runtime.block_on(self.first_reply(&request));
            if let Err(error) = told {
                tracing::debug!(%error, "the reservation was not given back");
            }
        }
    }

    /// Asks one node after the other until one replies.
    async fn first_reply(&self, request: &Request) -> Result<Reply, PeerError> {
        ask_all(&self.client, request).await
    }

    /// Has the first node fetch and keep chunks, some runs at a time.
    async fn warm_runs(
        &self,
        kind: FrameKind,
        wants: &[Want],
        moved: &mut (dyn FnMut(u64) + Send),
    ) -> Result<u64, PeerError> {
        let reservation = self.is_reserved.load(Ordering::Relaxed).then_some(self.reservation);
        let runs = runs(wants).map(|run| {
            let ids = run.iter().map(|want| want.id).collect();
            let request = Request::Warm { claim: self.claims.signed(), kind: kind as u8, reservation, ids };
            let plain_bytes = run.iter().map(|want| u64::from(want.len)).sum::<u64>();
            async move { Ok((self.client.reply_within(0, &request, WARM).await?, plain_bytes)) }
        });
        let in_flight = usize::try_from(self.scheduling.runs_in_flight_max).unwrap_or(1);
        let mut answers = futures_util::stream::iter(runs).buffer_unordered(in_flight);
        let mut warmed = 0;
        while let Some(answer) = answers.next().await {
            let (reply, plain_bytes) = answer?;
            let Reply::Warmed(bytes) = reply else { return Err(self.client.odd_reply(0)) };
            warmed += bytes;
            moved(plain_bytes);
        }
        Ok(warmed)
    }

    /// Stored bytes that the first node would have to fetch for these chunks.
    async fn missing_bytes(&self, wants: &[Want]) -> Result<u64, PeerError> {
        let mut missing = 0;
        for part in wants.chunks(WANT_IDS_MAX) {
            let (claim, reservation) = (self.claims.signed(), self.reservation);
            let ids = part.iter().map(|want| want.id).collect();
            let to = CLIENT.to_owned();
            self.is_reserved.store(true, Ordering::Relaxed);
            let request = Request::Reserve { claim, reservation, ids, to, avoided_bytes: 0 };
            let Reply::Reserved(bytes) = self.client.reply(0, &request).await? else {
                return Err(self.client.odd_reply(0));
            };
            missing += bytes;
        }
        Ok(missing)
    }

    /// One chunk, decoded. That a patch is wrong shows only when its base is here: then the chunk is asked for again, and who
    /// sent the patch is not believed a second time.
    fn whole(&self, id: ChunkId, kind: FrameKind, depth: u8) -> Result<Vec<u8>, ReadError> {
        let mut bases: BTreeMap<ChunkId, Option<Bytes>> = BTreeMap::new();
        let (mut decoder, mut patched) = (Decoder::new(), false);
        // Each node can name a base of its own, and be wrong about it twice.
        for _ in 0..=2 * self.client.nodes() {
            let mut found = None;
            self.deliver(kind, vec![Want { id, len: 0 }], Check::Decoded(bases.clone()), &mut |frame| {
                found = Some(frame);
                ControlFlow::Continue(())
            })?;
            let Some(Frame { header, payload }) = found else { break };
            let mut base = None;
            if let Some(below) = header.base {
                let read = if header.depth < depth { self.base(below, header.depth).map(Bytes::from) } else { break };
                base = match read {
                    Ok(plain) => Some(plain),
                    Err(error) if error.class() == ErrorClass::Corrupt => None,
                    Err(error) => return Err(error),
                };
                bases.insert(below, base.clone());
            }
            if let Ok(plain) = decoder.decode(&header, &payload, base.as_deref(), &mut Vec::new()) {
                return Ok(plain.to_vec());
            }
            patched = true;
        }
        if patched {
            let detail =
                format!("chunk {id} does not come whole from {}: its patch or the base of it is wrong", self.names());
            return Err(ReadError::Peer { class: ErrorClass::Corrupt, detail });
        }
        Err(ReadError::Missing { id, kind })
    }

    /// All nodes that are asked.
    fn names(&self) -> String {
        (0..self.client.nodes()).map(|node| self.client.name(node)).collect::<Vec<_>>().join(", ")
    }

    fn deliver(
        &self,
        kind: FrameKind,
        wants: Vec<Want>,
        check: Check,
        take: &mut dyn FnMut(Frame) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let (out, mut frames) = mpsc::channel::<Delivered>(FRAMES_AHEAD);
        let order = Order {
            kind,
            wants,
            claim: self.claims.signed(),
            reservation: self.is_reserved.load(Ordering::Relaxed).then_some(self.reservation),
            check,
            to: CLIENT.to_owned(),
            scheduling: self.scheduling,
        };
        let task = self.runtime.spawn(fetch(Arc::clone(&self.client), Arc::clone(&self.clock), order, out));
        while let Some(Delivered { frame, from }) = frames.blocking_recv() {
            if kind == FrameKind::Data {
                let counter = match from {
                    From::Site => &self.site_bytes,
                    From::Gateway => &self.gateway_bytes,
                };
                counter.fetch_add(frame.header.plain_len.into(), Ordering::Relaxed);
            }
            if take(frame).is_break() {
                return Ok(());
            }
        }
        match self.runtime.block_on(task) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(read_error(&error)),
            Err(panic) => Err(ReadError::Peer { class: ErrorClass::Failed, detail: panic.to_string() }),
        }
    }
}

impl ChunkSource for NodeSource {
    fn frames(
        &self,
        kind: FrameKind,
        wants: &[Want],
        take: &mut dyn FnMut(Frame) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        self.deliver(kind, wants.to_vec(), Check::Kind, take)
    }

    fn chunk(&self, id: ChunkId, kind: FrameKind) -> Result<Vec<u8>, ReadError> {
        self.whole(id, kind, PATCH_DEPTH_MAX + 1)
    }

    fn base(&self, id: ChunkId, depth: u8) -> Result<Vec<u8>, ReadError> {
        self.whole(id, FrameKind::Data, depth)
    }

    fn is_distant(&self) -> bool {
        true
    }

    fn bills(&self) -> bool {
        true
    }

    fn reserve(&self, wants: &[Want]) -> Result<(), ReadError> {
        for part in wants.chunks(WANT_IDS_MAX) {
            let ids = part.iter().map(|want| want.id).collect();
            let request = Request::Reserve {
                claim: self.claims.signed(),
                reservation: self.reservation,
                ids,
                to: CLIENT.to_owned(),
                avoided_bytes: 0,
            };
            self.is_reserved.store(true, Ordering::Relaxed);
            if let Err(error) = self.runtime.block_on(self.first_reply(&request)) {
                self.release();
                return Err(read_error(&error));
            }
        }
        Ok(())
    }

    fn warm(&self, kind: FrameKind, wants: &[Want], moved: &mut (dyn FnMut(u64) + Send)) -> Result<u64, ReadError> {
        let warmed = self.runtime.block_on(self.warm_runs(kind, wants, moved)).map_err(|error| read_error(&error))?;
        self.release();
        let missing = self.runtime.block_on(self.missing_bytes(wants)).map_err(|error| read_error(&error))?;
        if missing > 0 {
            let node = self.client.name(0);
            let detail = format!(
                "node {node} has no room for {missing} bytes of it; give it more --capacity, or warm with a higher --class"
            );
            return Err(ReadError::Peer { class: ErrorClass::Space, detail });
        }
        Ok(warmed)
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            wire_bytes: self.client.wire_bytes(),
            cache_bytes: 0,
            site_bytes: self.site_bytes.load(Ordering::Relaxed),
            gateway_bytes: self.gateway_bytes.load(Ordering::Relaxed),
            origin_bytes: 0,
            retried_bytes: Some(self.client.wasted_bytes()),
            requests: None,
        }
    }
}

impl Drop for NodeSource {
    fn drop(&mut self) {
        self.release();
    }
}

/// Parts of about [`RUN_BYTES`] each.
fn runs(mut wants: &[Want]) -> impl Iterator<Item = &[Want]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |want: &&Want| {
            bytes += u64::from(want.len);
            bytes <= RUN_BYTES
        };
        let len = wants.iter().take(WANT_IDS_MAX).take_while(fits).count().max(1).min(wants.len());
        let (run, rest) = wants.split_at(len);
        wants = rest;
        (!run.is_empty()).then_some(run)
    })
}

/// Asks one node after the other until one replies; a refusal that another node would repeat is final.
///
/// # Errors
/// [`PeerError`] of the first node, or the refusal.
pub async fn ask_all(client: &Client, request: &Request) -> Result<Reply, PeerError> {
    let mut first = None;
    for node in 0..client.nodes() {
        let mut replied = client.reply(node, request).await;
        // A connection that broke may be one to a node that has been started anew since: it is worth a second try.
        if matches!(replied, Err(PeerError::Broken { .. })) {
            replied = client.reply(node, request).await;
        }
        match replied {
            Ok(reply) => return Ok(reply),
            // What one node cannot or does not say, another may; what it refuses, the others refuse too.
            Err(error)
                if !matches!(error, PeerError::Protocol { .. })
                    && !matches!(error.trouble(), Trouble::Net | Trouble::Busy | Trouble::Failed) =>
            {
                return Err(error);
            }
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| PeerError::Unreachable { node: "any".to_owned(), detail: "none is named".to_owned() }))
}

/// What went wrong at a node, as an error of reading.
#[must_use]
pub fn read_error(error: &PeerError) -> ReadError {
    ReadError::Peer { class: error.class(), detail: chain(error) }
}

//! The way from plain chunks to durable packs, shared by all threads of a push.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_format::{ChunkId, FrameHeader, FrameKind};

use super::PushError;
use super::bases::{Bases, Parent};
use crate::codec::Encoder;
use crate::index::{LocalIndex, PendingPack};
use crate::numbers::{index, length};
use crate::packer::{PackError, PackKind, Packer, Stored};
use crate::repository::Repository;
use crate::rng::Random;
use crate::run::FrameRun;
use crate::sync::{Mutex, Receiver, Sender, bounded};
use crate::task;
use crate::tree::NodeSink;

/// Runs are handed on at this size: 4 MiB, well above the 1 MiB that reads are coalesced to.
const RUN_BYTES: usize = 4 << 20;
/// Runs waiting for the packer.
const RUNS_WAITING: usize = 4;
/// A patch smaller than the plain bytes by this factor is taken without a try of the next base.
const GOOD_PATCH: usize = 8;
/// Shards of the set of chunks on their way, so that threads rarely wait for each other.
const SHARDS: usize = 16;

/// What a push counts.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) chunks: AtomicU64,
    pub(super) new_chunks: AtomicU64,
    pub(super) new_bytes: AtomicU64,
}

/// What a store does with what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storing {
    /// Stores it, with what an interrupted push left behind.
    Push,
    /// Stores it alone: something late, while the packs of its push wait for their record.
    Late,
    /// Stores nothing and counts bytes.
    Nothing,
}

/// What the threads send to the packer.
enum Message {
    Run(PackKind, FrameRun),
    /// All runs have been sent: write the last pack and the segment.
    End,
    /// The push failed or was interrupted: make durable what there is.
    Abandon,
}

/// Says which chunks are new, and carries their frames to the packer.
pub(super) struct Store<'s> {
    repository: &'s Repository,
    index: &'s LocalIndex,
    ids: &'s Random,
    sender: Sender<Message>,
    receiver: Mutex<Option<Receiver<Message>>>,
    /// Chunks claimed by a thread of this push, until their pack is in the index.
    claimed: [Mutex<BTreeSet<(FrameKind, ChunkId)>>; SHARDS],
    failed: AtomicBool,
    storing: Storing,
    /// The only chunks that are taken, and each once; `None`: all that are new.
    wanted: Option<Mutex<BTreeSet<(FrameKind, ChunkId)>>>,
    /// The version whose chunks new ones may be patches of.
    pub(super) parent: Option<Parent>,
    pub(super) counts: Counts,
}

impl<'s> Store<'s> {
    pub(super) fn new(repository: &'s Repository, index: &'s LocalIndex, ids: &'s Random, storing: Storing) -> Self {
        let (sender, receiver) = bounded(RUNS_WAITING);
        Self {
            repository,
            index,
            ids,
            sender,
            receiver: Mutex::new(Some(receiver)),
            claimed: std::array::from_fn(|_| Mutex::default()),
            failed: AtomicBool::new(false),
            storing,
            wanted: None,
            parent: None,
            counts: Counts::default(),
        }
    }

    /// As it is, with a version to compare new chunks with.
    pub(super) fn with_parent(self, parent: Option<Parent>) -> Self {
        Self { parent, ..self }
    }

    /// As it is, for these chunks alone, wherever the index says that they are.
    pub(super) fn only(self, wanted: BTreeSet<(FrameKind, ChunkId)>) -> Self {
        Self { wanted: Some(Mutex::new(wanted)), ..self }
    }

    /// The chunks of [`Self::only`] that nobody has brought yet.
    pub(super) fn left(&self) -> BTreeSet<(FrameKind, ChunkId)> {
        self.wanted.as_ref().map(|wanted| wanted.lock().clone()).unwrap_or_default()
    }

    /// Whether what the index knows is stored again.
    pub(super) const fn is_choosy(&self) -> bool {
        self.wanted.is_some()
    }

    /// Runs `work` beside the packer. When it succeeds, all its chunks are durable and listed in segments; when it fails,
    /// the packs that could be filled are durable and remembered. Called once.
    pub(super) fn run<T>(&self, work: impl FnOnce(&Self) -> Result<T, PushError>) -> Result<(T, Stored), PushError> {
        let receiver = self.receiver.lock().take().expect("a store runs once");
        let (ready, begin) = bounded(1);
        std::thread::scope(|scope| {
            let packer = task::spawn_scoped(scope, "packer", || {
                let result = self.pack(receiver, ready);
                self.failed.store(result.is_err(), Ordering::Release);
                result
            });
            // What was left behind and is not there any more must not be taken for known. A packer that fails says why below.
            let _or_failed = begin.recv();
            let result = work(self);
            let last = if result.is_ok() { Message::End } else { Message::Abandon };
            // A packer that is gone has failed, and its error is returned below.
            let _gone = self.sender.send(last);
            match (task::join(packer), result) {
                (Ok(stored), Ok(result)) => Ok((result, stored)),
                // The packer's error is the cause of what the threads say.
                (Err(error), _) => Err(error.into()),
                (Ok(_), Err(error)) => Err(error),
            }
        })
    }

    /// Whether the packer has failed; nothing more can be stored then.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// A way for one thread to store chunks of files.
    pub(super) fn data_sink(&self) -> Sink<'_, 's> {
        Sink::new(self, PackKind::Data)
    }

    /// A way for one thread to store the manifest.
    pub(super) fn manifest_sink(&self) -> Sink<'_, 's> {
        Sink::new(self, PackKind::Manifest)
    }

    /// The packer's thread.
    fn pack(&self, receiver: Receiver<Message>, ready: Sender<()>) -> Result<Stored, PackError> {
        if self.storing == Storing::Nothing {
            drop(ready);
            return Ok(count_only(&receiver));
        }
        let durable = |pack: &PendingPack| self.release(pack);
        let mut packer = Packer::new(
            self.repository.origin(),
            self.index,
            self.ids,
            self.repository.around.runtime.clone(),
            self.repository.state().index_generation,
            &durable,
        );
        if self.storing == Storing::Push {
            packer.adopt(self.repository.state())?;
        }
        drop(ready);
        loop {
            match receiver.recv() {
                Ok(Message::Run(kind, run)) => packer.add(kind, run)?,
                Ok(Message::End) => return packer.finish(),
                Ok(Message::Abandon) | Err(_) => {
                    packer.flush()?;
                    return Ok(Stored::default());
                }
            }
        }
    }

    /// Whether this thread is to store a chunk: nobody has it and no other thread claimed it.
    fn claim(&self, kind: FrameKind, id: ChunkId) -> Result<bool, PushError> {
        if let Some(wanted) = &self.wanted {
            return Ok(wanted.lock().remove(&(kind, id)));
        }
        let known = self.index.locate(id)?.iter().any(|place| place.row.header.kind == kind);
        Ok(!known && self.shard(id).lock().insert((kind, id)))
    }

    /// The index knows a pack's chunks now.
    fn release(&self, pack: &PendingPack) {
        for row in &pack.rows {
            self.shard(row.id()).lock().remove(&(row.header.kind, row.id()));
        }
    }

    fn shard(&self, id: ChunkId) -> &Mutex<BTreeSet<(FrameKind, ChunkId)>> {
        &self.claimed[usize::from(id.as_bytes()[0]) % SHARDS]
    }
}

/// A dry run sends its frames nowhere and counts their bytes.
fn count_only(receiver: &Receiver<Message>) -> Stored {
    let mut stored = Stored::default();
    while let Ok(Message::Run(_, run)) = receiver.recv() {
        stored.bytes += length(run.bytes.len());
    }
    stored
}

/// Encodes chunks of one thread into runs.
pub(super) struct Sink<'k, 's> {
    store: &'k Store<'s>,
    kind: PackKind,
    encoder: Encoder,
    run: FrameRun,
}

impl<'k, 's> Sink<'k, 's> {
    fn new(store: &'k Store<'s>, kind: PackKind) -> Self {
        Self { store, kind, encoder: Encoder::new(), run: FrameRun::default() }
    }

    /// Stores a chunk unless it is there; says whether it is new.
    pub(super) fn put(&mut self, kind: FrameKind, id: ChunkId, plain: &[u8]) -> Result<bool, PushError> {
        if !self.store.claim(kind, id)? {
            return Ok(false);
        }
        let (header, payload) = self.encoder.encode(kind, id, plain)?;
        push(&mut self.run, &header, payload);
        self.send_full()?;
        Ok(true)
    }

    /// Stores a chunk of a file unless it is there, as a patch of an old one that lies where it does if that is clearly
    /// smaller; says whether it is new. `offset` counts content without holes.
    pub(super) fn put_near(
        &mut self,
        id: ChunkId,
        plain: &[u8],
        offset: u64,
        bases: &mut Bases<'_>,
    ) -> Result<bool, PushError> {
        if !self.store.claim(FrameKind::Data, id)? {
            bases.known(offset, id);
            return Ok(false);
        }
        let candidates = bases.candidates(offset, plain.len());
        let mut best: Option<(FrameHeader, Vec<u8>)> = None;
        for candidate in &candidates {
            let Some(base) = bases.read(self.store.index, *candidate).filter(|base| base.id != id) else { continue };
            let (header, payload) = self.encoder.encode_against(id, plain, &base)?;
            if best.as_ref().is_none_or(|(best, _)| header.stored_len < best.stored_len) {
                best = Some((header, payload.to_vec()));
            }
            if best.as_ref().is_some_and(|(best, _)| index(best.stored_len.into()) * GOOD_PATCH <= plain.len()) {
                break;
            }
        }
        if !candidates.is_empty() {
            bases.tell(best.as_ref().is_some_and(|(best, _)| best.base.is_some()));
        }
        match best {
            Some((header, payload)) => push(&mut self.run, &header, &payload),
            None => {
                let (header, payload) = self.encoder.encode(FrameKind::Data, id, plain)?;
                push(&mut self.run, &header, payload);
            }
        }
        self.send_full()?;
        Ok(true)
    }

    /// Hands the last run on.
    pub(super) fn finish(&mut self) -> Result<(), PushError> {
        if self.run.is_empty() { Ok(()) } else { self.send() }
    }

    fn send_full(&mut self) -> Result<(), PushError> {
        if self.run.bytes.len() >= RUN_BYTES { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), PushError> {
        let run = std::mem::take(&mut self.run);
        self.store.sender.send(Message::Run(self.kind, run)).map_err(|_packer_failed| PushError::Interrupted)
    }
}

fn push(run: &mut FrameRun, header: &FrameHeader, payload: &[u8]) {
    if run.bytes.capacity() == 0 {
        *run = FrameRun::with_capacity(RUN_BYTES + (RUN_BYTES >> 2));
    }
    run.push(header, payload);
}

impl NodeSink for Sink<'_, '_> {
    type Error = PushError;

    fn store(&mut self, kind: FrameKind, plain: &[u8]) -> Result<ChunkId, PushError> {
        let id = ChunkId::of(plain);
        self.put(kind, id, plain)?;
        Ok(id)
    }
}

//! A node that lies: it relays everything to an honest gateway but what a test wants it to spoil.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_format::{ChunkId, Codec, FrameHeader, FrameKind, StoredId};
use forebay_transfer_proto::item::frame_head;
use forebay_transfer_proto::{From, Item, REQUEST_BYTES_MAX, Reply, Request};
use quinn::{Endpoint, RecvStream, SendStream, VarInt};
use tokio::runtime::Runtime;

use crate::content::rnd;
use crate::nodes::Serving;
use crate::peer::{Hello, Key, Stranger, items, server_config};

/// Between two drops of an answer that never ends.
const DRIP: Duration = Duration::from_millis(200);

/// What a rogue node answers in place of what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evil {
    /// Random bytes.
    Garbage,
    /// Frames that nobody asked for, right in themselves, and the end.
    Unasked,
    /// The same for ever.
    UnaskedForEver,
    /// For ever, that it lacks chunks nobody asked for.
    MissingForEver,
    /// A frame whose header says another length than its item.
    LyingHeader,
    /// An item of 4 GiB.
    HugeItem,
    /// Half a frame, and the end.
    Half,
    /// Half a frame, and silence.
    HalfAndSilence,
    /// A frame, a byte at a time, for ever.
    Drips,
    /// The right answer with a bit changed.
    Flipped,
    /// Other bytes under the right names, their own checksum right; a statement under another key.
    Exchanged,
    /// Patches of chunks that are not there, or that make other bytes.
    Patched,
    /// The stream is reset.
    Reset,
    /// The end at once.
    Nothing,
    /// The connection is closed.
    Closes,
}

/// One rogue node; it ends when dropped.
#[derive(Debug)]
pub struct Rogue {
    address: SocketAddr,
    key: Key,
    spoilt: Arc<AtomicU64>,
    runtime: Option<Runtime>,
}

impl Rogue {
    /// A node in front of `gateway` that spoils the answers to requests for which `spoils` says so.
    pub fn start(gateway: &Serving, evil: Evil, spoils: fn(&Request) -> bool) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let key = Key::new(66);
        let spoilt = Arc::new(AtomicU64::new(0));
        let endpoint = {
            let _driven_by = runtime.enter();
            Endpoint::server(server_config(&key), SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port")
        };
        let address = endpoint.local_addr().expect("a bound socket has an address");
        let upstream = runtime.block_on(Stranger::connect(gateway.listen(), &Hello::new(&key)));
        let upstream = Arc::new(upstream.expect("a gateway lets everybody in"));
        let spoiler = Spoiler { evil, spoils, upstream, spoilt: Arc::clone(&spoilt) };
        runtime.spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                let spoiler = spoiler.clone();
                tokio::task::spawn(async move {
                    let Ok(connection) = incoming.await else { return };
                    while let Ok((send, receive)) = connection.accept_bi().await {
                        let (spoiler, connection) = (spoiler.clone(), connection.clone());
                        tokio::task::spawn(async move { spoiler.answer(&connection, send, receive).await });
                    }
                });
            }
        });
        Self { address, key, spoilt, runtime: Some(runtime) }
    }

    /// `NODE_ID@HOST:PORT`
    pub fn addr(&self) -> String {
        format!("{}@{}", self.key.hex(), self.address)
    }

    /// Its UDP address.
    pub fn listen(&self) -> String {
        self.address.to_string()
    }

    /// How many answers it has spoilt.
    pub fn spoilt(&self) -> u64 {
        self.spoilt.load(Ordering::Relaxed)
    }
}

impl Drop for Rogue {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_millis(100));
        }
    }
}

#[derive(Debug, Clone)]
struct Spoiler {
    evil: Evil,
    spoils: fn(&Request) -> bool,
    upstream: Arc<Stranger>,
    spoilt: Arc<AtomicU64>,
}

impl Spoiler {
    /// `None` where nobody listens any more.
    async fn answer(
        &self,
        connection: &quinn::Connection,
        mut send: SendStream,
        mut receive: RecvStream,
    ) -> Option<()> {
        let bytes = receive.read_to_end(REQUEST_BYTES_MAX).await.ok()?;
        let request = Request::decode(&bytes).ok()?;
        let (_asked, answer) = self.upstream.send(&bytes, true).await.ok()?;
        if !(self.spoils)(&request) {
            return relay(answer, send).await;
        }
        self.spoilt.fetch_add(1, Ordering::Relaxed);
        match self.evil {
            Evil::Reset => send.reset(VarInt::from_u32(7)).ok(),
            Evil::Nothing => send.finish().ok(),
            Evil::Closes => {
                connection.close(VarInt::from_u32(9), b"gone");
                None
            }
            Evil::Flipped | Evil::Exchanged | Evil::Patched => self.change(answer, send).await,
            Evil::UnaskedForEver | Evil::MissingForEver | Evil::Drips => self.for_ever(send).await,
            Evil::HalfAndSilence => {
                send.write_all(&self.one()).await.ok()?;
                std::future::pending().await
            }
            Evil::Garbage | Evil::Unasked | Evil::LyingHeader | Evil::HugeItem | Evil::Half => {
                send.write_all(&self.one()).await.ok()?;
                send.finish().ok()
            }
        }
    }

    /// Bytes of an answer of this kind.
    fn one(&self) -> Vec<u8> {
        let payload = rnd(404, 100_000);
        let mut header = raw(ChunkId::of(&payload), &payload);
        let mut whole = Vec::new();
        match self.evil {
            Evil::Garbage => return rnd(7, 300_000),
            Evil::MissingForEver => Item::Missing(ChunkId::of(b"nobody asked for this")).encode(&mut whole),
            Evil::HugeItem => whole.extend_from_slice(&[1, 0xff, 0xff, 0xff, 0xff, 0, 0]),
            Evil::LyingHeader => {
                header.stored_len -= 1;
                let mut head = frame_head(From::Site, &header);
                let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) + 1;
                head[1..5].copy_from_slice(&len.to_le_bytes());
                whole.extend_from_slice(&head);
                whole.extend_from_slice(&payload);
            }
            _ => Item::Frame { from: From::Site, header, payload: payload.into() }.encode(&mut whole),
        }
        if matches!(self.evil, Evil::Half | Evil::HalfAndSilence) {
            whole.truncate(whole.len() / 2);
        }
        whole
    }

    async fn for_ever(&self, mut send: SendStream) -> Option<()> {
        let whole = self.one();
        if self.evil == Evil::Drips {
            let (head, rest) = whole.split_at(200);
            send.write_all(head).await.ok()?;
            for byte in rest {
                send.write_all(&[*byte]).await.ok()?;
                tokio::time::sleep(DRIP).await;
            }
            return None;
        }
        loop {
            send.write_all(&whole).await.ok()?;
            tokio::time::sleep(DRIP).await;
        }
    }

    /// What the gateway answers, with other bytes in the frames.
    async fn change(&self, answer: RecvStream, mut send: SendStream) -> Option<()> {
        let mut base = ChunkId::of(b"no such chunk");
        for item in items(answer).await.ok()? {
            let item = match item {
                Item::Frame { from, header, payload } if self.evil == Evil::Patched => {
                    let (header, payload) = patch(&header, base).unwrap_or((header, payload));
                    base = header.id;
                    Item::Frame { from, header, payload }
                }
                Item::Frame { from, header, payload } if self.evil == Evil::Flipped => {
                    let mut bytes = payload.to_vec();
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 1;
                    Item::Frame { from, header, payload: Bytes::from(bytes) }
                }
                Item::Frame { from, header, .. } => {
                    let zeros = vec![0; usize::try_from(header.plain_len).expect("a length in memory")];
                    let payload = zstd::bulk::compress(&zeros, 1).expect("zeros can be compressed");
                    let stored_len = u32::try_from(payload.len()).expect("shorter than what it was");
                    let stored_id = StoredId::of(&payload);
                    let header = FrameHeader { codec: Codec::Zstd, base: None, stored_id, stored_len, ..header };
                    Item::Frame { from, header, payload: Bytes::from(payload) }
                }
                Item::Reply(Reply::Resolved(mut signed)) => {
                    match self.evil {
                        Evil::Flipped => signed.body[10] ^= 1,
                        _ => signed.key = Key::new(67).id(),
                    }
                    Item::Reply(Reply::Resolved(signed))
                }
                other => other,
            };
            let mut bytes = Vec::new();
            item.encode(&mut bytes);
            send.write_all(&bytes).await.ok()?;
        }
        send.finish().ok()
    }
}

/// A patch that claims to make the chunk out of the first bytes of another; `None` if that would be no patch.
fn patch(header: &FrameHeader, base: ChunkId) -> Option<(FrameHeader, Bytes)> {
    let words = [1, 0, 0, header.plain_len, 0];
    let payload: Bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (stored_id, stored_len) = (StoredId::of(&payload), u32::try_from(payload.len()).expect("twenty bytes"));
    let patch = FrameHeader { codec: Codec::Patch, depth: 1, base: Some(base), stored_id, stored_len, ..*header };
    (header.kind == FrameKind::Data && base != header.id && stored_len < header.plain_len).then_some((patch, payload))
}

/// A header of a raw data frame, whether or not the bytes are those of the id.
fn raw(id: ChunkId, payload: &[u8]) -> FrameHeader {
    let len = u32::try_from(payload.len()).expect("a chunk is short");
    FrameHeader {
        kind: FrameKind::Data,
        codec: Codec::Raw,
        depth: 0,
        id,
        base: None,
        stored_id: StoredId::of(payload),
        plain_len: len,
        stored_len: len,
    }
}

async fn relay(mut answer: RecvStream, mut send: SendStream) -> Option<()> {
    while let Some(chunk) = answer.read_chunk(usize::MAX, true).await.ok()? {
        send.write_chunk(chunk.bytes).await.ok()?;
    }
    send.finish().ok()
}

//! The serving side: connections in, requests to a service, items out. Every wait has a deadline.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_cas::clock;
use forebay_cas::sync::Mutex;
use forebay_format::{ChunkId, FrameHeader};
use forebay_transfer_proto::item::frame_head;
use forebay_transfer_proto::{From, Item, REQUEST_BYTES_MAX, Reply, Request, Trouble};
use futures_util::future::BoxFuture;
use quinn::{Endpoint, RecvStream, SendStream, VarInt};
use tokio::task::JoinSet;

use crate::identity::Identity;
use crate::node_id::NodeId;
use crate::{endpoint, tls};

/// A handshake takes no longer.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// A request has arrived whole by then.
const REQUEST: Duration = Duration::from_secs(10);
/// A peer takes some bytes within this time, or is gone.
const SEND_STALL: Duration = Duration::from_secs(30);
/// Connections in all, and from one address: a site behind one address has many jobs.
const CONNECTIONS_MAX: usize = 2048;
const CONNECTIONS_PER_ADDRESS_MAX: usize = 512;
/// Above so many in all, or from its address, a stranger has to prove its address first: who only sends under somebody
/// else's address keeps nobody out.
const RETRY_ABOVE: usize = CONNECTIONS_MAX / 2;
const RETRY_PER_ADDRESS_ABOVE: usize = 64;

/// What answers requests.
pub trait Service: Debug + Send + Sync + 'static {
    /// Answers one request of a peer. Called on the runtime that drives the network: it must not block.
    fn handle(&self, peer: NodeId, request: Request, answer: Answer) -> BoxFuture<'static, ()>;
}

/// A node's socket.
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
    open: Arc<Mutex<BTreeMap<usize, quinn::Connection>>>,
    closed_bytes: Arc<Mutex<(u64, u64)>>,
}

impl Server {
    /// Binds a socket. To be called on the runtime that is to drive it.
    ///
    /// # Errors
    /// What the system says about the address.
    pub fn bind(identity: &Identity, listen: SocketAddr) -> io::Result<Self> {
        let tls = tls::server_config(identity).map_err(io::Error::other)?;
        let endpoint = endpoint::server(identity, listen, tls)?;
        Ok(Self { endpoint, open: Arc::default(), closed_bytes: Arc::default() })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.open.lock().len()
    }

    /// UDP payload sent and received so far, in bytes.
    #[must_use]
    pub fn wire_bytes(&self) -> (u64, u64) {
        let closed = *self.closed_bytes.lock();
        self.open.lock().values().fold(closed, |(sent, received), connection| {
            let stats = connection.stats();
            (sent + stats.udp_tx.bytes, received + stats.udp_rx.bytes)
        })
    }

    /// Serves until [`Self::stop`]; then no request is being handled any more.
    pub async fn run(&self, service: Arc<dyn Service>) {
        let mut connections = JoinSet::new();
        let mut addresses: BTreeMap<IpAddr, usize> = BTreeMap::new();
        let mut number = 0;
        loop {
            tokio::select! {
                incoming = self.endpoint.accept() => {
                    let Some(incoming) = incoming else { break };
                    let address = incoming.remote_address().ip();
                    let count = addresses.entry(address).or_default();
                    if connections.len() >= CONNECTIONS_MAX || *count >= CONNECTIONS_PER_ADDRESS_MAX {
                        incoming.refuse();
                        continue;
                    }
                    let is_crowded = connections.len() > RETRY_ABOVE || *count > RETRY_PER_ADDRESS_ABOVE;
                    if is_crowded && !incoming.remote_address_validated() {
                        let _may_come_back = incoming.retry();
                        continue;
                    }
                    *count += 1;
                    number += 1;
                    let (open, closed) = (Arc::clone(&self.open), Arc::clone(&self.closed_bytes));
                    let service = Arc::clone(&service);
                    connections.spawn(async move {
                        serve_connection(number, incoming, service, &open, &closed).await;
                        address
                    });
                }
                Some(ended) = connections.join_next() => {
                    if let Ok(address) = ended
                        && let Some(count) = addresses.get_mut(&address)
                    {
                        *count -= 1;
                        if *count == 0 {
                            addresses.remove(&address);
                        }
                    }
                }
            }
        }
        while connections.join_next().await.is_some() {}
    }

    /// Closes every connection.
    pub fn stop(&self) {
        self.endpoint.close(VarInt::from_u32(0), b"leaving");
    }
}

async fn serve_connection(
    number: usize,
    incoming: quinn::Incoming,
    service: Arc<dyn Service>,
    open: &Mutex<BTreeMap<usize, quinn::Connection>>,
    closed: &Mutex<(u64, u64)>,
) {
    let Ok(connecting) = incoming.accept() else { return };
    let Ok(Ok(connection)) = clock::timeout(HANDSHAKE, connecting).await else { return };
    let Some(peer) = tls::peer_of(&connection) else { return };
    open.lock().insert(number, connection.clone());
    let mut requests = JoinSet::new();
    loop {
        tokio::select! {
            stream = connection.accept_bi() => {
                let Ok((send, receive)) = stream else { break };
                let service = Arc::clone(&service);
                requests.spawn(async move { serve_stream(peer, send, receive, &*service).await });
            }
            Some(_) = requests.join_next() => {}
        }
    }
    requests.shutdown().await;
    let stats = connection.stats();
    let path = stats.path;
    tracing::debug!(
        %peer, sent_packets = path.sent_packets, lost_packets = path.lost_packets, mtu = path.current_mtu,
        congestion_events = path.congestion_events, cwnd_bytes = path.cwnd, rtt = ?path.rtt,
        "a connection has ended"
    );
    let mut open = open.lock();
    let mut closed = closed.lock();
    open.remove(&number);
    closed.0 += stats.udp_tx.bytes;
    closed.1 += stats.udp_rx.bytes;
}

async fn serve_stream(peer: NodeId, send: SendStream, mut receive: RecvStream, service: &dyn Service) {
    let answer = Answer { stream: send, gone: false };
    let Ok(Ok(bytes)) = clock::timeout(REQUEST, receive.read_to_end(REQUEST_BYTES_MAX)).await else {
        answer.trouble(Trouble::Usage, "the request is too long or did not arrive").await;
        return;
    };
    match Request::decode(&bytes) {
        Ok(request) => service.handle(peer, request, answer).await,
        Err(error) => answer.trouble(Trouble::Usage, &forebay_cas::chain(&error)).await,
    }
}

/// The answering side of a stream.
#[derive(Debug)]
pub struct Answer {
    stream: SendStream,
    gone: bool,
}

impl Answer {
    /// Sends a frame. `false`: nobody takes it any more.
    pub async fn frame(&mut self, from: From, header: &FrameHeader, payload: Bytes) -> bool {
        let head = Bytes::copy_from_slice(&frame_head(from, header));
        let mut parts = [head, payload];
        self.write(&mut parts).await
    }

    /// Says that a chunk is not to be had here.
    pub async fn missing(&mut self, id: ChunkId) -> bool {
        self.item(&Item::Missing(id)).await
    }

    /// Replies, and ends the answer.
    pub async fn reply(mut self, reply: Reply) {
        self.item(&Item::Reply(reply)).await;
        self.finish();
    }

    /// Says why there is no (further) answer, and ends it.
    pub async fn trouble(mut self, trouble: Trouble, message: &str) {
        self.item(&Item::Trouble { trouble, message: message.to_owned() }).await;
        self.finish();
    }

    /// Ends the answer.
    pub fn finish(mut self) {
        let _reset_already = self.stream.finish();
    }

    /// Breaks the answer off.
    pub fn abandon(&mut self) {
        self.gone = true;
        let _reset_already = self.stream.reset(VarInt::from_u32(1));
    }

    async fn item(&mut self, item: &Item) -> bool {
        let mut bytes = Vec::new();
        item.encode(&mut bytes);
        self.write(&mut [Bytes::from(bytes)]).await
    }

    async fn write(&mut self, parts: &mut [Bytes]) -> bool {
        if !self.gone {
            let written = clock::timeout(SEND_STALL, self.stream.write_all_chunks(parts)).await;
            self.gone = !matches!(written, Ok(Ok(())));
        }
        if self.gone {
            let _reset_already = self.stream.reset(VarInt::from_u32(1));
        }
        !self.gone
    }
}

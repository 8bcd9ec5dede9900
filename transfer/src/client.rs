//! The asking side: connections to nodes, each proven by its key, and requests on them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_cas::clock::{self, Clock};
use forebay_cas::sync::Mutex;
use forebay_cas::{Classify, ErrorClass};
use forebay_transfer_proto::{Item, ItemError, ItemReader, Reply, Request, Trouble};
use quinn::{Connection, Endpoint, RecvStream};

use crate::identity::Identity;
use crate::node_addr::{Host, NodeAddr};
use crate::{endpoint, tls};

/// A connection is there by then, or the node is out of reach.
const CONNECT: Duration = Duration::from_secs(5);
/// A short answer is there by then. A gateway may have to ask its store.
const REPLY: Duration = Duration::from_secs(20);

/// Pieces of a stream, a packet each, that are taken together: 200 KiB of large packets.
const PIECES: usize = 32;

/// A node that could not be reached, or fell silent, is not tried again for so long while there are others.
const AVOID: Duration = Duration::from_secs(10);

/// A node did not give what it was asked for.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// No connection.
    #[error("node {node} cannot be reached: {detail}")]
    Unreachable {
        /// The node.
        node: String,
        /// Why.
        detail: String,
    },
    /// Another key answers there.
    #[error("the key that answers at {node} is not the one asked for")]
    WrongKey {
        /// The node as asked for.
        node: String,
    },
    /// It was connected and nothing came.
    #[error("node {node} sent nothing for {} s", silence.as_secs())]
    Silent {
        /// The node.
        node: String,
        /// For how long.
        silence: Duration,
    },
    /// The connection broke.
    #[error("the connection to node {node} broke: {detail}")]
    Broken {
        /// The node.
        node: String,
        /// Why.
        detail: String,
    },
    /// It refuses.
    #[error("node {node}: {message}")]
    Refused {
        /// The node.
        node: String,
        /// What can be done about it.
        trouble: Trouble,
        /// In its own words.
        message: String,
    },
    /// It does not keep to the protocol.
    #[error("node {node} breaks the protocol")]
    Protocol {
        /// The node.
        node: String,
        /// How.
        source: ItemError,
    },
}

impl PeerError {
    /// The same in the words of the protocol.
    #[must_use]
    pub const fn trouble(&self) -> Trouble {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Broken { .. } => Trouble::Net,
            Self::WrongKey { .. } => Trouble::Auth,
            Self::Refused { trouble, .. } => *trouble,
            Self::Protocol { .. } => Trouble::Corrupt,
        }
    }
}

impl Classify for PeerError {
    fn class(&self) -> ErrorClass {
        class_of(self.trouble())
    }
}

/// The class of error of a trouble.
#[must_use]
pub const fn class_of(trouble: Trouble) -> ErrorClass {
    match trouble {
        Trouble::Failed => ErrorClass::Failed,
        Trouble::Usage => ErrorClass::Usage,
        Trouble::NotFound => ErrorClass::NotFound,
        Trouble::Corrupt => ErrorClass::Corrupt,
        Trouble::Auth => ErrorClass::Auth,
        Trouble::Budget => ErrorClass::Budget,
        Trouble::Net | Trouble::Busy => ErrorClass::Net,
    }
}

/// Connections to a list of nodes, made when they are first needed and again when they broke.
#[derive(Debug)]
pub struct Client {
    identity: Identity,
    clock: Arc<dyn Clock>,
    endpoints: Mutex<[Option<Endpoint>; 2]>,
    peers: Vec<Peer>,
    /// Every connection there was: their counters outlive them.
    connections: Mutex<Vec<Connection>>,
    retired_bytes: Mutex<u64>,
    wasted_bytes: AtomicU64,
    window_bytes: u32,
}

#[derive(Debug)]
struct Peer {
    addr: NodeAddr,
    /// What went wrong last, and when.
    failed: Mutex<Option<(Duration, PeerError)>>,
    connection: tokio::sync::Mutex<Option<Connection>>,
}

impl Client {
    /// A client of these nodes, in their order of preference.
    #[must_use]
    pub fn new(identity: Identity, nodes: Vec<NodeAddr>, clock: Arc<dyn Clock>) -> Self {
        let peer = |addr| Peer { addr, failed: Mutex::default(), connection: tokio::sync::Mutex::new(None) };
        let peers = nodes.into_iter().map(peer).collect();
        Self {
            identity,
            clock,
            endpoints: Mutex::default(),
            peers,
            connections: Mutex::default(),
            retired_bytes: Mutex::default(),
            wasted_bytes: AtomicU64::new(0),
            window_bytes: endpoint::CLIENT_WINDOW_BYTES,
        }
    }

    /// The most bytes that a node may send ahead on one connection: what the link's tier needs.
    #[must_use]
    pub fn with_window(self, bytes: u64) -> Self {
        Self { window_bytes: u32::try_from(bytes).unwrap_or(u32::MAX >> 2), ..self }
    }

    /// Who asks.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.peers.len()
    }

    /// A node as text, for messages.
    #[must_use]
    pub fn name(&self, node: usize) -> String {
        self.peers[node].addr.to_string()
    }

    /// Address and key of a node.
    #[must_use]
    pub fn addr(&self, node: usize) -> &NodeAddr {
        &self.peers[node].addr
    }

    /// UDP payload sent and received so far, in bytes.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        let mut connections = self.connections.lock();
        let mut retired = self.retired_bytes.lock();
        connections.retain(|connection| {
            let is_open = connection.close_reason().is_none();
            if !is_open {
                *retired += wire_bytes(connection);
            }
            is_open
        });
        *retired + connections.iter().map(wire_bytes).sum::<u64>()
    }

    /// Bytes of frames that came and were of no use: broken off, damaged, or brought by another node already.
    #[must_use]
    pub fn wasted_bytes(&self) -> u64 {
        self.wasted_bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes that were of no use.
    pub(crate) fn waste(&self, bytes: u64) {
        self.wasted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sends a request to a node; its answer follows on the stream.
    ///
    /// # Errors
    /// [`PeerError`] if the node cannot be reached.
    pub async fn ask(&self, node: usize, request: &Request) -> Result<AnswerStream, PeerError> {
        let name = self.name(node);
        let connection = self.connection(node).await?;
        let asked = clock::timeout(CONNECT, async {
            let (mut send, receive) = connection.open_bi().await.map_err(|error| error.to_string())?;
            send.write_all(&request.encode()).await.map_err(|error| error.to_string())?;
            send.finish().map_err(|error| error.to_string())?;
            Ok::<_, String>(receive)
        });
        match asked.await {
            Ok(Ok(stream)) => Ok(AnswerStream { node: name, stream, reader: ItemReader::default() }),
            Ok(Err(detail)) => Err(PeerError::Broken { node: name, detail }),
            Err(_elapsed) => {
                let error = PeerError::Silent { node: name, silence: CONNECT };
                self.avoid(node, &error);
                Err(error)
            }
        }
    }

    /// Sends a request and waits for its short answer.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn reply(&self, node: usize, request: &Request) -> Result<Reply, PeerError> {
        self.reply_within(node, request, REPLY).await
    }

    /// An answer that is none to what was asked.
    pub(crate) fn odd_reply(&self, node: usize) -> PeerError {
        PeerError::Broken { node: self.name(node), detail: "it gave another answer than was asked for".to_owned() }
    }

    /// [`Self::reply`] with another deadline than that of a short answer.
    pub(crate) async fn reply_within(
        &self,
        node: usize,
        request: &Request,
        deadline: Duration,
    ) -> Result<Reply, PeerError> {
        let mut answer = self.ask(node, request).await?;
        let item = clock::timeout(deadline, answer.item()).await;
        let name = || self.name(node);
        match item {
            Err(_elapsed) => {
                let error = PeerError::Silent { node: name(), silence: deadline };
                self.avoid(node, &error);
                Err(error)
            }
            Ok(item) => match item? {
                Some(Item::Reply(reply)) => Ok(reply),
                Some(Item::Trouble { trouble, message }) => Err(PeerError::Refused { node: name(), trouble, message }),
                Some(_) | None => Err(PeerError::Broken { node: name(), detail: "it gave no answer".to_owned() }),
            },
        }
    }

    /// Does not ask a node for a while, if there are others.
    pub(crate) fn avoid(&self, node: usize, error: &PeerError) {
        *self.peers[node].failed.lock() = Some((self.clock.elapsed(), error.clone()));
    }

    async fn connection(&self, node: usize) -> Result<Connection, PeerError> {
        let peer = &self.peers[node];
        if self.peers.len() > 1
            && let Some((at, error)) = &*peer.failed.lock()
            && self.clock.elapsed() < *at + AVOID
        {
            return Err(error.clone());
        }
        let mut slot = peer.connection.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| connection.close_reason().is_none()) {
            return Ok(connection.clone());
        }
        let connection = match self.connect(&peer.addr).await {
            Ok(connection) => connection,
            Err(error) => {
                self.avoid(node, &error);
                return Err(error);
            }
        };
        self.connections.lock().push(connection.clone());
        *slot = Some(connection.clone());
        Ok(connection)
    }

    async fn connect(&self, addr: &NodeAddr) -> Result<Connection, PeerError> {
        let unreachable = |detail: String| PeerError::Unreachable { node: addr.to_string(), detail };
        let tls = tls::client_config(&self.identity, addr.id).map_err(|error| unreachable(error.to_string()))?;
        let config = endpoint::client_config(tls, self.window_bytes);
        let mut last = unreachable("its name has no address".to_owned());
        for place in places(addr).await.map_err(|error| unreachable(error.to_string()))? {
            let endpoint = self.endpoint(place.is_ipv6()).map_err(|error| unreachable(error.to_string()))?;
            let connecting = endpoint.connect_with(config.clone(), place, "forebay.invalid");
            let connecting = connecting.map_err(|error| unreachable(error.to_string()))?;
            last = match clock::timeout(CONNECT, connecting).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) if is_wrong_key(&error) => PeerError::WrongKey { node: addr.to_string() },
                Ok(Err(error)) => unreachable(error.to_string()),
                Err(_elapsed) => unreachable(format!("no answer within {} s", CONNECT.as_secs())),
            };
        }
        Err(last)
    }

    fn endpoint(&self, v6: bool) -> io::Result<Endpoint> {
        let mut endpoints = self.endpoints.lock();
        let slot = &mut endpoints[usize::from(v6)];
        if let Some(endpoint) = slot {
            return Ok(endpoint.clone());
        }
        let any = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        let endpoint = endpoint::client(SocketAddr::new(any, 0))?;
        *slot = Some(endpoint.clone());
        Ok(endpoint)
    }

    /// Says goodbye, so that nodes need not wait for silence.
    pub async fn close(&self) {
        let endpoints = self.endpoints.lock().clone();
        for endpoint in endpoints.iter().flatten() {
            endpoint.close(quinn::VarInt::from_u32(0), b"done");
            let _said = clock::timeout(Duration::from_millis(200), endpoint.wait_idle()).await;
        }
    }
}

/// The answer to a request, as it comes.
#[derive(Debug)]
pub struct AnswerStream {
    node: String,
    stream: RecvStream,
    reader: ItemReader,
}

impl AnswerStream {
    /// The next item; `None` at the end. Waits as long as it takes: who calls has the deadline.
    ///
    /// # Errors
    /// [`PeerError`] if the stream breaks or makes no sense.
    pub async fn item(&mut self) -> Result<Option<Item>, PeerError> {
        loop {
            match self.next_part().await? {
                Part::Item(item) => return Ok(Some(item)),
                Part::Bytes => {}
                Part::End => return Ok(None),
            }
        }
    }

    /// The next item, or news that some bytes came.
    pub(crate) async fn next_part(&mut self) -> Result<Part, PeerError> {
        let protocol = |source| PeerError::Protocol { node: self.node.clone(), source };
        if let Some(item) = self.reader.next_item().map_err(protocol)? {
            return Ok(Part::Item(item));
        }
        let broken = |detail: String| PeerError::Broken { node: self.node.clone(), detail };
        let mut pieces = [const { Bytes::new() }; PIECES];
        match self.stream.read_chunks(&mut pieces).await {
            Ok(Some(pieces_read)) => {
                for piece in pieces.into_iter().take(pieces_read) {
                    self.reader.feed(piece);
                }
                Ok(Part::Bytes)
            }
            Ok(None) if self.reader.pending() == 0 => Ok(Part::End),
            Ok(None) => Err(broken("the answer ends in the middle".to_owned())),
            Err(error) => Err(broken(error.to_string())),
        }
    }

    /// Bytes of an item that has not come whole.
    pub(crate) fn pending(&self) -> usize {
        self.reader.pending()
    }
}

/// What [`AnswerStream::next_part`] found.
#[derive(Debug)]
pub(crate) enum Part {
    /// A whole item.
    Item(Item),
    /// Some bytes of one.
    Bytes,
    /// The end.
    End,
}

fn wire_bytes(connection: &Connection) -> u64 {
    let stats = connection.stats();
    stats.udp_tx.bytes + stats.udp_rx.bytes
}

/// A verifier that refuses ends the handshake with a crypto error of this side.
fn is_wrong_key(error: &quinn::ConnectionError) -> bool {
    matches!(error, quinn::ConnectionError::TransportError(error) if (0x100..0x200).contains(&u64::from(error.code)))
}

async fn places(addr: &NodeAddr) -> io::Result<Vec<SocketAddr>> {
    let port = addr.port.get();
    Ok(match &addr.host {
        Host::V4(number) => vec![SocketAddr::new(IpAddr::V4(*number), port)],
        Host::V6(number) => vec![SocketAddr::new(IpAddr::V6(*number), port)],
        Host::Name(name) => {
            let found = clock::timeout(CONNECT, tokio::net::lookup_host((&**name, port))).await;
            found.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??.collect()
        }
    })
}

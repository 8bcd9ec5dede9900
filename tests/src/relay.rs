//! A UDP relay in front of a node: what passes, and which way, can be switched while traffic runs.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a socket is waited for before the relay looks whether it is to end.
const TURN: Duration = Duration::from_millis(50);
/// Longest datagram.
const DATAGRAM_BYTES: usize = 65_536;

/// A direction through a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From clients to the node.
    ToNode,
    /// From the node to clients.
    ToClient,
}

/// One relay; it ends when dropped. Without orders it passes everything.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    node: SocketAddr,
    to_node: Gauge,
    to_client: Gauge,
    ends: AtomicBool,
}

/// One direction: what has passed, and what may.
#[derive(Debug)]
struct Gauge {
    passed_bytes: AtomicU64,
    limit_bytes: AtomicU64,
}

impl Gauge {
    const fn new() -> Self {
        Self { passed_bytes: AtomicU64::new(0), limit_bytes: AtomicU64::new(u64::MAX) }
    }

    /// Whether a datagram may pass; counts it if so.
    fn passes(&self, len: usize) -> bool {
        let passes = self.passed_bytes.load(Ordering::Relaxed) < self.limit_bytes.load(Ordering::Relaxed);
        if passes {
            self.passed_bytes.fetch_add(len as u64, Ordering::Relaxed);
        }
        passes
    }
}

impl Relay {
    /// A relay on a free port in front of `node` (an IPv4 address).
    pub fn start(node: &str) -> Self {
        let node = node.parse().expect("a node's address is a number and a port");
        let socket = bind();
        let address = socket.local_addr().expect("a bound socket has an address");
        let shared =
            Arc::new(Shared { node, to_node: Gauge::new(), to_client: Gauge::new(), ends: AtomicBool::new(false) });
        let carried = Arc::clone(&shared);
        let thread = Some(thread::spawn(move || carry(&socket, &carried)));
        Self { address, shared, thread }
    }

    /// Where clients find it.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Nothing passes this way once so many bytes in all have.
    pub fn silence_after(&self, way: Way, bytes: u64) {
        self.gauge(way).limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that have passed this way.
    pub fn passed_bytes(&self, way: Way) -> u64 {
        self.gauge(way).passed_bytes.load(Ordering::Relaxed)
    }

    fn gauge(&self, way: Way) -> &Gauge {
        match way {
            Way::ToNode => &self.shared.to_node,
            Way::ToClient => &self.shared.to_client,
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Takes datagrams of clients; each client gets a socket of its own towards the node, and a thread for the way back.
fn carry(socket: &UdpSocket, shared: &Arc<Shared>) {
    let mut clients: BTreeMap<SocketAddr, Arc<UdpSocket>> = BTreeMap::new();
    let mut backs = Vec::new();
    let mut datagram = vec![0; DATAGRAM_BYTES];
    while !shared.ends.load(Ordering::Relaxed) {
        let Some((len, client)) = receive(socket, &mut datagram) else { continue };
        let out = clients.entry(client).or_insert_with(|| {
            let out = Arc::new(bind());
            let (front, own) = (socket.try_clone().expect("a socket can be shared"), Arc::clone(&out));
            let shared = Arc::clone(shared);
            backs.push(thread::spawn(move || carry_back(&own, &front, client, &shared)));
            out
        });
        if shared.to_node.passes(len) {
            out.send_to(&datagram[..len], shared.node).ok();
        }
    }
    backs.into_iter().for_each(|back| drop(back.join()));
}

fn carry_back(from: &UdpSocket, front: &UdpSocket, client: SocketAddr, shared: &Shared) {
    let mut datagram = vec![0; DATAGRAM_BYTES];
    while !shared.ends.load(Ordering::Relaxed) {
        if let Some((len, _)) = receive(from, &mut datagram)
            && shared.to_client.passes(len)
        {
            front.send_to(&datagram[..len], client).ok();
        }
    }
}

fn bind() -> UdpSocket {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("the loopback interface has a free port");
    socket.set_read_timeout(Some(TURN)).expect("a socket can have a time limit");
    socket
}

/// `None`: nothing came in time, or the other side's port is closed for now.
fn receive(socket: &UdpSocket, datagram: &mut [u8]) -> Option<(usize, SocketAddr)> {
    let received: io::Result<_> = socket.recv_from(datagram);
    received.ok()
}

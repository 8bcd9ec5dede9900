//! UDP sockets and QUIC settings.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::{CryptoError, HmacKey};
use quinn::{Endpoint, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt};
use quinn_proto::HashedConnectionIdGenerator;
use rustix::net::sockopt;

use crate::identity::Identity;

/// Largest UDP payload looked for. Above about 6,550 bytes a batch of ten segments passes 64 KiB and sending collapses;
/// 6,500 moves 2.4 times as much as 1,452 where the path carries it (measured on loopback and between namespaces).
const MTU: u16 = 6500;
/// Wanted for receiving and sending; the system's default of 208 KiB loses packets at 1 GB/s.
const SOCKET_BUFFER_BYTES: usize = 8 << 20;
/// A peer of which nothing is heard for so long is gone.
const IDLE: Duration = Duration::from_secs(15);
/// Keeps a path open, and finds out that it is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(4);
/// Streams a client may have open; each is a run.
const STREAMS_MAX: u32 = 64;
/// A client's window for one stream: a run, and a chunk of the largest profile over it.
const RUN_WINDOW_BYTES: u32 = 3 << 20;
/// A client's window for a connection, unless its tier says another.
pub(crate) const CLIENT_WINDOW_BYTES: u32 = 32 << 20;
/// A node's window for one stream: a request.
const REQUEST_WINDOW_BYTES: u32 = 128 << 10;
/// Bytes a node holds for one connection until they are acknowledged.
const SEND_WINDOW_BYTES: u64 = 8 << 20;

/// An endpoint that serves. Must be called on the runtime that is to drive it.
pub(crate) fn server(
    identity: &Identity,
    listen: SocketAddr,
    tls: quinn::crypto::rustls::QuicServerConfig,
) -> io::Result<Endpoint> {
    let mut transport = transport();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_MAX))
        .stream_receive_window(VarInt::from_u32(REQUEST_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(STREAMS_MAX * REQUEST_WINDOW_BYTES));
    let mut config = ServerConfig::with_crypto(Arc::new(tls));
    config
        .transport_config(Arc::new(transport))
        .migration(false)
        .max_incoming(1024)
        .incoming_buffer_size(64 << 10)
        .incoming_buffer_size_total(8 << 20);
    // Known to the next process of this node too: it can tell clients of the last one that their connection is gone.
    let mut endpoint = EndpointConfig::new(Arc::new(ResetKey(identity.derive("forebay quic stateless reset v0"))));
    let mut cid_key = [0; 8];
    cid_key.copy_from_slice(&identity.derive("forebay quic connection ids v0")[..8]);
    let cid_key = u64::from_le_bytes(cid_key);
    endpoint.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(cid_key)));
    new(listen, endpoint, Some(config))
}

/// An endpoint that asks.
pub(crate) fn client(bind: SocketAddr) -> io::Result<Endpoint> {
    new(bind, EndpointConfig::default(), None)
}

/// Settings of a connection to a node.
pub(crate) fn client_config(tls: quinn::crypto::rustls::QuicClientConfig, window_bytes: u32) -> quinn::ClientConfig {
    let mut transport = transport();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(RUN_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(window_bytes))
        .keep_alive_interval(Some(KEEP_ALIVE));
    let mut config = quinn::ClientConfig::new(Arc::new(tls));
    config.transport_config(Arc::new(transport));
    config
}

fn transport() -> TransportConfig {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(MTU);
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(Some(IdleTimeout::try_from(IDLE).expect("15 s is a timeout")))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .send_window(SEND_WINDOW_BYTES)
        // One run after the other: what has come whole is verified while it is still in the processor's cache.
        .send_fairness(false)
        .mtu_discovery_config(Some(discovery));
    transport
}

fn new(bind: SocketAddr, mut config: EndpointConfig, server: Option<ServerConfig>) -> io::Result<Endpoint> {
    let socket = UdpSocket::bind(bind)?;
    enlarge_buffers(&socket);
    config.max_udp_payload_size(MTU).map_err(io::Error::other)?;
    Endpoint::new(config, server, socket, Arc::new(quinn::TokioRuntime))
}

/// As large as the system lets us; smaller ones work, and lose more.
fn enlarge_buffers(socket: &UdpSocket) {
    if sockopt::set_socket_recv_buffer_size_force(socket, SOCKET_BUFFER_BYTES).is_err() {
        let _as_it_is = sockopt::set_socket_recv_buffer_size(socket, SOCKET_BUFFER_BYTES);
    }
    let _as_it_is = sockopt::set_socket_send_buffer_size(socket, SOCKET_BUFFER_BYTES);
}

/// Makes the tokens by which a client knows that its connection is gone.
struct ResetKey([u8; 32]);

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        signature_out.copy_from_slice(blake3::keyed_hash(&self.0, data).as_bytes());
    }

    fn signature_len(&self) -> usize {
        blake3::OUT_LEN
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        // Compared in constant time.
        let expected = blake3::keyed_hash(&self.0, data);
        let given = <[u8; blake3::OUT_LEN]>::try_from(signature).map_err(|_other_length| CryptoError)?;
        if expected == blake3::Hash::from_bytes(given) { Ok(()) } else { Err(CryptoError) }
    }
}

//! Bulk bytes over quinn on the loopback interface, and nothing else: what a transfer through nodes is compared with.
//!
//! Two threads, each with a runtime and an endpoint of its own, one connection, AES-128-GCM. The server sends one buffer
//! again and again without copying it, the client throws away what it reads. Prints one JSON line.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, Endpoint, EndpointConfig, TransportConfig, VarInt};
use rustix::time::{ClockId, clock_gettime};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::runtime::Runtime;

type Failure = Box<dyn Error + Send + Sync>;

const WINDOW_BYTES: u32 = 16 << 20;
const SOCKET_BUFFER_BYTES: usize = 8 << 20;
const BUFFER_BYTES: usize = 1 << 20;
/// A key that proves nothing: the loop measures bytes, not trust.
const SECRET: [u8; 32] = [7; 32];
/// What stands before the 32 bytes of an Ed25519 secret in PKCS #8, and of a public key in a SubjectPublicKeyInfo.
const PKCS8_PREFIX: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

/// One measurement.
#[derive(Debug, Clone, Copy, Parser)]
struct Args {
    /// Bytes in all.
    #[arg(long, default_value_t = 1 << 30)]
    bytes: u64,
    /// UDP payload of a packet in bytes, from the first on.
    #[arg(long, default_value_t = 6500)]
    mtu: u16,
    /// Streams at a time.
    #[arg(long, default_value_t = 1)]
    streams: u64,
    /// Bytes of a stream; the next one is opened when it ends. 0: all bytes over the first streams.
    #[arg(long, default_value_t = 0)]
    run_bytes: u64,
}

fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let (address_in, address) = std::sync::mpsc::channel();
    let server = std::thread::Builder::new().name("server".to_owned()).spawn(move || serve(args, &address_in))?;
    let result = ask(args, address.recv()?)?;
    let sent_in = server.join().map_err(|_panic| "the server broke off")??;
    let seconds = result.wall.as_secs_f64();
    #[expect(clippy::print_stdout, reason = "the result")]
    {
        println!(
            "{}",
            serde_json::json!({
                "mtu": args.mtu, "streams": args.streams, "run_bytes": args.run_bytes, "bytes": result.bytes,
                "seconds": seconds, "client_cpu_seconds": result.cpu.as_secs_f64(),
                "server_cpu_seconds": sent_in.as_secs_f64(),
            })
        );
    }
    Ok(())
}

struct Asked {
    bytes: u64,
    wall: Duration,
    cpu: Duration,
}

fn now(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Serves one connection; returns the processor's time of this thread while it was open.
fn serve(args: Args, address: &std::sync::mpsc::Sender<SocketAddr>) -> Result<Duration, Failure> {
    runtime()?.block_on(async {
        let mut tls = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::server::AlwaysResolvesServerRawPublicKeys::new(key()?)));
        tls.alpn_protocols = vec![b"loop".to_vec()];
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
        config.transport_config(transport(args));
        let endpoint = endpoint(args, Some(config))?;
        address.send(endpoint.local_addr()?)?;
        let connection = endpoint.accept().await.ok_or("no connection")?.await?;
        let start = now(ClockId::ThreadCPUTime);
        let buffer = Bytes::from(vec![0x5a; BUFFER_BYTES]);
        let mut streams = tokio::task::JoinSet::new();
        while let Ok((send, receive)) = connection.accept_bi().await {
            streams.spawn(send_stream(buffer.clone(), send, receive));
        }
        Ok(now(ClockId::ThreadCPUTime) - start)
    })
}

async fn send_stream(
    buffer: Bytes,
    mut send: quinn::SendStream,
    mut receive: quinn::RecvStream,
) -> Result<(), Failure> {
    let mut wanted = [0; 8];
    receive.read_exact(&mut wanted).await?;
    let mut left = u64::from_le_bytes(wanted);
    while left > 0 {
        let len = usize::try_from(left).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
        send.write_chunk(buffer.slice(..len)).await?;
        left -= len as u64;
    }
    send.finish()?;
    Ok(())
}

fn ask(args: Args, address: SocketAddr) -> Result<Asked, Failure> {
    runtime()?.block_on(async {
        let mut tls = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyKey(provider())))
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"loop".to_vec()];
        let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
        config.transport_config(transport(args));
        let endpoint = endpoint(args, None)?;
        let connection = endpoint.connect_with(config, address, "loop.invalid")?.await?;
        let (wall, cpu) = (now(ClockId::Monotonic), now(ClockId::ThreadCPUTime));
        let mut lanes = tokio::task::JoinSet::new();
        for _ in 0..args.streams {
            lanes.spawn(read_lane(connection.clone(), args.bytes / args.streams, args.run_bytes));
        }
        let mut bytes = 0;
        while let Some(lane) = lanes.join_next().await {
            bytes += lane??;
        }
        let asked = Asked { bytes, wall: now(ClockId::Monotonic) - wall, cpu: now(ClockId::ThreadCPUTime) - cpu };
        connection.close(VarInt::from_u32(0), b"done");
        endpoint.wait_idle().await;
        Ok(asked)
    })
}

/// Reads so many bytes over one stream at a time.
async fn read_lane(connection: Connection, bytes: u64, run_bytes: u64) -> Result<u64, Failure> {
    let mut read = 0;
    while read < bytes {
        let wanted = if run_bytes == 0 { bytes } else { run_bytes.min(bytes - read) };
        let (mut send, mut receive) = connection.open_bi().await?;
        send.write_all(&wanted.to_le_bytes()).await?;
        send.finish()?;
        while let Some(chunk) = receive.read_chunk(usize::MAX, true).await? {
            read += chunk.bytes.len() as u64;
        }
    }
    Ok(read)
}

fn endpoint(args: Args, server: Option<quinn::ServerConfig>) -> Result<Endpoint, Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    // Larger than the system's limit needs a privilege; without it the figure is that of smaller buffers.
    for set in [
        rustix::net::sockopt::set_socket_recv_buffer_size_force,
        rustix::net::sockopt::set_socket_recv_buffer_size,
        rustix::net::sockopt::set_socket_send_buffer_size,
    ] {
        let _as_it_is = set(&socket, SOCKET_BUFFER_BYTES);
    }
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(args.mtu)?;
    Ok(Endpoint::new(config, server, socket, Arc::new(quinn::TokioRuntime))?)
}

fn transport(args: Args) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .initial_mtu(args.mtu)
        .min_mtu(args.mtu)
        .mtu_discovery_config(None)
        .send_window(WINDOW_BYTES.into())
        .stream_receive_window(VarInt::from_u32(WINDOW_BYTES))
        .receive_window(VarInt::from_u32(WINDOW_BYTES));
    Arc::new(transport)
}

fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn key() -> Result<Arc<CertifiedKey>, Failure> {
    let secret = PrivatePkcs8KeyDer::from([&PKCS8_PREFIX[..], &SECRET].concat());
    let public = ed25519_dalek::SigningKey::from_bytes(&SECRET).verifying_key();
    let spki = [&SPKI_PREFIX[..], public.as_bytes()].concat();
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki)], ring::sign::any_eddsa_type(&secret)?)))
}

#[derive(Debug)]
struct AnyKey(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 alone".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

//! A peer that speaks QUIC with a key of its own and says whatever a test wants: nothing here keeps to the protocol by
//! itself.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ed25519_dalek::{Signer, SigningKey};
use forebay_format::RepositoryId;
use forebay_transfer_proto::{ALPN, Claim, Item, ItemReader, Purpose, Reply, Request, Signed, Statement};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, Endpoint, IdleTimeout, RecvStream, SendStream, TransportConfig, VarInt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// What stands before the 32 bytes of an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410 §4).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// What stands before the 32 bytes of an Ed25519 secret in PKCS #8 (RFC 8410 §7).
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// A node has answered by then, or hangs.
const ANSWER: Duration = Duration::from_secs(45);

/// A key pair of the test.
#[derive(Clone)]
pub struct Key(SigningKey);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.hex()).finish()
    }
}

impl Key {
    /// The key pair of this number.
    pub fn new(seed: u8) -> Self {
        Self(SigningKey::from_bytes(&[seed; 32]))
    }

    /// The public key.
    pub fn id(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    /// The public key as node ids are written.
    pub fn hex(&self) -> String {
        hex::encode(self.id())
    }

    /// Signs a body.
    pub fn sign(&self, purpose: Purpose, body: Vec<u8>) -> Signed {
        let signature = self.0.sign(&Signed::message(purpose, &body)).to_bytes();
        Signed { key: self.id(), body, signature }
    }

    /// A claim for the tenant `stranger`, good until so many seconds from now.
    pub fn claim(&self, repository: Option<RepositoryId>, seconds_left: i64) -> Signed {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let claim = Claim {
            repository,
            tenant: "stranger".to_owned(),
            job: String::new(),
            dataset: String::new(),
            class: "standard".to_owned(),
            tier: "10g".to_owned(),
            not_after: now.saturating_add_signed(seconds_left),
        };
        self.sign(Purpose::Claim, claim.encode())
    }

    fn certified(&self) -> Arc<CertifiedKey> {
        let pkcs8 = [&PKCS8_PREFIX[..], self.0.as_bytes()].concat();
        let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8)).expect("an Ed25519 key is one");
        let spki = [&SPKI_PREFIX[..], &self.id()].concat();
        Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki)], key))
    }
}

/// How a stranger introduces itself.
#[derive(Debug, Clone)]
pub struct Hello {
    /// The protocol it names.
    pub alpn: Vec<u8>,
    /// The key it proves; `None`: it has none.
    pub key: Option<Key>,
    /// Bytes that it lets a node send on a stream before it has read any.
    pub window: u32,
}

impl Hello {
    /// As an honest client does it.
    pub fn new(key: &Key) -> Self {
        Self { alpn: ALPN.to_vec(), key: Some(key.clone()), window: 3 << 20 }
    }
}

/// A connection to a node. To be used on a tokio runtime.
#[derive(Debug)]
pub struct Stranger {
    /// The connection, to be misused at will.
    pub connection: Connection,
    /// Keeps the socket.
    _endpoint: Endpoint,
}

impl Stranger {
    /// Connects to the address of a node, whoever answers there.
    ///
    /// # Errors
    /// In the words of quinn.
    pub async fn connect(address: &str, hello: &Hello) -> Result<Self, String> {
        let endpoint = Endpoint::client(SocketAddr::from(([0, 0, 0, 0], 0))).map_err(|error| error.to_string())?;
        let address = address.parse().expect("a node's address is a number and a port");
        let connecting = endpoint.connect_with(client_config(hello), address, "forebay.invalid");
        let connecting = connecting.map_err(|error| error.to_string())?;
        let connection = deadline(connecting).await?.map_err(|error| error.to_string())?;
        Ok(Self { connection, _endpoint: endpoint })
    }

    /// Opens a stream and writes to it; finished or left open.
    ///
    /// # Errors
    /// In the words of quinn.
    pub async fn send(&self, bytes: &[u8], finish: bool) -> Result<(SendStream, RecvStream), String> {
        let (mut send, receive) = deadline(self.connection.open_bi()).await?.map_err(|error| error.to_string())?;
        deadline(send.write_all(bytes)).await?.map_err(|error| error.to_string())?;
        if finish {
            send.finish().map_err(|error| error.to_string())?;
        }
        Ok((send, receive))
    }

    /// Everything a node answers to these bytes.
    ///
    /// # Errors
    /// In the words of quinn or of the protocol, or that the answer did not end in time.
    pub async fn ask(&self, bytes: &[u8]) -> Result<Vec<Item>, String> {
        let (_send, receive) = self.send(bytes, true).await?;
        items(receive).await
    }

    /// What the node's gateway says about a ref.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn resolve(&self, key: &Key, name: &str) -> Result<Statement, String> {
        let name = name.parse().map_err(|error| format!("{error}"))?;
        let request = Request::Resolve { claim: key.claim(None, 600), name, version: String::new(), step: false };
        match self.ask(&request.encode()).await?.as_slice() {
            [Item::Reply(Reply::Resolved(signed))] => {
                Statement::decode(&signed.body).map_err(|error| error.to_string())
            }
            other => Err(format!("{other:?}")),
        }
    }
}

/// Reads items to the end of a stream.
///
/// # Errors
/// See [`Stranger::ask`].
pub(crate) async fn items(mut receive: RecvStream) -> Result<Vec<Item>, String> {
    let (mut reader, mut items) = (ItemReader::default(), Vec::new());
    loop {
        while let Some(item) = reader.next_item().map_err(|error| error.to_string())? {
            items.push(item);
        }
        match deadline(receive.read_chunk(usize::MAX, true)).await?.map_err(|error| error.to_string())? {
            Some(chunk) => reader.feed(chunk.bytes),
            None => return Ok(items),
        }
    }
}

async fn deadline<T>(work: impl Future<Output = T>) -> Result<T, String> {
    tokio::time::timeout(ANSWER, work).await.map_err(|_elapsed| format!("nothing within {ANSWER:?}"))
}

fn transport(window: u32) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(window))
        .max_concurrent_bidi_streams(VarInt::from_u32(128))
        .keep_alive_interval(Some(Duration::from_secs(2)))
        .max_idle_timeout(Some(IdleTimeout::try_from(Duration::from_secs(30)).expect("30 s is a timeout")));
    Arc::new(transport)
}

/// TLS of a client that takes any node.
fn client_config(hello: &Hello) -> quinn::ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .expect("ring speaks TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody::new(&provider)));
    let mut tls = match &hello.key {
        Some(key) => builder.with_client_cert_resolver(Arc::new(
            rustls::client::AlwaysResolvesClientRawPublicKeys::new(key.certified()),
        )),
        None => builder.with_no_client_auth(),
    };
    tls.alpn_protocols = vec![hello.alpn.clone()];
    let tls = QuicClientConfig::try_from(tls).expect("ring has what QUIC starts with");
    let mut config = quinn::ClientConfig::new(Arc::new(tls));
    config.transport_config(transport(hello.window));
    config
}

/// TLS of a node that takes any client.
pub(crate) fn server_config(key: &Key) -> quinn::ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .expect("ring speaks TLS 1.3")
        .with_client_cert_verifier(Arc::new(Anybody::new(&provider)))
        .with_cert_resolver(Arc::new(rustls::server::AlwaysResolvesServerRawPublicKeys::new(key.certified())));
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let tls = QuicServerConfig::try_from(tls).expect("ring has what QUIC starts with");
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(transport(1 << 20));
    config
}

/// Takes any key whose owner proves it.
#[derive(Debug)]
struct Anybody(WebPkiSupportedAlgorithms);

impl Anybody {
    fn new(provider: &CryptoProvider) -> Self {
        Self(provider.signature_verification_algorithms)
    }

    fn prove(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature_with_raw_key(message, &SubjectPublicKeyInfoDer::from(key.as_ref()), dss, &self.0)
    }
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 was not offered".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.prove(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 was not offered".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.prove(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

//! A running node: its socket, its service, its HTTP, its housekeeping.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_cas::clock::{self, Clock};
use forebay_cas::task::RuntimeThread;
use forebay_transfer::{Identity, NodeId, Server, Service};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::counters;
use crate::edge::Edge;
use crate::gateway::Gateway;
use crate::http::{NodeStatus, StatusSource, router};
use crate::manage::{Leaving, Managed};
use crate::role::Role;
use crate::store::Store;

/// The ledger is written down so often: what a crash may leave uncounted.
const FLUSH_EVERY: Duration = Duration::from_secs(10);

/// What a node is told about itself.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// UDP address to serve on; port 0 picks one.
    pub listen: SocketAddr,
    /// TCP address for HTTP; port 0 picks one.
    pub http: SocketAddr,
    /// The site it stands at.
    pub site: Option<String>,
    /// The region of the site.
    pub region: Option<String>,
    /// Who rents the site out.
    pub provider: Option<String>,
    /// The most bytes a second that its duty sends to all clients together, as far as it was told.
    pub rate_bytes_per_s: Option<u64>,
}

/// What a node does.
#[derive(Debug)]
pub enum Duty {
    /// Answers from a cache in front of a gateway.
    Edge(Edge, Arc<Store>),
    /// Answers from the origin.
    Gateway(Gateway),
}

impl Duty {
    const fn role(&self) -> Role {
        match self {
            Self::Edge(..) => Role::Edge,
            Self::Gateway(_) => Role::Gateway,
        }
    }

    fn service(&self) -> Arc<dyn Service> {
        match self {
            Self::Edge(edge, _) => Arc::new(edge.clone()),
            Self::Gateway(gateway) => Arc::new(gateway.clone()),
        }
    }
}

/// A node cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The system gives no threads or timers.
    #[error("the node cannot be started")]
    System(#[from] io::Error),
}

impl forebay_cas::Classify for StartError {
    fn class(&self) -> forebay_cas::ErrorClass {
        match self {
            Self::Listen { .. } => forebay_cas::ErrorClass::Usage,
            Self::System(_) => forebay_cas::ErrorClass::Failed,
        }
    }
}

/// A node that serves until [`Node::stop`].
#[derive(Debug)]
pub struct Node {
    facts: Arc<Facts>,
    network: RuntimeThread,
    stop_http: Option<oneshot::Sender<()>>,
    stopped: oneshot::Receiver<()>,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where it answers HTTP.
    pub http: SocketAddr,
}

#[derive(Debug)]
struct Facts {
    node_id: NodeId,
    config: NodeConfig,
    duty: Duty,
    server: Server,
    is_ready: AtomicBool,
    leaving: Arc<Leaving>,
    clock: Arc<dyn Clock>,
    started: Duration,
    metrics: Option<PrometheusHandle>,
}

impl Node {
    /// Starts to serve. The network gets a thread of its own; HTTP and housekeeping run on `runtime`.
    ///
    /// # Errors
    /// [`StartError`] if an address is taken.
    pub fn start(
        identity: &Identity,
        config: NodeConfig,
        duty: Duty,
        network: RuntimeThread,
        runtime: &Handle,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let listen = |source| StartError::Listen { address: config.listen, source };
        let server = {
            let _driven_by = network.handle().enter();
            Server::bind(identity, config.listen).map_err(listen)?
        };
        let bound = server.local_addr().map_err(listen)?;
        let at = |source| StartError::Listen { address: config.http, source };
        let listener = TcpListener::bind(config.http).map_err(at)?;
        let http = listener.local_addr().map_err(at)?;
        listener.set_nonblocking(true).map_err(at)?;
        // A second node in one process has no metrics of its own.
        let metrics = PrometheusBuilder::new().install_recorder().ok();
        let started = clock.elapsed();
        let facts = Arc::new(Facts {
            node_id: identity.node_id(),
            config,
            duty,
            server,
            is_ready: AtomicBool::new(true),
            leaving: Arc::new(Leaving::new(Arc::clone(&clock))),
            clock,
            started,
            metrics,
        });
        let (set_stopped, stopped) = oneshot::channel();
        let serving = Arc::clone(&facts);
        let service = Managed {
            own: facts.node_id,
            duty: facts.duty.service(),
            status: Arc::<Facts>::clone(&facts),
            leaving: Arc::clone(&facts.leaving),
        };
        network.handle().spawn(async move {
            serving.server.run(Arc::new(service)).await;
            let _nobody_waits = set_stopped.send(());
        });
        let (stop_http, http_stopped) = oneshot::channel::<()>();
        let app = router(Arc::<Facts>::clone(&facts));
        runtime.spawn(async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            let stop = async { drop(http_stopped.await) };
            let _ended = axum::serve(listener, app).with_graceful_shutdown(stop).await;
        });
        runtime.spawn(keep_house(Arc::clone(&facts), runtime.clone()));
        Ok(Self { facts, network, stop_http: Some(stop_http), stopped, listen: bound, http })
    }

    /// Takes no more work; what has begun is ended. [`Self::has_left`] says when that is done, or the time is up.
    pub fn leave(&self, within: Duration) {
        self.facts.leaving.begin(within);
    }

    /// Whether it was told to leave, here or by its operator, and has nothing more to do.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.facts.leaving.is_over()
    }

    /// Takes no more work, lets go of every connection, writes down what was counted. Blocking.
    pub fn stop(mut self, runtime: &Handle) {
        self.facts.is_ready.store(false, Ordering::Relaxed);
        self.facts.server.stop();
        let served = runtime.block_on(clock::timeout(Duration::from_secs(5), &mut self.stopped));
        if served.is_err() {
            tracing::warn!("some answers were still on their way");
        }
        if let Some(stop) = self.stop_http.take() {
            let _ended_already = stop.send(());
        }
        self.facts.flush(true);
        drop(self.network);
    }
}

impl Facts {
    fn flush(&self, is_last: bool) {
        if let Duty::Gateway(gateway) = &self.duty {
            gateway.flush(self.server.wire_bytes().0, is_last);
        }
    }
}

/// Writes the ledger down now and then, as long as the node lives.
async fn keep_house(facts: Arc<Facts>, runtime: Handle) {
    while facts.is_ready.load(Ordering::Relaxed) {
        clock::sleep(FLUSH_EVERY).await;
        let facts = Arc::clone(&facts);
        if facts.is_ready.load(Ordering::Relaxed) {
            let _panic_was_shown = runtime.spawn_blocking(move || facts.flush(false)).await;
        }
    }
}

impl StatusSource for Facts {
    fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed) && !self.leaving.has_begun()
    }

    fn may_ask(&self, key: NodeId) -> bool {
        match &self.duty {
            Duty::Gateway(gateway) => gateway.knows_client(key),
            Duty::Edge(..) => true,
        }
    }

    fn status(&self) -> NodeStatus {
        let (wire_sent_bytes, wire_received_bytes) = self.server.wire_bytes();
        NodeStatus {
            role: self.duty.role(),
            version: env!("CARGO_PKG_VERSION"),
            draining: self.leaving.has_begun(),
            node_id: self.node_id,
            site: self.config.site.clone(),
            region: self.config.region.clone(),
            provider: self.config.provider.clone(),
            uptime_s: self.clock.elapsed().saturating_sub(self.started).as_secs(),
            connections: self.server.connections() as u64,
            wire_sent_bytes,
            wire_received_bytes,
            rate_bytes_per_s: self.config.rate_bytes_per_s,
            repository: match &self.duty {
                Duty::Gateway(gateway) => Some(gateway.repository_id().to_hex()),
                Duty::Edge(..) => None,
            },
            origin_read_bytes: match &self.duty {
                Duty::Gateway(gateway) => Some(gateway.origin_read_bytes()),
                Duty::Edge(..) => None,
            },
            cache: match &self.duty {
                Duty::Edge(_, store) => Some(store.stats().into()),
                Duty::Gateway(_) => None,
            },
        }
    }

    fn metrics(&self) -> String {
        counters::network(self.server.connections(), self.server.wire_bytes());
        match &self.duty {
            Duty::Edge(_, store) => counters::store(&store.stats()),
            Duty::Gateway(gateway) => counters::origin(gateway.origin_read_bytes()),
        }
        self.metrics.as_ref().map_or_else(String::new, PrometheusHandle::render)
    }
}

//! Versions and their chunks, from the repository or through nodes.

use std::sync::Arc;

use forebay_cas::index::LocalIndex;
use forebay_cas::{ChunkReader, ErrorClass, Notices, Warning};
use forebay_format::{RefName, RefVersion, RepositoryId, StepSpec, VersionSpec};
use forebay_transfer::authority::{seconds, signer};
use forebay_transfer::client::Client;
use forebay_transfer::source::ask_all;
use forebay_transfer::{ClaimMaker, Identity, IdentityError, NodeAddr, NodeSource};
use forebay_transfer_proto::request::Reservation;
use forebay_transfer_proto::{Claim, LinkProfile, Purpose, Reply, Request, SchedulerConfig, Statement};

use crate::args::node::TransferArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::pins::{Pins, Seeing};
use crate::trust::{self, Trust};

/// Delay of a path that is not known yet, to size windows with.
pub(crate) const ROUND_TRIP: std::time::Duration = std::time::Duration::from_millis(1);
/// Clocks may differ by so much.
const SKEW_SECONDS: u64 = 60;

/// A version that can be read.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) name: RefName,
    pub(crate) version: RefVersion,
    pub(crate) repository: RepositoryId,
    pub(crate) reader: ChunkReader,
}

/// Which version of a ref is meant.
#[derive(Debug, Clone)]
enum Wanted {
    Version(String, VersionSpec),
    Step(StepSpec),
}

/// Opens `NAME[@VERSION]`: through nodes where there are any, else from the repository. A process that goes on for long
/// does not keep others from writing the index.
pub(crate) fn open(context: &Context<'_>, text: &str, how: &TransferArgs, long: bool) -> Result<Opened, Failure> {
    let (name, spec) = VersionSpec::parse(text).map_err(Failure::usage)?;
    let version = text.split_once('@').map_or_else(String::new, |(_, version)| version.to_owned());
    open_wanted(context, name, &Wanted::Version(version, spec), how, long)
}

/// Opens `NAME[@VERSION]` through these nodes and no others.
pub(crate) fn open_at(
    context: &Context<'_>,
    nodes: &[NodeAddr],
    text: &str,
    how: &TransferArgs,
) -> Result<Opened, Failure> {
    let (name, spec) = VersionSpec::parse(text).map_err(Failure::usage)?;
    let version = text.split_once('@').map_or_else(String::new, |(_, version)| version.to_owned());
    open_through(context, nodes.to_vec(), name, &Wanted::Version(version, spec), how, false)
}

/// Opens `RUN@STEP` or `RUN@latest` in the same way.
pub(crate) fn open_step(context: &Context<'_>, text: &str, how: &TransferArgs) -> Result<Opened, Failure> {
    let (run, spec) = StepSpec::parse(text).map_err(Failure::usage)?;
    open_wanted(context, run, &Wanted::Step(spec), how, false)
}

fn open_wanted(
    context: &Context<'_>,
    name: RefName,
    wanted: &Wanted,
    how: &TransferArgs,
    long: bool,
) -> Result<Opened, Failure> {
    let nodes = nodes(context)?;
    if !nodes.is_empty() {
        return open_through(context, nodes, name, wanted, how, long);
    }
    let mut repository = context.repository()?;
    let version = match wanted {
        Wanted::Version(_, spec) => repository.resolve(&name, spec)?,
        Wanted::Step(spec) => repository.resolve_step(&name, *spec)?,
    };
    let id = repository.config().id;
    let reader = if long { repository.into_reader()? } else { repository.reader()? };
    Ok(Opened { name, version, repository: id, reader })
}

fn open_through(
    context: &Context<'_>,
    nodes: Vec<NodeAddr>,
    name: RefName,
    wanted: &Wanted,
    how: &TransferArgs,
    long: bool,
) -> Result<Opened, Failure> {
    let first = nodes[0].clone();
    let Asking { client, identity, claim, profile } = Asking::new(context, nodes, name.to_string(), how)?;
    let claims = ClaimMaker::new(identity.clone(), context.shared_clock(), claim.clone());
    let (version, step) = match wanted {
        Wanted::Version(version, _) => (version.clone(), false),
        Wanted::Step(spec) => (spec.to_string(), true),
    };
    let request = Request::Resolve { claim: claims.signed(), name: name.clone(), version, step };
    let network = context.network()?;
    let reply = network.block_on(ask_all(&client, &request))?;
    let statement = believe(context, &first, &name, reply)?;
    let repository = statement.repository;
    let claims = ClaimMaker::new(identity, context.shared_clock(), Claim { repository: Some(repository), ..claim });
    let folder = LocalIndex::folder_of(&context.settings.values.cache_dir, repository);
    let index = Arc::new(if long { LocalIndex::in_memory(&folder) } else { LocalIndex::open(&folder) });
    let reader = ChunkReader::new(Arc::new(node_source(context, network, client, claims, profile)), index);
    let version = RefVersion {
        sequence: statement.sequence,
        snapshot: statement.snapshot,
        parent: statement.parent,
        log_sequence: statement.log_sequence,
        time: statement.time,
        writer: String::new(),
        envelope: statement.envelope,
        step: statement.step,
    };
    Ok(Opened { name, version, repository, reader })
}

/// Who asks which nodes, and for what.
struct Asking {
    client: Arc<Client>,
    identity: Identity,
    claim: Claim,
    profile: LinkProfile,
}

impl Asking {
    fn new(context: &Context<'_>, nodes: Vec<NodeAddr>, dataset: String, how: &TransferArgs) -> Result<Self, Failure> {
        let identity = identity(context)?;
        let profile = how.tier.profile(ROUND_TRIP, context.settings.memory_bytes / 4);
        let client = Client::new(identity.clone(), nodes, context.shared_clock());
        let client = Arc::new(client.with_window(profile.connection_window_bytes));
        let claim = Claim {
            repository: None,
            tenant: context.settings.values.tenant.clone(),
            job: context.settings.values.job.clone(),
            dataset,
            class: how.class.to_string(),
            tier: how.tier.to_string(),
            not_after: 0,
        };
        claim.check().map_err(Failure::usage)?;
        Ok(Self { client, identity, claim, profile })
    }
}

fn node_source(
    context: &Context<'_>,
    network: tokio::runtime::Handle,
    client: Arc<Client>,
    claims: ClaimMaker,
    profile: LinkProfile,
) -> NodeSource {
    let scheduling = SchedulerConfig { runs_in_flight_max: profile.runs_in_flight, ..SchedulerConfig::default() };
    let reservation = Reservation(context.random("reservation"));
    NodeSource::new(client, network, context.shared_clock(), claims, reservation, scheduling)
}

/// The chunks that these nodes have of a repository, whatever its refs say. `dataset` stands on the bill.
pub(crate) fn chunks_of(
    context: &Context<'_>,
    nodes: Vec<NodeAddr>,
    repository: RepositoryId,
    dataset: &str,
) -> Result<ChunkReader, Failure> {
    let how = TransferArgs::default();
    let Asking { client, identity, claim, profile } = Asking::new(context, nodes, dataset.to_owned(), &how)?;
    let claims = ClaimMaker::new(identity, context.shared_clock(), Claim { repository: Some(repository), ..claim });
    let index = Arc::new(LocalIndex::in_memory(&context.settings.values.cache_dir));
    let source = node_source(context, context.network()?, client, claims, profile);
    Ok(ChunkReader::new(Arc::new(source), index))
}

/// The nodes to read through.
pub(crate) fn nodes(context: &Context<'_>) -> Result<Vec<NodeAddr>, Failure> {
    let values = &context.settings.values;
    if values.direct { Ok(Vec::new()) } else { NodeAddr::parse_list(&values.nodes).map_err(Failure::usage) }
}

/// Believes what a gateway says about a ref, if it is the one that spoke before, and does not go back.
fn believe(context: &Context<'_>, node: &NodeAddr, name: &RefName, reply: Reply) -> Result<Statement, Failure> {
    let auth = |message: String| Failure::new(ErrorClass::Auth, message);
    let Reply::Resolved(signed) = reply else {
        return Err(Failure::new(
            ErrorClass::Corrupt,
            format_args!("node {node} gives another answer than was asked for"),
        ));
    };
    let gateway = signer(&signed, Purpose::Statement)
        .map_err(|error| auth(format!("what node {node} says about {name} is not signed by its gateway: {error}")))?;
    let statement = Statement::decode(&signed.body).map_err(|error| auth(error.to_string()))?;
    if statement.name != *name {
        return Err(auth(format!("node {node} was asked about {name} and answers about {}", statement.name)));
    }
    if statement.not_after + SKEW_SECONDS < seconds(context.clock()) {
        return Err(auth(format!("what node {node} says about {name} is out of date: it does not ask its gateway")));
    }
    let trust = trust::TrustList::load()?.find(gateway);
    if trust == Some(Trust::Revoked) {
        return Err(auth(format!("the gateway {gateway} of node {node} is revoked here")));
    }
    let mut pins = Pins::open(&context.settings.values.identity)?;
    if pins.check(node.id, gateway, &statement)? == Seeing::New && trust.is_none() {
        let message = format!("the gateway {gateway} is believed from now on, as node {} names it", node.id);
        context.output.warn(Warning { kind: "unpinned-gateway", message, path: None });
    }
    Ok(statement)
}

/// The key of this client or node, made on first use.
pub(crate) fn identity(context: &Context<'_>) -> Result<Identity, Failure> {
    let path = &context.settings.values.identity;
    match Identity::load(path) {
        Err(IdentityError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
        other => return other.map_err(|error| failure(&error)),
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| {
            Failure::new(ErrorClass::Space, format_args!("the folder {} cannot be made: {error}", folder.display()))
        })?;
    }
    let made = Identity::from_random(context.random("identity"));
    match made.write_new(path) {
        Ok(_) => Ok(made),
        // Another process made it just now.
        Err(IdentityError::Exists { .. }) => Identity::load(path).map_err(|error| failure(&error)),
        Err(error) => Err(failure(&error)),
    }
}

fn failure(error: &IdentityError) -> Failure {
    let class = match error {
        IdentityError::Write { .. } => ErrorClass::Space,
        IdentityError::Exposed { .. } | IdentityError::NotASecret { .. } => ErrorClass::Auth,
        _ => ErrorClass::Failed,
    };
    Failure::new(class, forebay_cas::chain(error))
}

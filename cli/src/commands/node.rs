//! `forebay node`

mod manage;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_cache_node::{Bill, Duty, Edge, Gateway, Node, NodeConfig, Role, Store};
use forebay_cas::budgets::Budgets;
use forebay_cas::ledger::LedgerWriter;
use forebay_cas::task::RuntimeThread;
use forebay_cas::{ErrorClass, Notices, Warning, clock};
use forebay_policy::Class;
use forebay_policy::EvictionConfig;
use forebay_policy::eviction::Share;
use forebay_transfer::client::Client;
use forebay_transfer::{Identity, NodeAddr, NodeId};
use forebay_transfer_proto::RateBytesPerS;
use serde_json::json;

use super::egress::read_card;
use crate::args::node::{NodeArgs, NodeCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::library::identity;

/// How often a node looks whether it should stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What answers are given to end after a signal.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

pub(crate) fn run(context: &Context<'_>, args: &NodeArgs) -> Result<(), Failure> {
    match &args.command {
        Some(NodeCommand::Status { node }) => manage::status(context, node),
        Some(NodeCommand::Drain { node, within }) => manage::drain(context, node, *within),
        None => serve(context, args),
    }
}

fn serve(context: &Context<'_>, args: &NodeArgs) -> Result<(), Failure> {
    let identity = identity(context)?;
    let network = RuntimeThread::start("quic")
        .map_err(|source| Failure::new(ErrorClass::Failed, format_args!("no threads can be started: {source}")))?;
    let duty = match args.role {
        Role::Edge => edge(context, args, &identity)?,
        Role::Gateway => gateway(context, args, &identity)?,
    };
    let config = NodeConfig {
        listen: args.listen,
        http: args.http,
        site: args.site.clone(),
        region: args.region.clone(),
        provider: args.provider.clone(),
        rate_bytes_per_s: args.rate.map(|rate| rate.as_u64()),
    };
    let runtime = context.runtime();
    let node = Node::start(&identity, config, duty, network, runtime, context.shared_clock())?;
    let (listen, http) = (node.listen.to_string(), node.http.to_string());
    let id = identity.node_id().to_string();
    context.output.line(&format!("{} {id}@{listen}, http://{http}", args.role))?;
    context.output.item("ready", json!({ "node_id": id, "listen": listen, "http": http, "role": args.role.name() }))?;
    context.output.flush()?;
    while !context.cancel.is_cancelled() && !node.has_left() {
        runtime.block_on(clock::sleep(LOOK_EVERY));
    }
    let interrupted = context.cancel.is_cancelled();
    if interrupted {
        node.leave(LEAVE_WITHIN);
        while !node.has_left() {
            runtime.block_on(clock::sleep(LOOK_EVERY));
        }
    }
    node.stop(runtime);
    if interrupted {
        return Err(Failure::new(ErrorClass::Interrupted, "stopped; the cache is kept"));
    }
    context.output.line("drained; the cache is kept")?;
    context.output.result(json!({ "node_id": id, "drained": true, "seconds": context.elapsed().as_secs_f64() }))?;
    context.output.flush()
}

fn edge(context: &Context<'_>, args: &NodeArgs, identity: &Identity) -> Result<Duty, Failure> {
    if args.upstream.is_empty() {
        return Err(Failure::usage("an edge needs a gateway: name it with --upstream NODE_ID@HOST:PORT"));
    }
    let upstream = args
        .upstream
        .iter()
        .map(|text| text.parse::<NodeAddr>())
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::usage)?;
    let mut eviction = EvictionConfig::with_capacity(args.capacity.as_u64());
    // Half of the room is safe for what jobs stand still without.
    eviction.floors.insert(Class::Critical, Share::PerMille(500));
    let store = Arc::new(Store::open(&context.settings.values.cache_dir.join("edge"), &eviction)?);
    let client = Client::new(identity.clone(), upstream, context.shared_clock());
    let place = args.site.as_ref().map_or_else(|| "site".to_owned(), |site| format!("site:{site}"));
    let edge =
        Edge::new(Arc::clone(&store), client, context.shared_clock(), context.runtime().clone(), place, limit(args)?);
    Ok(Duty::Edge(edge, store))
}

fn gateway(context: &Context<'_>, args: &NodeArgs, identity: &Identity) -> Result<Duty, Failure> {
    let repository = context.repository()?;
    repository.prepare_to_write()?;
    let (origin, id) = (Arc::clone(repository.origin()), repository.config().id);
    let holder = identity.node_id().to_string();
    let budgets = Budgets::open(Arc::clone(&origin), id, holder, context.surroundings())?;
    let node = forebay_format::NodeKey::from_bytes(*identity.node_id().as_bytes());
    let ledger = LedgerWriter::open(origin, id, node, context.surroundings())?;
    let rates = args.rates.clone().unwrap_or_else(|| context.settings.values.rates.clone());
    let rates = Some(rates).filter(|file| !file.as_os_str().is_empty()).map(|file| read_card(&file)).transpose()?;
    let bill = Bill::new(ledger, budgets, rates, context.shared_clock());
    let clients = args.clients.as_deref().map(read_clients).transpose()?;
    if clients.is_none() {
        let message = "every key may read and bill any tenant; --clients FILE names those that may".to_owned();
        context.output.warn(Warning { kind: "open-access", message, path: None });
    }
    let runtime = context.runtime().clone();
    let (identity, clock) = (identity.clone(), context.shared_clock());
    Ok(Duty::Gateway(Gateway::new(identity, repository, bill, clients, limit(args)?, clock, runtime)?))
}

fn limit(args: &NodeArgs) -> Result<Option<RateBytesPerS>, Failure> {
    let none = || Failure::usage("--rate 0 would never send anything");
    args.rate.map(|rate| RateBytesPerS::new(rate.as_u64()).ok_or_else(none)).transpose()
}

/// Reads lines of a public key and a tenant.
fn read_clients(file: &Path) -> Result<BTreeMap<NodeId, String>, Failure> {
    let shown = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::new(ErrorClass::Usage, format_args!("{shown} cannot be read: {error}")))?;
    let mut clients = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let wrong = |what: String| Failure::usage(format_args!("{shown}, line {}: {what}", number + 1));
        let (key, tenant) =
            line.split_once(char::is_whitespace).ok_or_else(|| wrong("write a public key and a tenant".to_owned()))?;
        let key = NodeId::from_public_line(key).or_else(|_| key.parse()).map_err(|error| wrong(error.to_string()))?;
        if clients.insert(key, tenant.trim().to_owned()).is_some() {
            return Err(wrong(format!("the key {key} stands twice")));
        }
    }
    Ok(clients)
}

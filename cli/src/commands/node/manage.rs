//! `forebay node status`, `forebay node drain`

use std::time::Duration;

use forebay_cas::{ErrorClass, clock};
use forebay_transfer::client::{Client, PeerError};
use forebay_transfer::{ClaimMaker, NodeAddr};
use forebay_transfer_proto::{Claim, LinkTier, Reply, Request};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::Failure;
use crate::library::{self, ROUND_TRIP};
use crate::text;

/// How often it is looked whether a node is gone.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A node that drains may take so much longer than it was given.
const GRACE: Duration = Duration::from_secs(10);

/// One node, asked about itself.
struct Asker {
    addr: NodeAddr,
    client: Client,
    claims: ClaimMaker,
}

impl Asker {
    fn new(context: &Context<'_>, node: &str) -> Result<Self, Failure> {
        let addr: NodeAddr = node.parse().map_err(Failure::usage)?;
        let identity = library::identity(context)?;
        let client = Client::new(identity.clone(), vec![addr.clone()], context.shared_clock());
        let claim = Claim {
            repository: None,
            tenant: context.settings.values.tenant.clone(),
            job: context.settings.values.job.clone(),
            dataset: String::new(),
            class: String::new(),
            tier: String::new(),
            not_after: 0,
        };
        claim.check().map_err(Failure::usage)?;
        Ok(Self { addr, client, claims: ClaimMaker::new(identity, context.shared_clock(), claim) })
    }

    async fn status(&self) -> Result<Reply, PeerError> {
        self.client.reply(0, &Request::Status { claim: self.claims.signed() }).await
    }
}

pub(super) fn status(context: &Context<'_>, node: &str) -> Result<(), Failure> {
    let asker = Asker::new(context, node)?;
    let reply = context.network()?.block_on(asker.status())?;
    let mut status = match reply {
        Reply::Status(text) => serde_json::from_str::<Value>(&text).ok().filter(Value::is_object),
        _ => None,
    }
    .ok_or_else(|| {
        Failure::new(ErrorClass::Corrupt, format_args!("node {} gives another answer than was asked for", asker.addr))
    })?;
    show(context, &asker.addr, &status)?;
    status["tiers"] = tiers(context);
    context.output.result(status)?;
    context.output.flush()
}

fn show(context: &Context<'_>, addr: &NodeAddr, status: &Value) -> Result<(), Failure> {
    let word = |name: &str| match &status[name] {
        Value::String(text) => text.chars().filter(|letter| !letter.is_control()).collect(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let size = |value: &Value| value.as_u64().map_or_else(|| "-".to_owned(), text::bytes);
    let line = |name: &str, value: String| context.output.line(&format!("{name:<12} {value}"));
    line("node", addr.to_string())?;
    line("role", format!("{}, version {}, up {} s", word("role"), word("version"), word("uptime_s")))?;
    line("stands at", format!("site {}, region {}, provider {}", word("site"), word("region"), word("provider")))?;
    line("leaving", if status["draining"] == true { "yes" } else { "no" }.to_owned())?;
    line("connections", word("connections"))?;
    let (sent, received) = (size(&status["wire_sent_bytes"]), size(&status["wire_received_bytes"]));
    line("wire", format!("{sent} sent, {received} received"))?;
    line(
        "rate",
        status["rate_bytes_per_s"].as_u64().map_or_else(|| "no limit".to_owned(), |rate| text::bytes(rate) + "/s"),
    )?;
    if status["cache"].is_object() {
        let cache = &status["cache"];
        let (used, capacity) = (size(&cache["used_bytes"]), size(&cache["capacity_bytes"]));
        line("cache", format!("{used} of {capacity} in {} frames, {} evicted", cache["entries"], cache["evictions"]))?;
    }
    context.output.line("tier    rate cap/s  connections  runs in flight  window       read-ahead")?;
    for tier in LinkTier::ALL {
        let profile = tier.profile(ROUND_TRIP, context.settings.memory_bytes / 4);
        let [rate, window, ahead] =
            [profile.rate_cap.get(), profile.connection_window_bytes, profile.read_ahead_bytes].map(text::bytes);
        let (connections, runs) = (profile.connections, profile.runs_in_flight);
        context.output.line(&format!("{tier:<7} {rate:<11} {connections:<12} {runs:<15} {window:<12} {ahead}"))?;
    }
    Ok(())
}

/// What each tier means for a client with this much memory, on a path of [`ROUND_TRIP`].
fn tiers(context: &Context<'_>) -> Value {
    let tier = |tier: LinkTier| {
        let profile = tier.profile(ROUND_TRIP, context.settings.memory_bytes / 4);
        let shown = json!({
            "rate_cap_bytes_per_s": profile.rate_cap.get(), "connections": profile.connections,
            "endpoints": profile.endpoints, "runs_in_flight": profile.runs_in_flight,
            "connection_window_bytes": profile.connection_window_bytes,
            "stream_window_bytes": profile.stream_window_bytes, "read_ahead_bytes": profile.read_ahead_bytes,
        });
        (tier.name().to_owned(), shown)
    };
    Value::Object(LinkTier::ALL.into_iter().map(tier).collect())
}

pub(super) fn drain(context: &Context<'_>, node: &str, within: SignedDuration) -> Result<(), Failure> {
    let within =
        Duration::try_from(within).map_err(|_negative| Failure::usage("--within is a time, like 30s or 2m"))?;
    let within_s = u32::try_from(within.as_secs()).map_err(Failure::usage)?;
    let asker = Asker::new(context, node)?;
    let network = context.network()?;
    let request = Request::Drain { claim: asker.claims.signed(), within_s };
    network.block_on(asker.client.reply(0, &request))?;
    let give_up = context.elapsed() + within + GRACE;
    loop {
        network.block_on(clock::sleep(LOOK_EVERY));
        // It answers about itself until it goes.
        if network.block_on(asker.status()).is_err() {
            break;
        }
        if context.cancel.is_cancelled() {
            return Err(Failure::new(ErrorClass::Interrupted, "interrupted; the node goes on leaving"));
        }
        if context.elapsed() >= give_up {
            return Err(Failure::new(ErrorClass::Net, format_args!("node {} has not left in time", asker.addr)));
        }
    }
    let seconds = context.elapsed().as_secs_f64();
    context.output.line(&format!("{} has left, after {seconds:.1} s", asker.addr))?;
    context.output.result(json!({ "node_id": asker.addr.id.to_string(), "drained": true, "seconds": seconds }))?;
    context.output.flush()
}

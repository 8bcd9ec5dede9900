//! `forebay key`

use std::path::Path;

use forebay_cas::rng::Seed;
use forebay_cas::{Classify, ErrorClass};
use forebay_transfer::{Identity, IdentityError, NodeId};
use serde_json::json;

use crate::args::key::{KeyCommand, TrustCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::text;
use crate::trust::{self, Trust, TrustList};

pub(crate) fn run(context: &Context<'_>, command: &KeyCommand) -> Result<(), Failure> {
    match command {
        KeyCommand::Generate { file } => generate(context, file),
        KeyCommand::Show { file } => show(context, file),
        KeyCommand::Trust { command: TrustCommand::Add { key, comment } } => add(context, key, comment.as_deref()),
        KeyCommand::Trust { command: TrustCommand::Ls } => list(context),
        KeyCommand::Trust { command: TrustCommand::Revoke { key } } => revoke(context, key),
    }
}

/// Reads a secret key.
pub(super) fn load(path: &Path) -> Result<Identity, Failure> {
    Identity::load(path).map_err(|error| explain(&error))
}

fn generate(context: &Context<'_>, file: &Path) -> Result<(), Failure> {
    let identity = Identity::from_random(Seed::from_os().stream("identity").bytes());
    let public_file = identity.write_new(file).map_err(|error| explain(&error))?;
    let id = identity.node_id();
    context.output.line(&id.public_line())?;
    context.output.say(&format!("the secret is in {}, the public key in {}", file.display(), public_file.display()));
    context.output.result(json!({
        "id": id.to_string(), "public": id.public_line(),
        "file": file.display().to_string(), "public_file": public_file.display().to_string(),
    }))?;
    context.output.flush()
}

fn show(context: &Context<'_>, file: &Path) -> Result<(), Failure> {
    let ids: Vec<NodeId> = match Identity::load(file) {
        Ok(identity) => vec![identity.node_id()],
        // Not a secret: then it should be public.
        Err(IdentityError::NotASecret { .. } | IdentityError::Exposed { .. }) if !is_secret(file) => {
            trust::keys_in(file)?.into_iter().collect()
        }
        Err(error) => return Err(explain(&error)),
    };
    for id in &ids {
        context.output.line(&id.public_line())?;
        context.output.item("key", json!({ "id": id.to_string(), "public": id.public_line() }))?;
    }
    context.output.result(json!({ "keys": ids.len(), "id": ids.first().map(NodeId::to_string) }))?;
    context.output.flush()
}

fn is_secret(file: &Path) -> bool {
    std::fs::read(file).is_ok_and(|bytes| bytes.starts_with(b"forebay-secret"))
}

fn add(context: &Context<'_>, key: &str, comment: Option<&str>) -> Result<(), Failure> {
    let ids = trust::keys_named(key)?;
    if comment.is_some_and(|comment| comment.chars().any(char::is_control)) {
        return Err(Failure::usage("a comment is one line of text"));
    }
    let list = TrustList::change(|list| {
        for id in &ids {
            if list.find(*id) == Some(Trust::Revoked) {
                let message = format_args!("{id} is revoked, and is not trusted again: make another key");
                return Err(Failure::new(ErrorClass::Auth, message));
            }
            list.set(*id, Trust::Trusted, comment);
        }
        Ok(())
    })?;
    changed(context, &list, ids.iter(), Trust::Trusted)
}

fn revoke(context: &Context<'_>, key: &str) -> Result<(), Failure> {
    let ids = trust::keys_named(key)?;
    let list = TrustList::change(|list| {
        ids.iter().for_each(|id| list.set(*id, Trust::Revoked, None));
        Ok(())
    })?;
    changed(context, &list, ids.iter(), Trust::Revoked)
}

fn changed<'i>(
    context: &Context<'_>,
    list: &TrustList,
    ids: impl ExactSizeIterator<Item = &'i NodeId>,
    trust: Trust,
) -> Result<(), Failure> {
    let count = ids.len();
    for id in ids {
        context.output.line(&format!("{} {id}", trust.as_str()))?;
        context.output.item("key", json!({ "id": id.to_string(), "state": trust.as_str() }))?;
    }
    context.output.result(json!({ "keys": count, "file": list.path.display().to_string() }))?;
    context.output.flush()
}

fn list(context: &Context<'_>) -> Result<(), Failure> {
    let list = TrustList::load()?;
    for entry in &list.entries {
        let comment = text::message(&entry.comment);
        context.output.line(format!("{} {}  {comment}", entry.trust.as_str(), entry.id).trim_end())?;
        context.output.item(
            "key",
            json!({ "id": entry.id.to_string(), "state": entry.trust.as_str(), "comment": entry.comment }),
        )?;
    }
    context.output.result(json!({ "keys": list.entries.len(), "file": list.path.display().to_string() }))?;
    context.output.flush()
}

fn explain(error: &IdentityError) -> Failure {
    let class = match error {
        IdentityError::Exists { .. } => ErrorClass::Conflict,
        IdentityError::Write { source, .. } | IdentityError::Read { source, .. } => source.class(),
        IdentityError::Exposed { .. } => ErrorClass::Auth,
        IdentityError::NotASecret { .. } => ErrorClass::Usage,
        _ => ErrorClass::Failed,
    };
    Failure::new(class, forebay_cas::chain(error))
}

//! `forebay egress budget`

use forebay_cas::budgets::Budgets;
use forebay_cas::{ErrorClass, Notices, Warning};
use forebay_format::Timestamp;
use forebay_policy::{Budget, Scope, Standing, Tally};
use serde_json::{Value, json};

use super::table::TextTable;
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

pub(super) fn set(context: &Context<'_>, scope: &Scope, limit: Option<Budget>) -> Result<(), Failure> {
    let budgets = open(context, true)?;
    let before = budgets.standing(scope).limit;
    budgets.set(scope, limit)?;
    let standing = budgets.standing(scope);
    let was = before.map_or_else(|| "none".to_owned(), |before| before.to_string());
    let now = limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
    context.output.line(&format!("the budget of {} is {now} a month (was {was})", shown(scope)))?;
    warn_unpriced(context, &standing);
    let mut result = describe(&standing);
    result["previous"] = json!(before.map(|before| before.to_string()));
    context.output.result(result)?;
    context.output.flush()
}

pub(super) fn remove(context: &Context<'_>, scope: &Scope) -> Result<(), Failure> {
    let budgets = open(context, false)?;
    if budgets.standing(scope).limit.is_none() {
        let message = format!("{} has no budget; `forebay egress budget ls` lists them", shown(scope));
        return Err(Failure::new(ErrorClass::NotFound, message));
    }
    drop(budgets);
    set(context, scope, None)
}

pub(super) fn list(context: &Context<'_>) -> Result<(), Failure> {
    let standings = open(context, false)?.list()?;
    let in_terms = |standing: &Standing, tally: &Tally| match standing.limit.map(|limit| tally.in_terms_of(&limit)) {
        Some(Budget::Bytes(bytes)) => text::bytes(bytes),
        Some(money) => money.to_string(),
        None => String::new(),
    };
    let mut table = TextTable::new();
    table.words("scope", standings.iter().map(|standing| shown(&standing.scope)));
    let limit = |standing: &Standing| standing.limit.map(|limit| limit.to_string()).unwrap_or_default();
    table.numbers("budget", standings.iter().map(limit));
    table.numbers("used", standings.iter().map(|standing| in_terms(standing, &standing.settled)));
    table.numbers("booked", standings.iter().map(|standing| in_terms(standing, &standing.open)));
    let anew = |standing: &Standing| format!("{} UTC", text::time(second(standing.resets_at())));
    table.words("starts anew", standings.iter().map(anew));
    for line in table.lines() {
        context.output.line(&line)?;
    }
    for standing in &standings {
        warn_unpriced(context, standing);
        context.output.item("budget", describe(standing))?;
    }
    context.output.result(json!({ "budgets": standings.len() }))?;
    context.output.flush()
}

fn open(context: &Context<'_>, writes: bool) -> Result<Budgets, Failure> {
    let repository = context.repository()?;
    if writes {
        repository.prepare_to_write()?;
    }
    let around = context.surroundings();
    let (origin, id) = (std::sync::Arc::clone(repository.origin()), repository.config().id);
    Ok(Budgets::open(origin, id, around.writer.clone(), around)?)
}

/// Bytes without a price are not in the sum of a budget in money: that must be known.
fn warn_unpriced(context: &Context<'_>, standing: &Standing) {
    let bytes = standing.unpriced_bytes();
    if bytes > 0 {
        let (scope, month, bytes) = (shown(&standing.scope), standing.month, text::bytes(bytes));
        let message = format!(
            "{bytes} of {scope} in {month} were booked without a price in the budget's currency and do not count in it"
        );
        context.output.warn(Warning { kind: "unpriced-bytes", message, path: None });
    }
}

fn describe(standing: &Standing) -> Value {
    let mut object = json!({
        "scope": standing.scope.to_string(),
        "tenant": standing.scope.tenant,
        "job": standing.scope.job,
        "limit": standing.limit.map(|limit| limit.to_string()),
        "month": standing.month.to_string(),
        "used_bytes": standing.settled.bytes(),
        "reserved_bytes": standing.open.bytes(),
        "resets_at": text::time_json(second(standing.resets_at())),
    });
    match standing.limit {
        None => {}
        Some(Budget::Bytes(bytes)) => object["limit_bytes"] = json!(bytes),
        Some(Budget::Money(money)) => {
            let cost = |tally: &Tally| tally.cost(money.currency).amount.to_string();
            object["limit_cost"] = json!(money.amount.to_string());
            object["currency"] = json!(money.currency.to_string());
            object["used_cost"] = json!(cost(&standing.settled));
            object["reserved_cost"] = json!(cost(&standing.open));
            object["unpriced_bytes"] = json!(standing.unpriced_bytes());
        }
    }
    object
}

fn shown(scope: &Scope) -> String {
    text::name(scope.to_string().as_bytes())
}

const fn second(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 0 }
}
